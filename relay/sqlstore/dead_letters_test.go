package sqlstore_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// split is a sink. If rejects is true, it rejects messages with the payload "bad"; otherwise it records
// the messages that it receives.
type split struct {
	rejects bool

	mu  sync.Mutex
	got map[string]string // dead letters, by the id of the parked message
}

func (s *split) Open(context.Context) error  { return nil }
func (s *split) Close(context.Context) error { return nil }

func (s *split) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	outcomes := make([]sinks.Outcome, len(batch))
	for i, m := range batch {
		outcomes[i] = sinks.Ok("")
		switch {
		case s.rejects && string(m.Payload) == "bad":
			outcomes[i] = sinks.Fail(sinks.Reject, sinks.ReasonRefused, "it's bad")
		case !s.rejects:
			s.got[m.Headers["rowrelay-dead-letter-message-id"]] += m.Key + " " + m.Topic + " " + string(m.Payload) + " " + m.Headers["rowrelay-dead-letter-error"] + ";"
		}
	}
	return outcomes
}

// On each database and with each claim mode, each parked message has a dead letter, which is delivered
// once to another sink. A drain ends only when the dead letters are delivered.
func TestDeadLettersAreDelivered(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() {
		if target.Kind == testdb.Oracle || target.Kind == testdb.SQLServer {
			continue
		}
		for claim, to := range map[storage.Claim]relay.DeadLetter{storage.ByLanes: {Topic: "dead"}, storage.ByRows: {Sink: "dead"}} {
			t.Run(target.Name+"/"+string(claim), func(t *testing.T) {
				t.Parallel()
				topic := cmp.Or(to.Topic, "orders")
				table, dead := open(t, target), &split{got: map[string]string{}}
				for i := range 30 {
					payload := []string{"good", "bad", "good"}[i%3]
					exec(t, table.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders', 'k%d', '%s')", i%4, payload))
				}
				r, err := relay.New(table.Store(t), relay.Options{
					Logger: slog.New(slog.DiscardHandler), Claim: claim, Drain: true,
					Sinks: map[string]relay.SinkOptions{
						"main": {Sink: &split{rejects: true}, DeadLetter: to, BreakerThreshold: -1, JudgeAloneAfter: relay.JudgeAtOnce},
						"dead": {Sink: dead},
					},
					Routes: []relay.Route{{Topic: "dead", Sink: "dead"}, {Topic: "orders", Sink: "main"}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				infos, err := table.open(t).List(t.Context(), storage.Filter{State: storage.StateError})
				if err != nil || len(infos) != 10 || len(dead.got) != 10 {
					t.Errorf("%d messages are parked, and %d dead letters delivered, want 10: %v", len(infos), len(dead.got), err)
				}
				for _, info := range infos {
					if want := info.Message.Key + " " + topic + " bad refused: it's bad;"; dead.got[info.Message.ID] != want {
						t.Errorf("the dead letter of %s is %q, want %q", info.Message.ID, dead.got[info.Message.ID], want)
					}
				}
			})
		}
	}
}
