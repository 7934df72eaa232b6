package httpsink_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// unmistakable are the statuses that always mean that the endpoint is unavailable, never that it
// refuses a message.
var unmistakable = []int{401, 403, 404, 407, 429, 502, 503, 504, 511}

// Only one key is active, so no other message shows whether the endpoint works. Whatever the endpoint answers, an outage
// charges no attempt and parks nothing before JudgeAloneAfter. If the answer is one of unmistakable, or JudgeAloneAfter
// is NeverJudgeAlone, the same holds for an outage of any length. Soon after the outage all messages are delivered in
// order.
func TestOneKeyThroughAnOutage(t *testing.T) {
	t.Parallel()
	for n, i := range rand.Perm(len(troubles))[:min(*lasting, len(troubles))] {
		status := troubles[i]
		type outage struct {
			length time.Duration
			judge  time.Duration
		}
		outages := []outage{{time.Minute, 0}, {29 * time.Minute, 0}}
		all := *lasting >= len(troubles)
		long := 3 * time.Hour
		if all { // a day takes minutes
			long = 24 * time.Hour
		}
		switch {
		case n >= 2 && !all:
		case slices.Contains(unmistakable, status):
			outages = append(outages, outage{long, 0})
		default:
			outages = append(outages, outage{long, relay.NeverJudgeAlone})
		}
		for _, o := range outages {
			t.Run(fmt.Sprint(status, " for ", o.length), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					testOneKeyThroughAnOutage(t, status, o.length, relay.SinkOptions{JudgeAloneAfter: o.judge})
				})
			})
		}
	}
}

func testOneKeyThroughAnOutage(t *testing.T, status int, length time.Duration, options relay.SinkOptions) {
	db, endpoint, listener := memstore.New(), newSwitchable(-1), make(pipes)
	server := &http.Server{Handler: endpoint}
	go server.Serve(listener)
	options.Sink = newSink(t, httpsink.Options{URL: "http://endpoint/", Timeout: 5 * time.Second}).Over(listener.dial)
	stop := relaying(t, db.Store(), options)
	written := 0
	write := func() {
		db.Write(outbox.Message{Topic: "orders", Key: "the key"})
		written++
	}
	for range 5 {
		write()
		time.Sleep(10 * time.Second)
	}
	endpoint.status.Store(int64(status))
	for began := time.Now(); time.Since(began) < length-time.Second; time.Sleep((length - time.Second) / 20) {
		write()
	}
	if counts := stateCounts(t, db.Store()); counts[storage.StateError] > 0 {
		t.Errorf("during the outage %v", counts)
	}
	endpoint.status.Store(-1)
	close(endpoint.release)
	time.Sleep(30 * time.Second) // the longest wait is 15 s, and the longest poll 5 s
	stop()
	close(listener)
	server.Close()
	// Delivered messages may be purged after a day, and a request that hung arrives without being recorded.
	if counts := stateCounts(t, db.Store()); len(endpoint.arrived) != written && counts[storage.StateDone] != int64(written) || counts[storage.StatePending]+counts[storage.StateRetry]+counts[storage.StateError] > 0 {
		t.Errorf("30 s after the outage %d of %d have arrived, and %v are left", len(endpoint.arrived), written, counts)
	}
	for id, attempt := range endpoint.attempts {
		if attempt != "1" {
			t.Errorf("message %s arrived with attempt %s", id, attempt)
		}
	}
}

// Other messages are delivered in between, so a message is parked when the endpoint refuses it for the second time.
func TestRepeatedRefusalAmongDeliveriesParks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, endpoint, listener, refused := memstore.New(), newSwitchable(-1), make(pipes), 0
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Rowrelay-Topic") == "bad" {
				refused++
			}
			endpoint.ServeHTTP(w, r)
		})}
		go server.Serve(listener)
		stop := relaying(t, db.Store(), relay.SinkOptions{
			Sink:           newSink(t, httpsink.Options{URL: "http://endpoint/"}).Over(listener.dial),
			BreakerBackoff: relay.Backoff{Min: 1e6 * time.Hour, Max: 1e6 * time.Hour}, // it must not be tried again before a delivery
		})
		for i := range 100 {
			if i == 50 {
				db.Write(outbox.Message{Topic: "bad", Key: "bad"})
			}
			db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("k", i%5)})
			time.Sleep(time.Second)
		}
		stop()
		close(listener)
		server.Close()
		if counts := stateCounts(t, db.Store()); counts[storage.StateError] != 1 || counts[storage.StateDone] != 100 || refused != 2 {
			t.Errorf("%v after %d refusals, want one parked after 2", counts, refused)
		}
	})
}
