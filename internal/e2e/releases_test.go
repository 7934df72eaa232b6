package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// previous is set by make proof-releases, which builds the last commit that has the previous schema version.
var previous = flag.String("previous", "", "the path of the previous release's rowrelay command, for TestReleasesSideBySide")

// Relays of two successive releases share a table while it is upgraded, and while the new relays are replaced by previous
// ones again. They are killed all the time. Nothing is lost or reordered.
func TestReleasesSideBySide(t *testing.T) {
	t.Parallel()
	if *previous == "" {
		t.Skip("-previous isn't set: use make proof-releases")
	}
	for _, target := range []string{"postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"} {
		for _, claim := range []string{"lanes", "rows"} {
			t.Run(target+"/"+claim, func(t *testing.T) {
				t.Parallel()
				shareTable(previousScene(t, target), claim)
			})
		}
	}
}

// previousScene creates a scene whose tables the previous release has created.
func previousScene(t *testing.T, target string) *scene {
	t.Helper()
	targets := testdb.Targets()
	db := targets[slices.IndexFunc(targets, func(candidate testdb.Target) bool { return candidate.Name == target })].Open(t)
	runCommand(t, *previous, "migrate", "up", "--database", db.URL)
	_, err := db.DB.ExecContext(t.Context(), "CREATE TABLE orders (customer INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (customer, number))")
	check(t, err)
	d, err := dialect.ByName(db.Kind)
	check(t, err)
	writer, err := outbox.NewWriter(d, outbox.Options{})
	check(t, err)
	s := &scene{Database: db, t: t, writer: writer, topology: "two releases"}
	s.recorded()
	return s
}

// runCommand runs a command to its end.
func runCommand(t *testing.T, program string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(arguments[:2], " "), err, out)
	}
}

func shareTable(s *scene, claim string) {
	const lease = 3 * time.Second
	t, e := s.t, newEndpoint(s.t)
	e.answering(func(*http.Request) int { // some messages fail twice, so that a relay stores their retry
		if rand.IntN(10) == 0 {
			return http.StatusInternalServerError
		}
		return http.StatusOK
	})

	// A relay of this release doesn't use the previous tables.
	early := s.relay("early", e.URL+"/early", "--claim", claim)
	eventually(t, "the new relay asks for the upgrade", func() bool { return strings.Contains(early.log.String(), "rowrelay migrate up") })
	early.kill()

	// In the phases before and after the upgrade, only relays of the previous release are started, and during it relays of either.
	const before, during, after = 0, 1, 2
	var phase atomic.Int32
	var started [2]atomic.Int32 // how many relays of each release were started
	l := load{transactions: lasting(2_000, 50_000), orders: 1, over: lasting(12*time.Second, 3*time.Minute)}
	if *messages > 0 {
		l.transactions, l.orders = theLoad().transactions, theLoad().orders
	}
	all := l.transactions / 2 * l.orders
	done := make(chan struct{})
	go func() { placeOrders(s, l.transactions, l.orders, l.over); close(done) }()
	upgraded := make(chan struct{})
	go func() {
		defer close(upgraded)
		eventually(t, "a quarter of the orders is written", func() bool { return s.committed() >= all/4 })
		runCommand(t, binary, "migrate", "up", "--database", s.URL)
		phase.Store(during)
		eventually(t, "three quarters of the orders are written", func() bool { return s.committed() >= all/4*3 })
		phase.Store(after)
	}()
	kills := killInTurns(s, lease, done, func(path string) *process {
		program, release := *previous, 0
		if phase.Load() == during && started[1].Load() <= started[0].Load() {
			program, release = binary, 1
		}
		if phase.Load() != before {
			started[release].Add(1)
		}
		return s.startAs(program, path, "run", "--database", s.URL, "--sink", e.URL+path, "--claim", claim, "--lease", lease.String(), "--batch", fmt.Sprint(killedBatch), "--workers", "2")
	})
	<-upgraded
	s.relay("/last", e.URL+"/last", "--claim", claim, "--lease", lease.String()) // on a slow machine, it is the only one of this release
	d, err := dialect.ByName(s.Kind)
	check(t, err)
	s.store, err = sqlstore.Open(t.Context(), s.DB, d, sqlstore.Options{})
	check(t, err)
	s.settled()
	t.Logf("%d relays were killed; after the upgrade of the tables, %d of the previous release were started and %d of this one", len(kills), started[0].Load(), started[1].Load())

	judged := judge
	if claim == "rows" {
		judged = tally
	}
	v := judged(t, e.received())
	if want := s.committed(); want == 0 || v.distinct != want {
		t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
	}
	judgeDuplicates(t, v.duplicates, slices.Concat(kills, s.lostLeases()))
	if parked := s.status().Counts[storage.StateError]; parked > 0 {
		t.Errorf("%d messages were parked", parked)
	}

	// The way back: the tables of the previous release, with its relays.
	for _, p := range s.processes {
		p.kill()
	}
	eventually(t, "the migrations are reverted", func() bool { // until the killed relays count as dead
		return exec.Command(binary, "migrate", "down", "--database", s.URL).Run() == nil
	})
	s.startAs(*previous, "back", "run", "--database", s.URL, "--sink", e.URL+"/back", "--claim", claim)
	check(t, s.order(t.Context(), 1, 1_000_000, true))
	eventually(t, "the previous release delivers from its own tables", func() bool {
		return slices.ContainsFunc(e.received(), func(a arrival) bool { return a.number == 1_000_000 })
	})
}
