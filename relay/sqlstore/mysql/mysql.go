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
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
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
	m.named = []any{table.Name()}
	if table.Schema() != "" {
		words["named"] = "table_schema = ? AND table_name = ?"
		m.named = []any{table.Schema(), table.Name()}
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
	words["if by rows"] = "(SELECT value FROM " + m.table.Settings() + " WHERE name = 'claim'" + words["share"] + ") = 'rows' AND "
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
	traits := backend.Traits{Tx: readCommitted, Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkByLane}
	if m.server == mariaDB {
		traits.Walk = backend.WalkByID
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

// text is a statement in the making. Numbers are part of its text; texts are arguments.
type text struct {
	sql  strings.Builder
	args []any
}

// add appends parts of the statement, with an argument for each question mark.
func (t *text) add(sql string, args ...any) *text {
	t.sql.WriteString(sql)
	t.args = append(t.args, args...)
	return t
}

func (t *text) query() backend.Query { return backend.Query{SQL: t.sql.String(), Args: t.args} }

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

// ClaimMode implements [backend.Members].
func (m *MySQL) ClaimMode(ctx context.Context) (mode relay.Claim, err error) {
	err = backend.One(ctx, m.db, m.sql.Query("claim mode"), &mode)
	return mode, err
}

// SetClaimMode implements [backend.Members].
func (m *MySQL) SetClaimMode(ctx context.Context, claim relay.Claim) error {
	return m.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, m.dialect, m.table, claim, backend.ModeChange{
			Lock:   m.sql.Query("lock claim mode"),
			Others: m.sql.Query("relays that claim another way", string(claim)),
			Set:    m.sql.Query("set claim mode", string(claim), string(claim)),
			Forget: []backend.Query{m.sql.Query("lock lanes"), m.sql.Query("forget leases"), m.sql.Query("forget claims")},
		})
	})
}

// Heartbeat implements [backend.Members].
func (m *MySQL) Heartbeat(ctx context.Context, self relay.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
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
	if err != nil || !beat.Stored {
		return beat, err
	}
	err = backend.All(ctx, m.db, m.sql.Query("members"), func() { beat.Alive = append(beat.Alive, name) }, &name)
	return beat, err
}

// Deregister implements [backend.Members].
func (m *MySQL) Deregister(ctx context.Context, name string) error {
	_, err := backend.ExecTx(ctx, m.db, readCommitted, m.sql.Query("deregister", name))
	return err
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
