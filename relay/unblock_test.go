package relay_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// If the message that blocks a key is deleted from the table, the key's next message is sent. Otherwise the next message
// waits.
func TestKeyContinuesIfItsBlockerIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
			if string(m.Payload) == "bad" {
				return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "not now")
			}
			return sinks.Ok("")
		}}
		db.Write(outbox.Message{Topic: "orders", Key: "other"}) // a delivery, so that the failures count as caused by the messages
		for _, key := range []string{"gone", "stays"} {
			db.Write(outbox.Message{Topic: "orders", Key: key, Payload: []byte("bad")})
			db.Write(outbox.Message{Topic: "orders", Key: key, Payload: []byte("good")})
		}
		options := judging(sink)
		main := options["main"]
		main.MaxAttempts, main.Backoff = -1, relay.Backoff{Min: decade, Max: decade}
		options["main"] = main
		_, stop := start(t, db.Store(), relay.Options{Sinks: options})
		time.Sleep(time.Minute)
		if n := db.Delete(func(row storage.Row) bool { return row.Message.Key == "gone" && string(row.Message.Payload) == "bad" }); n != 1 {
			t.Fatalf("%d messages wait for another attempt", n)
		}
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		arrived := map[string]int{}
		for _, m := range sink.received {
			if string(m.Payload) == "good" {
				arrived[m.Key]++
			}
		}
		if arrived["gone"] != 1 || arrived["stays"] != 0 {
			t.Errorf("the number of good messages by key is %v, want 1 for the key \"gone\" and 0 for the key \"stays\"", arrived)
		}
	})
}

// If the store can't list a lane's blocked keys, the relay asks about each key of the rows that it reads.
func TestFailingBlockedKeyQueryDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		write(db, "orders", "a", 1)
		_, stop := start(t, tellsNoKeys{db.Store()}, relay.Options{Sinks: to(sink)})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := sink.of("a"); len(got) != 1 {
			t.Errorf("delivered %v, want the one message", got)
		}
	})
}

// tellsNoKeys is a store whose BlockedKeys fails.
type tellsNoKeys struct{ storage.Store }

func (tellsNoKeys) BlockedKeys(context.Context, []int, int) ([]storage.BlockedKey, error) {
	time.Sleep(time.Second)
	return nil, errors.New("statement timeout")
}
