package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Acquire implements [backend.Lanes].
func (m *MySQL) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) (grants []relay.Grant, xid uint64, err error) {
	free := "free lanes"
	if !m.skips {
		free = "free lanes in turn"
	}
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		grants, xid, err = backend.Grants(ctx, tx, m.sql.Fill(free, []string{":limit", number(count)}))
		if err != nil || len(grants) == 0 {
			return err
		}
		lanes := backend.NumberList(backend.Column(grants, grantedLane))
		if !m.skips {
			if _, err := backend.Exec(ctx, tx, m.sql.Fill("wait for settles", []string{":lanes", lanes})); err != nil {
				return err
			}
		}
		_, err := backend.Exec(ctx, tx, m.sql.Fill("acquire", []string{":ttl", microseconds(ttl), ":lanes", lanes}, relay))
		return err
	})
	return grants, xid, err
}

func grantedLane(g *relay.Grant) int { return g.Lane }
func leasedLane(l *relay.Lease) int  { return l.Lane }

// Renew implements [backend.Lanes].
func (m *MySQL) Renew(ctx context.Context, relay, epoch string, leases []backend.Lease, ttl time.Duration) ([]relay.Lease, uint64, error) {
	return m.change(ctx, relay, leases, func(set *text) {
		set.add("`until` = utc_timestamp(6) + INTERVAL " + microseconds(ttl) + " MICROSECOND, marks = ")
		m.marks(set, epoch, leases)
		var calm []int
		for _, l := range leases {
			if l.Calm {
				calm = append(calm, l.Lane)
			}
		}
		if len(calm) > 0 {
			in := "CASE WHEN lane IN " + backend.NumberList(calm)
			set.add(", crashes = " + in + " THEN 0 ELSE crashes END, journal = " + in + " THEN NULL ELSE journal END")
		}
	})
}

// Release implements [backend.Lanes].
func (m *MySQL) Release(ctx context.Context, relay, epoch string, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	return m.change(ctx, relay, leases, func(set *text) {
		set.add("owner = NULL, `until` = NULL, journal = NULL, crashes = 0, marks = ")
		m.marks(set, epoch, leases)
	})
}

// WriteJournal implements [backend.Lanes].
func (m *MySQL) WriteJournal(ctx context.Context, relay string, leases []backend.Lease) ([]relay.Lease, uint64, error) {
	return m.change(ctx, relay, leases, func(set *text) {
		set.add("journal = ")
		byLane(set, leases, "journal", func(l backend.Lease) string { return l.Journal })
	})
}

// change locks the lanes whose leases hold, and changes them.
func (m *MySQL) change(ctx context.Context, relay string, leases []backend.Lease, set func(*text)) (held []relay.Lease, xid uint64, err error) {
	lanes, pairs := leaseLists(backend.Column(leases, leaseOf))
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		held, xid, err = backend.Leases(ctx, tx, m.sql.Fill("leases that hold", []string{":lanes", lanes, ":leases", pairs}, relay))
		if err != nil || len(held) == 0 {
			return err
		}
		update := (&text{}).add("UPDATE " + m.table.Lanes() + " FORCE INDEX (PRIMARY) SET ")
		set(update)
		_, err := backend.Exec(ctx, tx, update.add(" WHERE lane IN "+backend.NumberList(backend.Column(held, leasedLane))).query())
		return err
	})
	return held, xid, err
}

func leaseOf(l *backend.Lease) relay.Lease { return l.Lease }

// leaseLists are the lanes, and the pairs of lanes and fences.
func leaseLists(leases []relay.Lease) (lanes, pairs string) {
	for i, l := range leases {
		if i > 0 {
			pairs += ","
		}
		pairs += "(" + number(l.Lane) + "," + number(l.Fence) + ")"
	}
	return backend.NumberList(backend.Column(leases, leasedLane)), pairs
}

// marks are the ones given, if they were made in this epoch.
func (m *MySQL) marks(set *text, epoch string, leases []backend.Lease) {
	if epoch != "" {
		set.add("CASE WHEN "+m.sql.Text("server")+" <> ? THEN marks ELSE ", epoch)
		defer set.add(" END")
	}
	byLane(set, leases, "marks", func(l backend.Lease) string { return l.Marks })
}

// byLane chooses a value by the lane.
func byLane(set *text, leases []backend.Lease, otherwise string, value func(backend.Lease) string) {
	set.add("CASE lane")
	for _, l := range leases {
		set.add(" WHEN "+number(l.Lane)+" THEN ?", value(l))
	}
	set.add(" ELSE " + otherwise + " END")
}

// Journals implements [backend.Lanes].
func (m *MySQL) Journals(ctx context.Context) ([]relay.Journal, error) {
	return backend.Journals(ctx, m.db, m.sql.Query("journals"))
}

// Marks implements [backend.Lanes].
func (m *MySQL) Marks(ctx context.Context) (map[int]relay.Marks, error) {
	return backend.Marks(ctx, m.db, m.sql.Query("marks"))
}
