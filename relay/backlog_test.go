package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// countedRows counts the rows that pages return.
type countedRows struct {
	storage.Store
	rows atomic.Int64
}

func (c *countedRows) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := c.Store.Read(ctx, request)
	c.rows.Add(int64(len(page.Rows)))
	return page, err
}

// A relay doesn't read the backlog of a sink that is down or of a topic without a route, while it delivers another sink's
// messages between and after these rows, in order. When the sink recovers, it gets its backlog in order.
func TestBacklogOfAnotherSinkIsNotRead(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	const backlog, others = 100_000, 500
	for _, topic := range []string{"down", "lost"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, up := memstore.New(), &recorder{}
				isUp := atomic.Bool{}
				down := &recorder{answer: func(sinks.Message) sinks.Outcome {
					if isUp.Load() {
						return sinks.Ok("")
					}
					return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down")
				}}
				for n := range backlog {
					db.Write(outbox.Message{Topic: topic, Key: fmt.Sprint("k", n%1000)})
					if n%(backlog/others) == 0 {
						db.Write(outbox.Message{Topic: "up", Key: fmt.Sprint("k", n%3)})
					}
				}
				store := &countedRows{Store: db.Store()}
				_, stop := start(t, store, relay.Options{
					Sinks:  map[string]relay.SinkOptions{"up": {Sink: up}, "down": {Sink: down}},
					Routes: []relay.Route{{Topic: "up", Sink: "up"}, {Topic: "down", Sink: "down"}},
				})
				time.Sleep(10 * time.Second)
				if n := len(up.ids()); n != others {
					t.Errorf("%d of %d messages of the other sink arrived", n, others)
				}
				inOrder(t, up.all())
				if rows := store.rows.Load(); rows > backlog/4 {
					t.Errorf("%d rows were read to deliver %d messages", rows, others)
				}
				isUp.Store(true)
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				if n := len(down.ids()); topic == "down" && n != backlog {
					t.Errorf("%d of %d messages arrived once their sink was back", n, backlog)
				}
				inOrder(t, down.all())
			})
		})
	}
}
