package relay_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
)

// While a sink is unavailable for a long time, a changed detail is logged at most every ten seconds, and an unchanged one about
// every ten minutes.
func TestLogReportsTheProgressOfAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		detail      string
		lasts       time.Duration
		least, most int
	}{
		"it changes":            {"at offset N", 2 * time.Minute, 5, 12},
		"it doesn't":            {"connection refused", 2 * time.Minute, 0, 0},
		"only the port changes": {"read tcp 127.0.0.1:N->10.0.0.1:9092: connection reset by peer", 2 * time.Minute, 0, 0},
		"it doesn't for longer": {"connection refused", time.Hour, 5, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, sends, log := memstore.New(), 0, &bytes.Buffer{}
				ended := time.Now().Add(c.lasts)
				sink := &recorder{answer: func(sinks.Message) sinks.Outcome {
					if sends++; time.Now().Before(ended) {
						return sinks.Fail(sinks.Unavailable, sinks.ReasonBusy, strings.ReplaceAll(c.detail, "N", fmt.Sprint(sends)))
					}
					return sinks.Ok("")
				}}
				write(db, "orders", "k", 1)
				_, stop := start(t, db.Store(), relay.Options{Sinks: to(sink), Logger: slog.New(slog.NewTextHandler(log, nil))})
				time.Sleep(c.lasts + time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				text := log.String()
				still := strings.Count(text, "is still unavailable")
				if still < c.least || still > c.most {
					t.Errorf("%d lines report that the sink is still unavailable:\n%s", still, text)
				}
				if strings.Count(text, "sink is unavailable;") != 1 || strings.Count(text, "available again") != 1 {
					t.Errorf("the log doesn't have one line about the beginning and one about the end:\n%s", text)
				}
			})
		})
	}
}
