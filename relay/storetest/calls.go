package storetest

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func (w *worker) acquire(count int, ttl time.Duration) (grants []storage.Grant) {
	w.Helper()
	w.do("acquire", func(ctx context.Context) (err error) {
		grants, err = w.store.Acquire(ctx, w.name, count, ttl)
		return err
	})
	for _, grant := range grants {
		w.fences[grant.Lane] = grant.Fence
	}
	return grants
}

// takeOver calls Acquire until it has acquired count lanes.
func (w *worker) takeOver(count int, ttl time.Duration) (grants []storage.Grant) {
	w.Helper()
	eventually(w, w.name+" takes over "+strconv.Itoa(count)+" lanes", func() bool {
		grants = append(grants, w.acquire(count-len(grants), long)...)
		return len(grants) >= count
	})
	if ttl != long { // a short lease may end, and its lane may be granted again, before the last lane is acquired
		w.renewAll(ttl)
	}
	return grants
}

func (w *worker) renew(ttl time.Duration, renewals ...storage.Renewal) (held []storage.Lease) {
	w.Helper()
	w.do("renew", func(ctx context.Context) (err error) {
		held, err = w.store.Renew(ctx, w.name, renewals, ttl)
		return err
	})
	return held
}

func (w *worker) release(renewals ...storage.Renewal) {
	w.Helper()
	w.do("release", func(ctx context.Context) error { return w.store.Release(ctx, w.name, renewals) })
}

// lease returns the lane's lease with the fence that the worker was last granted.
func (w *worker) lease(lane int) storage.Lease {
	return storage.Lease{Lane: lane, Fence: w.fences[lane]}
}

func (w *worker) read(positions []storage.Position, limit, maxBytes int) (page storage.Page) {
	w.Helper()
	w.do("read", func(ctx context.Context) (err error) {
		page, err = w.store.Read(ctx, storage.ReadRequest{Positions: positions, Limit: limit, MaxBytes: maxBytes})
		return err
	})
	return page
}

// pending reads all pending rows, including those whose AvailableAt is in the future.
func (w *worker) pending() []storage.Row {
	w.Helper()
	return w.read(everything(), plenty, plentyBytes).Rows
}

// row reads one pending row.
func (w *worker) row(id int64) storage.Row {
	w.Helper()
	rows := w.pending()
	at := slices.IndexFunc(rows, func(row storage.Row) bool { return row.ID == id })
	if at < 0 {
		w.Fatalf("row %d is not pending; the pending rows are %v", id, ids(rows))
	}
	return rows[at]
}

func (w *worker) due() (rows []storage.Row) {
	w.Helper()
	w.do("due", func(ctx context.Context) (err error) {
		rows, _, err = w.store.Due(ctx, lanes(), storage.DueCursor{}, plenty, plentyBytes)
		return err
	})
	return rows
}

// heldKeys returns the blocked keys, sorted by the rows that block them.
func (w *worker) heldKeys() (keys []storage.BlockedKey) {
	w.Helper()
	w.do("blocked keys", func(ctx context.Context) (err error) {
		keys, err = w.store.BlockedKeys(ctx, lanes(), plenty)
		return err
	})
	slices.SortFunc(keys, func(a, b storage.BlockedKey) int { return int(a.ID - b.ID) })
	return keys
}

func (w *worker) list(filter storage.Filter) (infos []storage.Info) {
	w.Helper()
	w.do("list", func(ctx context.Context) (err error) {
		infos, err = w.store.List(ctx, filter)
		return err
	})
	return infos
}

// info returns the only row that List finds for the id.
func (w *worker) info(id int64) storage.Info {
	w.Helper()
	infos := w.list(storage.Filter{IDs: []string{strconv.FormatInt(id, 10)}})
	if len(infos) != 1 || infos[0].ID != id {
		w.Fatalf("the list has %d rows for id %d, want 1", len(infos), id)
	}
	return infos[0]
}

// wantState requires that the rows have this state.
func (w *worker) wantState(want storage.State, ids ...int64) {
	w.Helper()
	for _, id := range ids {
		if got := w.info(id).State; got != want {
			w.Errorf("row %d is %s, want %s", id, got, want)
		}
	}
}

func (w *worker) requeue(filter storage.Filter) (count int) {
	w.Helper()
	w.do("requeue", func(ctx context.Context) (err error) {
		count, err = w.store.Requeue(ctx, filter)
		return err
	})
	return count
}

func (w *worker) skip(filter storage.Filter) (count int) {
	w.Helper()
	w.do("skip", func(ctx context.Context) (err error) {
		count, err = w.store.Skip(ctx, filter)
		return err
	})
	return count
}

func (w *worker) discard(filter storage.Filter) (count int) {
	w.Helper()
	w.do("discard", func(ctx context.Context) (err error) {
		count, err = w.store.Discard(ctx, filter)
		return err
	})
	return count
}

func (w *worker) status() (status storage.Status) {
	w.Helper()
	w.do("status", func(ctx context.Context) (err error) {
		status, err = w.store.Status(ctx)
		return err
	})
	return status
}
