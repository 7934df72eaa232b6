package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// watched is a backend that counts its reads, and whose reads fail on demand.
type watched struct {
	backend.Backend
	reads atomic.Int32
	fail  atomic.Bool
}

func (w *watched) Read(ctx context.Context, page backend.Read, take func(storage.Row) (bool, error)) (backend.FirstLine, error) {
	if len(page.Positions) == 0 {
		return w.Backend.Read(ctx, page, take) // a peek: a read of the first line alone
	}
	w.reads.Add(1)
	if w.fail.Load() {
		return backend.FirstLine{}, errors.New("fails on demand")
	}
	return w.Backend.Read(ctx, page, take)
}

// peeker reads the rows of all lanes with ids above the field after.
type peeker struct {
	*testing.T
	table
	*watched
	store *sqlstore.Store
	after int64
}

func newPeeker(t *testing.T, table table) *peeker {
	w := &watched{}
	store, err := sqlstore.Open(t.Context(), table.DB, table.dialect, sqlstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store.Wrap(func(b backend.Backend) backend.Backend {
		w.Backend = b
		return w
	})
	return &peeker{t, table, w, store, 0}
}

func (p *peeker) read() (storage.Page, error) {
	var positions []storage.Position
	for lane := range storage.Lanes {
		positions = append(positions, storage.Position{Lane: lane, After: p.after})
	}
	return p.store.Read(p.Context(), storage.ReadRequest{Positions: positions, Limit: 100, MaxBytes: 1 << 20})
}

// want reads a page, and requires that it has this number of rows. The next read begins after these rows.
func (p *peeker) want(when string, rows int) storage.Page {
	p.Helper()
	page, err := p.read()
	if err != nil || len(page.Rows) != rows {
		p.Fatalf("%s: %d rows, want %d; %v", when, len(page.Rows), rows, err)
	}
	for _, row := range page.Rows {
		p.after = max(p.after, row.ID)
	}
	return page
}

// sleep reads until the store answers a read with a peek.
func (p *peeker) sleep() {
	p.Helper()
	for range 10 {
		before := p.reads.Load()
		p.want("idle", 0)
		if p.reads.Load() == before {
			return
		}
	}
	p.Fatal("each of ten reads without new rows was a full read")
}

func (p *peeker) begin() (*sql.Tx, int64) {
	p.Helper()
	tx, err := p.DB.BeginTx(p.Context(), nil)
	if err != nil {
		p.Fatal(err)
	}
	var id int64
	if err := tx.QueryRow("INSERT INTO outbox (topic) VALUES ('t') RETURNING id").Scan(&id); err != nil {
		p.Fatal(err)
	}
	return tx, id
}

func commit(t *testing.T, tx *sql.Tx) {
	t.Helper()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// The store answers the reads of an idle relay with peeks, which read only the first line. Peeks notice
// new rows, rows of transactions that were open for a while, and rows that commit late.
func TestPeekFindsNewAndLateRows(t *testing.T) {
	onPostgres(t, func(t *testing.T, table table) {
		p := newPeeker(t, table)
		p.sleep()
		exec(t, p.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		p.want("a row was committed", 1)
		p.sleep()
		early, id := p.begin()
		p.want("a row isn't committed", 0)
		p.sleep()
		exec(t, p.DB, "CREATE TABLE other (id int)") // a transaction that writes no messages
		p.sleep()
		commit(t, early)
		if page := p.want("the row was committed", 1); page.Rows[0].ID != id {
			t.Errorf("read row %d, want %d", page.Rows[0].ID, id)
		}
		p.sleep()
		late, id := p.begin()
		exec(t, p.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		p.want("a later row was committed first", 1)
		p.sleep()
		commit(t, late)
		if page := p.want("the earlier row was committed", 0); page.LateAfter < 0 || page.LateAfter >= id {
			t.Errorf("LateAfter is %d, but row %d has appeared", page.LateAfter, id)
		}
	})
}

// If a position begins at a lower id than in the last read, the store makes a full read.
func TestPeekRequiresTheSamePositions(t *testing.T) {
	onPostgres(t, func(t *testing.T, table table) {
		p := newPeeker(t, table)
		exec(t, p.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		p.want("the first read", 1)
		p.sleep()
		p.after--
		p.want("from a lower position", 1)
	})
}

// A peek notices a late row, and the full read after it fails. The next page still reports the row.
func TestFailedReadKeepsTheReportOfAPeek(t *testing.T) {
	onPostgres(t, func(t *testing.T, table table) {
		p := newPeeker(t, table)
		late, id := p.begin()
		exec(t, p.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		p.want("a later row was committed first", 1)
		p.sleep()
		commit(t, late)
		p.fail.Store(true)
		if _, err := p.read(); err == nil {
			t.Fatal("the read did not fail")
		}
		p.fail.Store(false)
		if page := p.want("after the failed read", 0); page.LateAfter < 0 || page.LateAfter >= id {
			t.Errorf("LateAfter is %d, but row %d has appeared", page.LateAfter, id)
		}
	})
}

// A read with a limit of 0 doesn't show whether the table has rows, so the store doesn't replace the next
// reads by peeks.
func TestReadWithoutRoomIsFollowedByNoPeek(t *testing.T) {
	onPostgres(t, func(t *testing.T, table table) {
		p := newPeeker(t, table)
		exec(t, p.DB, "INSERT INTO outbox (topic) VALUES ('t')")
		for range 3 {
			if _, err := p.store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 0}}, Limit: 0, MaxBytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
		}
		all := 0
		for lane := range storage.Lanes {
			page, err := p.store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: lane}}, Limit: 10, MaxBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			all += len(page.Rows)
		}
		if all != 1 {
			t.Errorf("read %d rows, want 1", all)
		}
	})
}
