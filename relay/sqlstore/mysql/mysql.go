// Package mysql is the [backend.Backend] of MySQL 8.0.13 and later, MariaDB 10.5 and
// later, and, by rows only, TiDB 7.5 and later. Its statements stand in mysql.sql; those
// that depend on what is asked for are built in the other files.
package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed mysql.sql
var file string

// MySQL is a table in MySQL, MariaDB or TiDB.
type MySQL struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	server  string // the dialect's name
	skips   bool   // a locking select can pass over rows that others have locked
	named   []any  // the arguments of {named}
	sql     backend.Statements
}

var _ backend.TransactionLister = (*MySQL)(nil)

// The servers, by their dialects' names.
const (
	mysql8  = "mysql"
	mariaDB = "mariadb"
	tiDB    = "tidb"
)

// New returns the backend. The dialect is the one that fits the server.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *MySQL {
	m := &MySQL{db: db, dialect: d, table: table.Backquoted(), server: d.Name(), skips: dialect.SkipsLocked(d)}
	words := map[string]string{
		"skip": "", "skip t": "", "lock t": " FOR UPDATE", "share": " LOCK IN SHARE MODE",
		"server": "CONCAT(@@hostname, ':', @@port, '/', @@server_uuid)",
		"named":  "table_schema = database() AND table_name = ?",
	}
	m.named = []any{table.Name}
	if table.Schema != "" {
		words["named"] = "table_schema = ? AND table_name = ?"
		m.named = []any{table.Schema, table.Name}
	}
	if m.skips {
		words["skip"], words["skip t"] = " FOR UPDATE SKIP LOCKED", " FOR UPDATE SKIP LOCKED"
	}
	switch m.server {
	case mysql8:
		words["lock t"] = " FOR UPDATE OF t"
		if m.skips {
			words["skip t"] = " FOR UPDATE OF t SKIP LOCKED"
		}
	case mariaDB: // has no number for all times
		words["server"] = "CONCAT(@@hostname, ':', @@port, '/', @@server_id)"
	case tiDB: // has no lock that can be shared
		words["share"] = " FOR UPDATE"
	}
	words["if by rows"] = "(SELECT value FROM " + m.table.Settings + " WHERE name = 'claim'" + words["share"] + ") = 'rows' AND "
	if m.server == tiDB {
		words["if by rows"] = ""
	}
	m.sql = backend.ParseStatements(file, m.table, words)
	m.sql["lock t"], m.sql["skip"], m.sql["if by rows"], m.sql["server"] = words["lock t"], words["skip"], words["if by rows"], words["server"]
	return m
}

var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// Traits implements [backend.Backend]. MariaDB doesn't tell InnoDB where a range ends:
// who reads a lane to its end passes over the deleted rows of all lanes behind it, as
// long as some old snapshot keeps them, up to the next row that is there.
func (m *MySQL) Traits() backend.Traits {
	traits := backend.Traits{
		Tx: readCommitted, Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkByLane,
		Queries: backend.Queries{
			ClaimMode: m.sql.Query("claim mode"), Members: m.sql.Query("members"), Deregister: m.sql.Query("deregister"), PurgeRelays: m.sql.Query("purge relays"),
			Journals: m.sql.Query("journals"), Marks: m.sql.Query("marks"), LastID: m.sql.Query("last id", m.named...),
			FreeRow: m.sql.Query("a free row"), ExpiredRow: m.sql.Query("an expired row"),
			Status: backend.StatusQueries{
				Mode: m.sql.Query("claim mode"), Counts: m.sql.Fill("counts", []string{":limit", number(backend.CountedDone)}), Oldest: m.sql.Query("oldest"),
				Topics: m.sql.Fill("topics", []string{":limit", number(backend.SampledTopics)}), Relays: m.sql.Query("list relays"), Leased: m.sql.Query("lanes leased"),
			},
		},
	}
	switch m.server {
	case mariaDB:
		traits.Walk = backend.WalkByID
	case tiDB: // nobody needs it, who reads no lanes
		traits.Queries.LastID = backend.Query{SQL: "SELECT 0"}
	}
	return traits
}

func (m *MySQL) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, m.db, readCommitted, work)
}

// inTurn works in a transaction that has its turn, where rows can't be passed over.
func (m *MySQL) inTurn(ctx context.Context, work func(*sql.Tx) error) error {
	return m.inTx(ctx, func(tx *sql.Tx) error {
		if !m.skips {
			if _, err := backend.Exec(ctx, tx, m.sql.Query("turn")); err != nil {
				return err
			}
		}
		return work(tx)
	})
}

// text is a statement, or a part of one. Numbers are part of its text; texts are arguments.
type text struct {
	sql  string
	args []any
}

// join puts texts, and strings, one after the other.
func join(parts ...any) (t text) {
	var sql strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case text:
			sql.WriteString(part.sql)
			t.args = append(t.args, part.args...)
		case string:
			sql.WriteString(part)
		}
	}
	t.sql = sql.String()
	return t
}

func arg(value any) text { return text{"?", []any{value}} }

func (t text) query() backend.Query { return backend.Query{SQL: t.sql, Args: t.args} }

func query(sql string, args ...any) backend.Query { return backend.Query{SQL: sql, Args: args} }

func number[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func microseconds(by time.Duration) string { return number(by.Microseconds()) }

// arguments is a list for IN of so many arguments.
func arguments(count int) string {
	if count == 0 {
		return "(NULL)"
	}
	return "(?" + strings.Repeat(",?", count-1) + ")"
}

func texts(values []string) []any {
	return backend.Column(values, func(value *string) any { return *value })
}

// timestamp takes the zero time, too: it is before all others.
func timestamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05.000000") }

// SetClaimMode implements [backend.Backend].
func (m *MySQL) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return m.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, m.sql, m.dialect, m.table, claim, m.sql.Query("set claim mode", string(claim), string(claim)))
	})
}

// Heartbeat implements [backend.Backend].
func (m *MySQL) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	claim := string(self.Claim)
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		_, err := backend.Exec(ctx, tx, m.sql.Query("share claim mode"), m.sql.Fill("heartbeat", []string{":ttl", microseconds(ttl)},
			self.Name, self.Host, self.Version, claim, claim, self.Host, self.Version, claim))
		if err != nil {
			return err
		}
		stored := m.sql.Query("heartbeat was stored", self.Name, claim)
		return backend.All(ctx, tx, stored, func() { beat.Stored = true }, &name, &beat.XID, &beat.Epoch)
	})
	return beat, err
}

// Acquire implements [backend.Backend].
func (m *MySQL) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) (grants []storage.Grant, xid uint64, err error) {
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

func grantedLane(g *storage.Grant) int { return g.Lane }
func leasedLane(l *storage.Lease) int  { return l.Lane }

// ChangeLeases implements [backend.Backend]. It locks the lanes whose leases hold, and
// changes them.
func (m *MySQL) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) (held []storage.Lease, xid uint64, err error) {
	lanes, pairs := leaseLists(backend.Column(leases, func(l *backend.Lease) storage.Lease { return l.Lease }))
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		held, xid, err = backend.Leases(ctx, tx, m.sql.Fill("leases that hold", []string{":lanes", lanes, ":leases", pairs}, change.Relay))
		if err != nil || len(held) == 0 {
			return err
		}
		var set text
		switch change.Kind {
		case backend.Renew:
			set = join("`until` = utc_timestamp(6) + INTERVAL "+microseconds(change.TTL)+" MICROSECOND, marks = ", m.marks(change.Epoch, leases))
			var calm []int
			for _, l := range leases {
				if l.Calm {
					calm = append(calm, l.Lane)
				}
			}
			if len(calm) > 0 {
				in := "CASE WHEN lane IN " + backend.NumberList(calm)
				set.sql += ", crashes = " + in + " THEN 0 ELSE crashes END, journal = " + in + " THEN NULL ELSE journal END"
			}
		case backend.Release:
			set = join("owner = NULL, `until` = NULL, journal = NULL, crashes = 0, marks = ", m.marks(change.Epoch, leases))
		case backend.WriteJournal:
			set = join("journal = ", byLane(leases, "journal", func(l backend.Lease) string { return l.Journal }))
		}
		_, err := backend.Exec(ctx, tx, join("UPDATE "+m.table.Lanes+" FORCE INDEX (PRIMARY) SET ", set,
			" WHERE lane IN "+backend.NumberList(backend.Column(held, leasedLane))).query())
		return err
	})
	return held, xid, err
}

// leaseLists are the lanes, and the pairs of lanes and fences.
func leaseLists(leases []storage.Lease) (lanes, pairs string) {
	for i, l := range leases {
		if i > 0 {
			pairs += ","
		}
		pairs += "(" + number(l.Lane) + "," + number(l.Fence) + ")"
	}
	return backend.NumberList(backend.Column(leases, leasedLane)), pairs
}

// marks are the ones given, if they were made in this epoch.
func (m *MySQL) marks(epoch string, leases []backend.Lease) text {
	marks := byLane(leases, "marks", func(l backend.Lease) string { return l.Marks })
	if epoch == "" {
		return marks
	}
	return join("CASE WHEN "+m.sql.Text("server")+" <> ", arg(epoch), " THEN marks ELSE ", marks, " END")
}

// byLane chooses a value by the lane.
func byLane(leases []backend.Lease, otherwise string, value func(backend.Lease) string) text {
	parts := []any{"CASE lane"}
	for _, l := range leases {
		parts = append(parts, " WHEN "+number(l.Lane)+" THEN ", arg(value(l)))
	}
	return join(append(parts, " ELSE "+otherwise+" END")...)
}

// Grant implements [backend.TransactionLister].
func (m *MySQL) Grant() string { return "PROCESS ON *.*" }

// ListOpen implements [backend.TransactionLister].
func (m *MySQL) ListOpen(ctx context.Context, token string) (list backend.OpenList, err error) {
	err = m.inTx(ctx, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, m.sql.Query("take a number")); err != nil {
			return err
		}
		list, err = backend.ReadOpenList(ctx, tx, m.sql.Fill("open transactions", []string{":token", token}))
		return err
	})
	return list, err
}
