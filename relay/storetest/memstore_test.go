package storetest

import (
	"testing"
	"testing/synctest"

	"github.com/rowrelay/rowrelay/internal/memstore"
)

func TestMemstore(t *testing.T) {
	t.Parallel()
	Run(t, inMemory(func(store *memstore.Store) Store { return store }))
}

// inMemory returns the harness of memstore, or of a store made from it.
func inMemory(handle func(*memstore.Store) Store) Harness {
	open := func(testing.TB) Table { return memory{memstore.New(), handle} }
	return Harness{Open: open, Within: inBubble}
}

func inBubble(t *testing.T, check func(testing.TB)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { check(t) })
}

type memory struct {
	*memstore.DB
	handle func(*memstore.Store) Store
}

func (m memory) Store(testing.TB) Store { return m.handle(m.DB.Store()) }

func (m memory) Begin(testing.TB) Tx { return m.DB.Begin() }

func (m memory) LockRow(t testing.TB, id int64) (waiting func() bool, unlock func()) {
	unlock = m.DB.LockRow(id)
	t.Cleanup(unlock)
	return func() bool { return m.Waiting() > 0 }, unlock
}

var (
	_ RowLocker = memory{}
	_ Tx        = (*memstore.Tx)(nil)
)
