package relay_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

type attempts struct {
	relay.NoObserver
	mu   sync.Mutex
	told []string
}

func (a *attempts) Attempted(attempt relay.Attempt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, fmt.Sprintf("%s %d %s: %s %s: %s", attempt.Sink, attempt.ID, attempt.MessageID[:3], attempt.Reason, attempt.Detail, attempt.Became))
}

// An AttemptObserver gets each failed attempt, and what happened to the message after it.
func TestObserverGetsFailedAttempts(t *testing.T) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, told := memstore.New(), &attempts{}
				left := 2
				sink := &recorder{answer: func(m sinks.Message) sinks.Outcome {
					if left--; left >= 0 {
						return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "later")
					}
					return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no")
				}}
				write(db, "orders", "", 1)
				_, stop := start(t, db.Store(), relay.Options{Claim: claim, Observer: told, Sinks: map[string]relay.SinkOptions{"main": {Sink: sink, JudgeAloneAfter: relay.JudgeAtOnce}}})
				time.Sleep(time.Hour)
				if err := stop(); err != nil {
					t.Error(err)
				}
				want := []string{"server_error later: is tried again", "server_error later: is tried again", "invalid no: is parked"}
				if len(told.told) != len(want) || !slices.EqualFunc(told.told, want, func(got, want string) bool { return len(got) > len(want) && got[len(got)-len(want):] == want }) {
					t.Errorf("observed %q, want %q", told.told, want)
				}
			})
		})
	}
}
