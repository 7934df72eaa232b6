// Package oracle is the [backend.Backend] of Oracle Database 12.2 and later. Its statements
// stand in oracle.sql; those that depend on what is asked for are built in the other files. Its
// tests compare the statements with testdata; none of them has a server.
// outbox/dialect/ORACLE.md has what it runs and why.
package oracle

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

//go:embed oracle.sql
var file string

// Oracle is a table in Oracle.
type Oracle struct {
	db      *sql.DB
	dialect dialect.Dialect
	table   dialect.Table
	sql     backend.Statements
}

var _ backend.TransactionLister = (*Oracle)(nil)

// New returns the backend.
func New(db *sql.DB, d dialect.Dialect, table dialect.Table) *Oracle {
	return &Oracle{db, d, table, backend.ParseStatements(file, table, map[string]string{
		"locks": table.Index("locks"), "index claim_until": table.IndexName("claim_until"),
		"owner": dialect.OracleOwner(table), "trigger": dialect.OracleName(table.Name + "_begin"),
	})}
}

// Traits implements [backend.Backend]. No level of isolation is asked for, as go-ora
// refuses any: it is the session's own, READ COMMITTED, unless somebody has set another
// one, at which the statements are right, too, and are busy more often.
func (d *Oracle) Traits() backend.Traits {
	return backend.Traits{
		Claims: 1, Frontier: backend.OpenTransactions, Walk: backend.WalkPositions,
		Queries: backend.Queries{
			ClaimMode: d.sql.Query("claim mode"), Members: d.sql.Query("members"), Deregister: d.sql.Query("deregister"), PurgeRelays: d.sql.Query("purge relays"),
			Journals: d.sql.Query("journals"), Marks: d.sql.Query("marks"), LastID: d.sql.Query("last id"),
			Status: backend.StatusQueries{
				Mode: d.sql.Query("claim mode"), Counts: d.sql.Query("counts", int64(backend.CountedDone), int64(backend.CountedDone)), Oldest: d.sql.Query("oldest"),
				Topics: d.sql.Query("topics", int64(backend.SampledTopics)), Relays: d.sql.Query("list relays"), Leased: d.sql.Query("lanes leased"),
			},
		},
	}
}

// args are those of a statement that is built.
type args struct{ bind.Oracle }

func (a *args) query(lines ...string) backend.Query {
	return backend.Query{SQL: strings.Join(lines, "\n"), Args: a.Args}
}

// given is a list of rows g with these columns.
func given[T any](a *args, items []T, columns string) string {
	return bind.OracleGiven(&a.Oracle, "g", items, columns)
}

// list is one of numbers for IN.
func list[T int | int64](a *args, values []T) string {
	return "(SELECT j.id FROM " + bind.OracleGiven(&a.Oracle, "j", values, "id NUMBER PATH '$'") + ")"
}

// texts is one of texts, as their bytes.
func (a *args) texts(values []string) string {
	return "(SELECT " + bytes("j.text") + " FROM " + bind.OracleGiven(&a.Oracle, "j", values, "text VARCHAR2(255) PATH '$'") + ")"
}

// bytes is a text as its bytes, whatever the session compares by.
func bytes(text string) string { return "NLSSORT(" + text + ", 'NLS_SORT=BINARY')" }

func same(a, b string) string { return bytes(a) + " = " + bytes(b) }

const now = "SYS_EXTRACT_UTC(SYSTIMESTAMP)"

// in is a time from now, in microseconds.
func (a *args) in(by time.Duration) string {
	return now + " + NUMTODSINTERVAL(" + a.Add(by.Microseconds()) + " / 1000000, 'SECOND')"
}

func (a *args) timestamp(at time.Time) string {
	return "TO_TIMESTAMP(" + a.Add(at.UTC().Format("2006-01-02 15:04:05.000000")) + ", 'YYYY-MM-DD HH24:MI:SS.FF6')"
}

// inTx lets one at a time change several things.
func (d *Oracle) inTx(ctx context.Context, work func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, nil, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, d.sql.Query("begin changing")); err != nil {
			return err
		}
		return work(tx)
	})
}

// answer carries out a change whose answer is selected afterwards, in the same transaction.
func (d *Oracle) answer(ctx context.Context, change []backend.Query, read func(*sql.Tx) error) error {
	return backend.InTx(ctx, d.db, nil, func(tx *sql.Tx) error {
		if _, err := backend.Exec(ctx, tx, change...); err != nil {
			return err
		}
		return read(tx)
	})
}

// SetClaimMode implements [backend.Backend].
func (d *Oracle) SetClaimMode(ctx context.Context, claim storage.Claim) error {
	return d.inTx(ctx, func(tx *sql.Tx) error {
		return backend.ChangeMode(ctx, tx, d.sql, d.dialect, d.table, claim, d.sql.Query("set claim mode", string(claim)))
	})
}

// Heartbeat implements [backend.Backend].
func (d *Oracle) Heartbeat(ctx context.Context, self storage.Identity, ttl time.Duration) (beat backend.Heartbeat, err error) {
	var name string
	var epoch sql.NullString
	claim := string(self.Claim)
	err = d.answer(ctx, []backend.Query{
		d.sql.Query("share claim mode"),
		d.sql.Query("heartbeat", self.Name, self.Host, self.Version, claim, ttl.Microseconds(), claim),
	}, func(tx *sql.Tx) error {
		return backend.All(ctx, tx, d.sql.Query("heartbeat was stored", self.Name, claim), func() { beat.Stored = true }, &name, &beat.XID, &epoch)
	})
	beat.Epoch = epoch.String
	return beat, err
}

// Acquire implements [backend.Backend].
func (d *Oracle) Acquire(ctx context.Context, relay string, count int, ttl time.Duration) (grants []storage.Grant, xid uint64, err error) {
	acquire := d.sql.Query("acquire", int64(count), relay, relay, ttl.Microseconds())
	err = d.answer(ctx, []backend.Query{acquire}, func(tx *sql.Tx) error {
		grants, xid, err = backend.Grants(ctx, tx, d.sql.Query("acquired"))
		return err
	})
	return grants, xid, err
}

// ChangeLeases implements [backend.Backend]. It is a block of one statement a lease, as a list
// of them would have no room for a text of any length.
func (d *Oracle) ChangeLeases(ctx context.Context, change backend.LeaseChange, leases []backend.Lease) (held []storage.Lease, xid uint64, err error) {
	var a args
	marks := func(given string) string { // the ones given, if they were made in this epoch
		if change.Epoch == "" {
			return a.Add(given)
		}
		return "CASE WHEN " + d.sql.Text("server") + " = " + a.Add(change.Epoch) + " THEN " + a.Add(given) + " ELSE marks END"
	}
	block := "DECLARE\n    " + d.sql.Text("stamp") + "\nBEGIN\n"
	for _, lease := range leases {
		set := ""
		switch change.Kind {
		case backend.Renew:
			set = "until = " + a.in(change.TTL) + ", marks = " + marks(lease.Marks)
			if lease.Calm {
				set += ", crashes = 0, journal = NULL"
			}
		case backend.Release:
			set = "owner = NULL, until = NULL, marks = " + marks(lease.Marks) + ", journal = NULL, crashes = 0"
		case backend.WriteJournal:
			set = "journal = " + a.Add(lease.Journal)
		}
		block += "    UPDATE " + d.table.Lanes + " SET " + set + ", stamp = this_transaction" +
			"\n    WHERE lane = " + a.Add(int64(lease.Lane)) + " AND fence = " + a.Add(lease.Fence) + " AND owner = " + a.Add(change.Relay) + ";\n"
	}
	err = d.answer(ctx, []backend.Query{a.query(block + "END;")}, func(tx *sql.Tx) error {
		held, xid, err = backend.Leases(ctx, tx, d.sql.Query("changed leases"))
		return err
	})
	return held, xid, err
}

// Purge implements [backend.Backend].
func (d *Oracle) Purge(ctx context.Context, retention time.Duration, limit int, _ time.Time) (purged int, until time.Time, err error) {
	err = d.inTx(ctx, func(tx *sql.Tx) error {
		purged, err = backend.Exec(ctx, tx, d.sql.Query("purge", -retention.Microseconds(), int64(limit)))
		return err
	})
	return purged, until, err
}

// ListOpen implements [backend.TransactionLister].
func (d *Oracle) ListOpen(ctx context.Context, _ string) (backend.OpenList, error) {
	return backend.ReadOpenList(ctx, d.db, d.sql.Query("open transactions"))
}

// Grant implements [backend.TransactionLister]. It has both views; without one of them the
// database says that there is no such thing.
func (d *Oracle) Grant() string {
	return "SELECT ON sys.gv_$transaction (and the same ON sys.v_$database)"
}
