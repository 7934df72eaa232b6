package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// threeSinks sends every message to three endpoints. The paths identify the relay.
const threeSinks = `
sources:
  main: {database: %s, lease: 3s}
sinks:
  steady: {type: http, url: "%s", batch: 20, workers: 2, breaker_backoff: {max: 1s}, backoff: {min: 100ms, max: 1s}}
  shaky: {type: http, url: "%s", batch: 20, workers: 2, breaker_backoff: {max: 1s}, backoff: {min: 100ms, max: 1s}}
  down: {type: http, url: "%s", batch: 20, workers: 2, breaker_backoff: {max: 1s}, backoff: {min: 100ms, max: 1s}}
routes:
  - {topic: "*", sinks: [steady, shaky, down]}
`

// One of three relays is killed every second. Every message goes to three endpoints. One endpoint
// works, one sometimes fails, and one is down half of the time. Each endpoint receives all
// committed orders in order, and duplicates follow from kills.
func TestKilledRelaysOfSeveralSinksLoseNothing(t *testing.T) {
	t.Parallel()
	for _, target := range drawn("postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc") {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			const lease = 3 * time.Second
			s := newScene(t, target)
			steady, shaky, down := newEndpoint(t), newEndpoint(t), newEndpoint(t)
			shaky.answering(func(*http.Request) int {
				switch rand.IntN(50) {
				case 0:
					return http.StatusInternalServerError
				case 1:
					return http.StatusServiceUnavailable
				default:
					return http.StatusOK
				}
			})
			folder := t.TempDir()
			start := func(path string) *process {
				file := filepath.Join(folder, strings.TrimPrefix(path, "/")+".yaml")
				check(t, os.WriteFile(file, fmt.Appendf(nil, threeSinks, s.URL, steady.URL+path, shaky.URL+path, down.URL+path), 0o600))
				return s.start(path, "run", "--config", file)
			}
			length, transactions := lasting(10*time.Second, time.Minute), s.manyTransactions()
			done := make(chan struct{})
			go func() { placeOrders(s, transactions, 1, length); close(done) }()
			time.AfterFunc(length/4, func() { down.answering(always(http.StatusServiceUnavailable)) })
			time.AfterFunc(length*3/4, func() { down.answering(nil) })
			kills := killInTurns(s, lease, done, start)
			s.settled()
			want := s.committed()
			if want != transactions/2 {
				t.Errorf("%d orders were committed, want %d", want, transactions/2)
			}
			for name, e := range map[string]*endpoint{"steady": steady, "shaky": shaky, "down": down} {
				v := judge(t, e.received())
				t.Logf("%s: %d refused", name, e.refused)
				if v.distinct != want {
					t.Errorf("%d distinct messages arrived at the endpoint that is %s, of %d", v.distinct, name, want)
				}
				judgeDuplicates(t, v.duplicates, slices.Concat(kills, s.lostLeases()))
			}
			judgeTakeovers(t, kills, lease)
			if parked := s.status().Counts[storage.StateError]; parked > 0 {
				t.Errorf("%d messages were parked", parked)
			}
			if shaky.refused == 0 || down.refused == 0 {
				t.Error("no endpoint was in trouble: the scene shows nothing")
			}
		})
	}
}
