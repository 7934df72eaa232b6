package backend

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Whatever the column journal contains, what a relay reads of it can be written and read again without a change.
func FuzzJournal(f *testing.F) {
	f.Add(`{"suspects":[{"id":1,"first":true}],"batches":[{"sink":"kafka","rows":[1,2]}]}`)
	f.Add(`{"suspects":null,"batches":[{}]}`)
	f.Add(`{"batches":[{"sink":"\ud800"}]} `)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, written string) {
		first := stored[journal](text(written))
		once, err := JournalText(storage.Journal{Suspects: first.Suspects, Batches: first.Batches})
		if err != nil {
			t.Fatal(err)
		}
		second := stored[journal](text(once))
		again, err := JournalText(storage.Journal{Suspects: second.Suspects, Batches: second.Batches})
		if err != nil || again != once {
			t.Errorf("%q is written as %q, and then as %q, %v", written, once, again, err)
		}
	})
}

// Whatever the column marks contains, what a relay reads of it can be written and read again without a change.
func FuzzMarks(f *testing.F) {
	f.Add(`{"routes":"x","main":65,"sinks":{"kafka":3}}`)
	f.Add(`{"main":-9223372036854775808,"sinks":{"":1}}`)
	f.Add(`{"main":1e3}`)
	f.Fuzz(func(t *testing.T, written string) {
		first := stored[storage.Marks](text(written))
		once, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		second := stored[storage.Marks](text(once))
		if second.Main != first.Main || second.Routes != first.Routes || len(second.Sinks) != len(first.Sinks) || len(first.Sinks) > 0 && !reflect.DeepEqual(second, first) {
			t.Errorf("%q is read as %+v, and after it was written as %+v", written, first, second)
		}
	})
}
