package sqlstore_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// On each database and with each claim mode, a drain fails if it leaves messages of a paused sink, or a message with a negative id,
// which no read finds. It succeeds if no message is for the paused sink or topic.
func TestDrainFailsIfItLeavesMessages(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind == testdb.Oracle || target.Kind == testdb.SQLServer {
			continue
		}
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			t.Run(target.Name+"/"+string(claim), func(t *testing.T) {
				t.Parallel()
				table := open(t, target)
				drain := func() error {
					r, err := relay.New(table.Store(t), relay.Options{Logger: slog.New(slog.DiscardHandler), Claim: claim, Drain: true, Sinks: map[string]relay.SinkOptions{"main": {Sink: &split{got: map[string]string{}}}}})
					if err != nil {
						t.Fatal(err)
					}
					return r.Run(t.Context())
				}
				store := table.open(t)
				for _, control := range []storage.Control{{Kind: storage.PauseSink, Name: "main"}, {Kind: storage.PauseTopic, Name: "another"}} {
					if err := store.SetControl(t.Context(), control, 0); err != nil {
						t.Fatal(err)
					}
				}
				exec(t, table.DB, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders', 'k', 'x')")
				if err := drain(); err == nil || !strings.Contains(err.Error(), "sink main") {
					t.Errorf("a drain with a paused sink returned %v", err)
				}
				if _, err := store.LiftControl(t.Context(), storage.Control{Kind: storage.PauseSink, Name: "main"}); err != nil {
					t.Fatal(err)
				}
				if err := drain(); err != nil {
					t.Errorf("a drain that left no message returned %v", err)
				}
				if _, err := table.DB.ExecContext(t.Context(), "INSERT INTO outbox (id, topic, message_key, payload_text) VALUES (-5, 'orders', 'k', 'x')"); err != nil {
					t.Logf("the database refuses negative ids: %v", err)
					return
				}
				err := drain()
				left, listErr := store.List(t.Context(), storage.Filter{State: storage.StatePending, AfterID: -10})
				if (err == nil) != (len(left) == 0) || listErr != nil {
					t.Errorf("a drain that left %d messages returned %v; the list: %v", len(left), err, listErr)
				}
			})
		}
	}
}
