package relay_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Deferred rows that are due are read as fast as they are sent. A full buffer or large payloads don't make them wait for the
// next poll.
func TestDueRowsAreReadAsFastAsTheyAreSent(t *testing.T) {
	onlyComputes(t)
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		for _, rows := range []struct{ count, bytes int }{{3_000, 10}, {60, 1 << 20}} {
			t.Run(fmt.Sprintf("by %s, %d of %d bytes", claim, rows.count, rows.bytes), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					db, sink := memstore.New(), &recorder{delay: 10 * time.Millisecond}
					at, payload := time.Now().Add(time.Hour), make([]byte, rows.bytes)
					for i := range rows.count {
						db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i), Payload: payload, AvailableAt: at})
					}
					_, stop := start(t, db.Store(), relay.Options{Claim: claim,
						Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 100, Buffer: 400}}})
					time.Sleep(time.Hour + 1900*time.Millisecond)
					if n := len(sink.ids()); n != rows.count {
						t.Errorf("%d of %d messages were delivered within seconds after they were due", n, rows.count)
					}
					if err := stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// endlessPurge is a store in which each call of Purge reports that more rows are left to delete.
type endlessPurge struct{ *memstore.Store }

func (endlessPurge) Purge(ctx context.Context, _ time.Duration, limit int) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return limit, ctx.Err()
}

// A purge may take hours, for example because the retention was shortened. Meanwhile the relay delivers messages without
// delay.
func TestLongPurgeDelaysNoMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		db.Write(outbox.Message{Topic: "orders", AvailableAt: time.Now().Add(time.Minute)})
		_, stop := start(t, endlessPurge{db.Store()}, relay.Options{Sinks: to(sink), Claim: storage.ByRows})
		time.Sleep(time.Minute + 5*time.Second)
		if n := len(sink.ids()); n != 1 {
			t.Errorf("%d messages were delivered in time, want 1", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
