package sqlstore_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Headers that are numbers or booleans are read as their JSON text, and headers that are null are left out, also after a replay. A
// row with a header of another type is parked.
func TestHeadersOfOtherTypes(t *testing.T) {
	t.Parallel()
	headers := map[string]map[string]string{ // nil: the row is malformed
		`{"n": 1, "b": true, "no": false, "text": "1"}`: {"n": "1", "b": "true", "no": "false", "text": "1"},
		`{"n": -1.5, "large": 12345678901234567}`:       {"n": "-1.5", "large": "12345678901234567"},
		`{"none": null, "text": ""}`:                    {"text": ""},
		`{"none": null}`:                                {},
		`{"object": {"n": 1}}`:                          nil,
		`{"array": [1]}`:                                nil,
	}
	for _, target := range append(allTargets(), aNativePostgres(t)) {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			table := open(t, target)
			for text, want := range headers {
				key := "good"
				if want == nil {
					key = "bad"
				}
				exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key, headers) VALUES ('%s', '%s', '%[1]s')", text, key))
			}
			store := table.open(t)
			settled, err := store.Settle(t.Context(), "r", true, parkMalformed(t, store, storage.ByLanes))
			if err != nil || settled.Changed != len(headers) {
				t.Fatalf("settle: %+v, %v", settled, err)
			}
			checkHeaders(t, store, storage.Filter{State: storage.StateDone}, headers, nil)
			replay, err := store.StoreReplay(t.Context(), nil, storage.Replay{Name: "again"})
			must(t, err)
			for !replay.Finished {
				replay, _, err = store.Replay(t.Context(), replay, 100)
				must(t, err)
			}
			checkHeaders(t, store, storage.Filter{State: storage.StatePending}, headers, map[string]string{storage.ReplayedHeader: "again"})
		})
	}
}

// checkHeaders compares the headers of each message with those that were written. Their JSON is the message's topic.
func checkHeaders(t *testing.T, store *sqlstore.Store, filter storage.Filter, headers map[string]map[string]string, more map[string]string) {
	t.Helper()
	filter.Limit = 100
	infos, err := store.List(t.Context(), filter)
	if err != nil || len(infos) != 4 {
		t.Fatalf("list: %d messages, %v; want 4", len(infos), err)
	}
	for _, info := range infos {
		want := maps.Clone(headers[info.Message.Topic])
		maps.Copy(want, more)
		if !maps.Equal(info.Message.Headers, want) {
			t.Errorf("%s %s: %v, want %v", info.State, info.Message.Topic, info.Message.Headers, want)
		}
	}
}
