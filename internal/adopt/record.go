package adopt

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// record is what Run stores in the outbox's table of settings: the mapping, for later calls, and how much of the backlog is
// forwarded. Run updates the record in the transactions that forward the backlog. Each transaction locks the record first, so that
// two runs don't forward a row twice.
type record struct {
	Way       Way
	Mapping   Mapping
	Forwarded int64 // the number of rows of the backlog that were forwarded
	Complete  bool  // the whole backlog is forwarded, and the trigger was created
	Failed    bool  // the last run ended with an error before it forwarded a row, so its mapping may be wrong
}

// recordName returns the name of the record in the table of settings. The name has at most 64 characters. All of them are ASCII, and
// none needs an escape in an SQL literal.
func (a *Adoption) recordName() string {
	name := a.Table.Name
	if a.Table.Schema != "" {
		name = a.Table.Schema + "." + name
	}
	isPlain := !strings.ContainsFunc(name, func(r rune) bool { return r > '~' || r == '\'' || r == '\\' })
	if name = "adopt." + name; isPlain && len(name) <= 64 {
		return name
	}
	return fmt.Sprintf("adopt.%08x", hash(name))
}

// readRecord reads the record, and reports whether there is one. The argument template is "read" or, to lock the record, "hold".
func (a *Adoption) readRecord(ctx context.Context, q queryer, template string) (r record, found bool, err error) {
	var value string
	statement, err := a.render(template, 0)
	if err != nil {
		return r, false, err
	}
	err = q.QueryRowContext(ctx, statement, a.recordName()).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(value), &r)
	}
	if err != nil {
		return r, false, fmt.Errorf("read the record %s of the outbox's settings: %w", a.recordName(), err)
	}
	return r, true, nil
}

// begin writes the record with the mapping of this run.
func (a *Adoption) begin(ctx context.Context, conn *sql.Conn) error {
	_, found, err := a.readRecord(ctx, conn, "read")
	if err != nil {
		return err
	}
	if !found {
		refused := a.writeRecord(ctx, conn, "create record", record{Way: a.Way, Mapping: a.Mapping})
		if refused == nil {
			return nil
		}
		if _, found, err = a.readRecord(ctx, conn, "read"); err != nil || !found { // if found, another run has created it meanwhile
			return refused
		}
	}
	return a.update(ctx, conn, func(r *record) { r.Way, r.Mapping, r.Failed = a.Way, a.Mapping, false })
}

// update changes the record in a transaction of its own.
func (a *Adoption) update(ctx context.Context, conn *sql.Conn, change func(*record)) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	r, _, err := a.readRecord(ctx, tx, "hold")
	if err != nil {
		return err
	}
	change(&r)
	if err := a.writeRecord(ctx, tx, "save record", r); err != nil {
		return err
	}
	return tx.Commit()
}

// complete records that the trigger was created.
func (a *Adoption) complete(ctx context.Context, q queryer) error {
	r, _, err := a.readRecord(ctx, q, "hold")
	if err != nil {
		return err
	}
	r.Complete = true
	return a.writeRecord(ctx, q, "save record", r)
}

func (a *Adoption) writeRecord(ctx context.Context, q queryer, template string, r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	statement, err := a.render(template, 0)
	if err != nil {
		return err
	}
	_, err = q.ExecContext(ctx, statement, string(value), a.recordName())
	return err
}

// Tables returns the names of the tables that are adopted into an outbox. For a name that recordName hashes, it returns the hash.
// It returns none if the outbox doesn't exist.
func Tables(ctx context.Context, db *sql.DB, d dialect.Dialect, outbox string) (list []string, err error) {
	table, err := dialect.ParseTable(outbox)
	if err != nil {
		return nil, err
	}
	if _, quotes := databases()[d.Name()].(mysql); quotes {
		table = table.Backquoted()
	}
	var name string
	err = all(ctx, db, "SELECT name FROM "+table.Settings+" WHERE name LIKE 'adopt.%' ORDER BY name", nil, func() {
		list = append(list, strings.TrimPrefix(name, "adopt."))
	}, &name)
	if d.Missing(err) {
		return nil, nil
	}
	return list, err
}
