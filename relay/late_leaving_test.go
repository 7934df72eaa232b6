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

// postponing is a sink that postpones messages of the topic "bad". It delivers messages of the topic "slow" when release is
// closed.
type postponing struct {
	*recorder
	release chan struct{}
}

func (s *postponing) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	switch batch[0].Topic {
	case "bad":
		return sinks.All(len(batch), sinks.Postpone(sinks.ReasonBusy, "later", time.Hour))
	case "slow":
		<-s.release
	}
	return s.recorder.Send(ctx, batch)
}

// Between the read of a page with a late row and the merge of the page, there may be a query about keys. If the relay starts
// to give up the lane meanwhile, the lane's mark doesn't pass the late row.
func TestLateRowOfALaneThatIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		db, sink := memstore.New(), &postponing{recorder: &recorder{}, release: make(chan struct{})}
		store := db.Store()
		var slow atomic.Bool // while true, queries about keys take 10 s
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpBlockedKeys && slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return nil
		}
		r, err := relay.New(store, relay.Options{Name: "z", Lease: 15 * time.Second, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 1, Workers: 4}}})
		if err != nil {
			t.Fatal(err)
		}
		r.KeepBlockedKeys(0)
		run, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- r.Run(run) }()
		keys := keysOf(5, storage.Lanes, 12) // all in one lane
		send := func(topic, key string) int64 { return db.Write(outbox.Message{Topic: topic, Key: key})[0] }
		send("bad", keys[0])
		time.Sleep(5 * time.Second)

		// After a few late rows, pages begin a little below the cursor.
		late := func(key, next string) (commit func(), id int64) {
			tx := db.Begin()
			id = tx.Insert(outbox.Message{Topic: "good", Key: key})
			send("good", next)
			time.Sleep(time.Second)
			return tx.Commit, id
		}
		for i := range 3 {
			commit, _ := late(keys[1+i], keys[4+i])
			commit()
			time.Sleep(2 * time.Second)
		}
		send("slow", keys[7])
		commit, id := late(keys[8], keys[9])
		slow.Store(true)
		commit()
		time.Sleep(time.Second) // a page has the row

		// Other relays join, so that this relay has to give up all lanes.
		others := db.Store()
		status, err := others.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range storage.Lanes {
			identity := storage.Identity{Name: fmt.Sprint("a", i), Claim: storage.ByLanes, Config: status.Relays[0].Config}
			if _, err := others.Heartbeat(ctx, identity, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(14 * time.Second) // the page is merged
		slow.Store(false)
		close(sink.release)
		time.Sleep(10 * time.Second)
		grants, err := others.Acquire(ctx, "a0", storage.Lanes, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, g := range grants {
			if g.Lane == 5 {
				found = true
				if g.Marks.Main >= id {
					t.Errorf("the mark is %d, although row %d is pending", g.Marks.Main, id)
				}
			}
		}
		if !found {
			t.Errorf("the lane was not given up")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
