package proof

import (
	"path/filepath"
	"reflect"
	"testing"
)

func TestHistorySurvivesItsFile(t *testing.T) {
	t.Parallel()
	lane := 0
	h := &History{Header: Header{History: 1, Scene: "s", Claim: "lanes", Ordered: true}, Events: []Event{
		{Event: Wrote, ID: "a", Key: "k", Number: 1, Outcome: Committed, At: 0.5},
		{Event: Arrived, ID: "a", Key: "k", Number: 1, Relay: "/relay-1"},
		{Event: Lane, Lane: &lane, Relay: "host-1", Fence: 3, At: 1},
	}}
	path := filepath.Join(t.TempDir(), "h.jsonl.gz")
	if err := h.Write(path); err != nil {
		t.Fatal(err)
	}
	read, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(read, h) {
		t.Errorf("read %+v, want %+v", read, h)
	}
	if v := Check(read); v.Messages != 1 || v.Lost+v.Reordered+v.Outside+v.Fenced != 0 {
		t.Errorf("the verdict is %+v", v)
	}
}
