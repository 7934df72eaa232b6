package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func (w *worker) purge(retention time.Duration, limit int) (deleted int) {
	w.Helper()
	w.do("purge", func(ctx context.Context) (err error) {
		deleted, err = w.store.Purge(ctx, retention, limit)
		return err
	})
	return deleted
}

// Purge deletes only delivered rows that finished longer ago than the retention, and at most limit
// rows in one call.
func purgeObeysTheRetention(t testing.TB, table Table) {
	a := holder(t, table, "a")
	kept := a.oneOfEach(table)
	write(t, table, plain(4)...)
	start := time.Now()
	done := slices.DeleteFunc(a.pending(), func(row storage.Row) bool { return row.ID == kept[storage.StatePending] })
	a.mustSettle(a.allAs(storage.StateDone, done)...)
	if n := a.purge(time.Hour, plenty); n != 0 {
		t.Errorf("purged %d rows that finished within the hour", n)
	}
	delete(kept, storage.StateDone) // the next purges delete this row and the 4 others that are done
	total := 0
	eventually(t, "5 rows are purged", func() bool {
		n := a.purge(short, 2)
		if n > 2 {
			t.Errorf("purged %d rows, the limit was 2", n)
		}
		total += n
		return total >= 5
	})
	if waited := time.Since(start); waited < short-slack {
		t.Errorf("rows were purged %v after they had finished, the retention was %v", waited, short)
	}
	if n := a.purge(0, plenty); n != 0 || total != 5 {
		t.Errorf("purged %d rows and then %d, want 5 and 0", total, n)
	}
	for state, id := range kept {
		a.wantState(state, id)
	}
}

// The retention of a row is counted from the time when it finished, not from its creation.
func retentionBeginsAtTheFinish(t testing.TB, table Table) {
	a := holder(t, table, "a")
	id := write(t, table, plain(1)...)[0]
	eventually(t, "the row is older than the retention", func() bool { return a.status().OldestPending > short })
	done := a.as(storage.StateDone, a.row(id))
	start := time.Now() // the row finishes after this time
	a.mustSettle(done)
	if n := a.purge(short, plenty); n != 0 && time.Since(start) < short-slack {
		t.Errorf("purged %d rows that had just finished", n)
	}
}
