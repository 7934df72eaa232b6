package relay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// If a relay fails to release the lanes that it gives up, it doesn't renew their leases, and other relays lease the lanes when
// the leases have expired. The relay sends no message of these lanes, even if its share grows meanwhile.
func TestLaneWhoseReleaseFailsIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, lease := context.Background(), 15*time.Second
		db, sink := memstore.New(), &recorder{}
		var fails atomic.Bool
		store := db.Store()
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpRelease && fails.Load() {
				return errors.New("the connection broke")
			}
			return nil
		}
		fails.Store(true)
		_, stop := start(t, store, relay.Options{Name: "a", Lease: lease, Sinks: to(sink)})
		time.Sleep(5 * time.Second)

		// Two other relays start, for which the test sends heartbeats and leases lanes.
		others := db.Store()
		status, err := others.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		beat := func(names ...string) {
			for _, name := range names {
				identity := storage.Identity{Name: name, Claim: storage.ByLanes, Config: status.Relays[0].Config}
				if _, err := others.Heartbeat(ctx, identity, lease); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		for range 25 {
			beat("b", "c")
		}
		grants, err := others.Acquire(ctx, "b", storage.Lanes, lease)
		if err != nil || len(grants) == 0 {
			t.Fatalf("%d lanes are free after the duration of a lease, %v", len(grants), err)
		}
		if err := others.Deregister(ctx, "c"); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			write(db, "orders", fmt.Sprint("k", i), 1)
		}
		for range 5 {
			beat("b")
		}
		fails.Store(false)
		if err := stop(); err != nil {
			t.Error(err)
		}
		leased, lanes, wrong := map[int]bool{}, map[int64]int{}, 0
		for _, g := range grants {
			leased[g.Lane] = true
		}
		for _, c := range db.History() {
			lanes[c.ID] = c.Lane
		}
		for _, m := range sink.received {
			if leased[lanes[m.Sequence]] {
				wrong++
			}
		}
		if wrong > 0 || len(sink.received) == 0 {
			t.Errorf("relay a sent %d messages, %d of them in lanes that relay b has leased", len(sink.received), wrong)
		}
	})
}
