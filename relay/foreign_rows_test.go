package relay_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// rowsByTopic counts the rows that pages and scans return, by topic.
type rowsByTopic struct {
	storage.Store
	mu    sync.Mutex
	calls int
	rows  map[string]int
}

func (c *rowsByTopic) count(rows []storage.Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	for i := range rows {
		c.rows[rows[i].Message.Topic]++
	}
}

func (c *rowsByTopic) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := c.Store.Read(ctx, request)
	time.Sleep(time.Millisecond)
	c.count(page.Rows)
	return page, err
}

func (c *rowsByTopic) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	rows, left, err := c.Store.Scan(ctx, positions, except, keep)
	c.count(rows)
	return rows, left, err
}

// The rows of a sink that is down are mixed with rows of another sink. Reading the other sink's rows, the relay reads at most
// 2 % of all rows without effect. A row is read without effect if its sink is down and has no room for it in its buffer, or
// if its sink is up and the row was read before.
func TestPagesReturnFewRowsOfOtherSinks(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	const backlog, buffer = 300_000, 8000
	for name, c := range map[string]struct {
		own    int  // one row in this many is for the sink that is up
		rest   bool // the sink that is down has the route for all other topics
		topics int  // the number of topics of the sink that is down
	}{
		"half of the rows are its own":   {own: 2, topics: 1},
		"a tenth is its own":             {own: 10, topics: 1},
		"a hundredth is its own":         {own: 100, topics: 1},
		"the route for all other topics": {own: 10, topics: 40, rest: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, up := memstore.New(), &recorder{delay: time.Millisecond}
				down := &recorder{delay: time.Millisecond, answer: func(sinks.Message) sinks.Outcome {
					return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "down")
				}}
				own := 0
				for n := range backlog {
					topic := fmt.Sprint("down", n%c.topics)
					if n%c.own == 0 {
						topic, own = "up", own+1
					}
					db.Write(outbox.Message{Topic: topic, Key: fmt.Sprint("k", n%997)})
				}
				routes := []relay.Route{{Topic: "up", Sink: "up"}, {Topic: "*", Sink: "down"}}
				if !c.rest {
					routes[1].Topic = "down0"
				}
				store := &rowsByTopic{Store: db.Store(), rows: map[string]int{}}
				began := time.Now()
				_, stop := start(t, store, relay.Options{
					Sinks:  map[string]relay.SinkOptions{"up": {Sink: up, Buffer: buffer}, "down": {Sink: down, Buffer: buffer}},
					Routes: routes,
				})
				for len(up.ids()) < own && time.Since(began) < time.Hour {
					time.Sleep(time.Millisecond)
				}
				took := time.Since(began)
				if err := stop(); err != nil {
					t.Error(err)
				}
				inOrder(t, up.all())
				all := 0
				for _, n := range store.rows {
					all += n
				}
				inVain := max(0, all-store.rows["up"]-buffer) + store.rows["up"] - own
				t.Logf("%d rows of %d were read without effect, %.1f %%, in %d calls and %v", inVain, all, 100*float64(inVain)/float64(all), store.calls, took)
				if n := len(up.ids()); n != own {
					t.Errorf("%d of %d messages arrived", n, own)
				}
				if inVain*50 > all {
					t.Errorf("%d rows of %d were read without effect", inVain, all)
				}
			})
		})
	}
}
