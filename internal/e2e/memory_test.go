package e2e

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var largeRows = flag.Int("large-rows", 300, "number of messages of nearly 1 MiB each; the proof has 1,500")

// mostMemory is the most memory that a relay with default settings may need, in MiB, whatever the
// size of its rows.
const mostMemory = 256

// A relay has read small rows. Then a transaction that was open for a long time commits many large
// rows. If the relay claims by lanes, the large rows appear below rows that it has read. If it claims
// by rows, it claims the large rows under a short lease. All large rows arrive, and the relay never
// has too many of them in memory.
func TestLargeRowsFitIntoMemory(t *testing.T) {
	t.Parallel()
	for _, target := range drawn("postgres15/pgx", "mariadb1011/gosql", "mysql/gosql") {
		for _, claim := range []string{"lanes", "rows"} {
			if !*long && (target == "mysql/gosql" && claim == "lanes" || target == "mariadb1011/gosql" && claim == "rows") {
				continue // here MySQL and MariaDB each run with one claim mode; with -long they run with both
			}
			t.Run(target+"/"+claim, func(t *testing.T) {
				t.Parallel()
				s, e := newScene(t, target), newEndpoint(t)
				p := s.relay("relay", e.URL+"/relay", "--claim", claim, "--lease", "2s")
				check(t, s.order(t.Context(), 0, 1, true))
				s.settled() // the relay has started
				tx, err := s.DB.BeginTx(t.Context(), nil)
				check(t, err)
				defer tx.Rollback()
				blanks := strings.Repeat(" ", 1<<20-50) // a payload may have at most 1 MiB
				for n := range *largeRows {
					payload := fmt.Sprintf(`{"customer":%d,"number":%d}`, n%50+1000, n+1) + blanks
					check(t, s.writer.Write(t.Context(), tx, outbox.Message{Topic: "orders", Key: fmt.Sprint("large-", n%50), Payload: []byte(payload)}))
				}
				const small = 1000 // enough for messages in all lanes
				by := -1
				check(t, s.orders(t.Context(), small, func() int { by++; return by % 200 }, 2, true))
				eventually(t, "the small messages are delivered", func() bool { return len(e.received()) > small })
				check(t, tx.Commit())
				began := time.Now()
				s.settled()
				peak := p.memory(t, "VmHWM:")
				t.Logf("%d messages of 1 MiB in %v, %d MiB resident at most", *largeRows, time.Since(began).Round(time.Second), peak)
				if v := tally(t, e.received()); v.distinct != 1+small+*largeRows || s.status().Counts[storage.StateDone] != int64(v.distinct) {
					t.Errorf("%d messages arrived, want %d", v.distinct, 1+small+*largeRows)
				}
				if peak > mostMemory {
					t.Errorf("the relay took %d MiB, want %d at most", peak, mostMemory)
				}
			})
		}
	}
}
