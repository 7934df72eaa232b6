package e2e

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// soak is set by make proof-soak.
var soak = flag.Duration("soak", 0, "the length of TestSoak, which is skipped by default")

const (
	soakRate  = 100 // committed orders a second
	soakParts = 60  // measurements
)

// For an hour, relays are killed, one relay's connections to the database are cut, and the endpoint is down for a few
// seconds now and then. For half of the time a snapshot is held open, so the database can't remove old versions of rows.
// Nothing is lost or reordered. The memory and the connections of the relay that is not killed stay the same, and so do the
// tables once the snapshot has ended.
func TestSoak(t *testing.T) {
	t.Parallel()
	if *soak == 0 {
		t.Skip("-soak isn't set: use make proof-soak")
	}
	s, e := newScene(t, "postgres15/pgx"), newEndpoint(t)
	at, err := url.Parse(s.URL)
	check(t, err)
	between := newProxy(t, "127.0.0.1:0", at.Host)
	at.Host = between.address()
	steady := s.start("/steady", "run", "--database", at.String(), "--sink", e.URL+"/steady", "--lease", "3s", "--workers", "2",
		"--batch", fmt.Sprint(killedBatch), "--retention", (*soak / 12).String())

	const orders = 5
	done, under := make(chan struct{}), sync.WaitGroup{}
	under.Go(func() {
		defer close(done)
		placeOrders(s, int(soak.Seconds())*soakRate/orders*2, orders, *soak) // half of them are rolled back
	})
	under.Go(func() {
		trouble{"cuts", time.Minute, func(int) { fault(t, proof.DatabaseCut, "/steady"); between.cut() }}.happen(done)
	})
	under.Go(func() {
		trouble{"outages", 2 * time.Minute, func(int) {
			fault(t, proof.SinkDown, "")
			e.answering(always(http.StatusServiceUnavailable))
			<-time.After(5 * time.Second)
			e.answering(nil)
		}}.happen(done)
	})
	var parts []soakPart
	under.Go(func() { parts = s.watch(steady, done) })
	kills := killEverySecond(s, func(path string) string { return e.URL + path }, 3*time.Second, killedBatch, done)
	under.Wait()
	s.settled()
	v := judge(t, e.received())
	if want := s.committed(); v.distinct != want {
		t.Errorf("%d distinct messages arrived of %d committed orders", v.distinct, want)
	}
	judgeDuplicates(t, v.duplicates, slices.Concat(kills, s.lostLeases()))
	judgeSoak(t, parts)
}

// soakPart has the measurements at the end of a part of the soak.
type soakPart struct {
	snapshot    bool // a snapshot was held open
	memory      int  // MiB of the steady relay
	connections int  // the number of connections of all relays and writers
	pending     int
	hot         int // KiB of all tables and indexes of the outbox except outbox_done
	lanes       int // KiB of outbox_lanes
	done        int // KiB of outbox_done
	query       time.Duration
}

// watch measures the relay and the tables at the end of each part, and holds a snapshot open from the end of the first
// quarter of the parts to the end of the third.
func (s *scene) watch(steady *process, done <-chan struct{}) (parts []soakPart) {
	var snapshot *sql.Tx
	defer func() {
		if snapshot != nil {
			_ = snapshot.Rollback()
		}
	}()
	for n := range soakParts {
		var err error
		switch n {
		case soakParts / 4:
			snapshot, err = s.DB.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
			if err == nil {
				_, err = snapshot.Exec("SELECT count(*) FROM outbox_lanes")
			}
		case soakParts * 3 / 4:
			err, snapshot = snapshot.Rollback(), nil
		}
		if err != nil {
			s.t.Errorf("the snapshot: %v", err)
			return parts
		}
		select {
		case <-done:
			return parts
		case <-time.After(*soak / soakParts):
		}
		p := soakPart{snapshot: snapshot != nil, memory: steady.resident(s.t)}
		p.connections = s.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
		p.hot = s.number("SELECT sum(pg_total_relation_size(oid))::bigint / 1024 FROM pg_class WHERE relkind = 'r' AND relname LIKE 'outbox%' AND relname <> 'outbox_done'")
		p.lanes = s.number("SELECT pg_total_relation_size('outbox_lanes') / 1024")
		p.done = s.number("SELECT pg_total_relation_size('outbox_done') / 1024")
		began := time.Now()
		p.pending = int(s.status().Counts[storage.StatePending])
		p.query = time.Since(began)
		parts = append(parts, p)
		s.t.Logf("part %d: %+v", n+1, p)
	}
	return parts
}

// judgeSoak compares the last sixth of the parts with the second sixth for the relay, and with the first parts after
// the snapshot for the tables.
func judgeSoak(t testing.TB, parts []soakPart) {
	t.Helper()
	const sixth = soakParts / 6
	if len(parts) < soakParts-1 {
		t.Fatalf("only %d of %d parts were measured", len(parts), soakParts)
	}
	middle := func(of []soakPart, figure func(soakPart) int) int {
		var all []int
		for _, p := range of {
			all = append(all, figure(p))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for name, c := range map[string]struct {
		before, slack int
		figure        func(soakPart) int
	}{
		"memory in MiB":                  {sixth, 10, func(p soakPart) int { return p.memory }},
		"connections":                    {sixth, 2, func(p soakPart) int { return p.connections }},
		"hot tables in KiB":              {soakParts * 3 / 4, 1024, func(p soakPart) int { return p.hot }},
		"the lanes' table in KiB":        {soakParts * 3 / 4, 128, func(p soakPart) int { return p.lanes }},
		"delivered rows' table in KiB":   {soakParts * 3 / 4, 4096, func(p soakPart) int { return p.done }},
		"messages that are not yet sent": {sixth, soakRate, func(p soakPart) int { return p.pending }},
	} {
		before, after := middle(parts[c.before:c.before+sixth/2], c.figure), middle(parts[len(parts)-sixth/2:], c.figure)
		t.Logf("%s: %d, and %d at the end", name, before, after)
		if after > before+before/10+c.slack {
			t.Errorf("%s: %d, and %d at the end", name, before, after)
		}
	}
}
