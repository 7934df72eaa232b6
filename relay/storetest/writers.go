package storetest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
)

// Several writers write rows in concurrent transactions, and commit or roll back. After each row, a
// writer waits until the reader has read up to two more pages. The safe id and LateAfter of each page
// must be correct, and the last page must have all committed rows.
func manyWriters(t testing.TB, table Table) {
	const writers, each = 6, 12
	r := newReader(t, table, "reader")
	pages := &counter{changed: sync.NewCond(&sync.Mutex{})}
	var all sync.WaitGroup
	var mu sync.Mutex
	var committed []int64
	for range writers {
		all.Go(func() {
			for range each {
				ids := writeSlowly(t, table, pages)
				mu.Lock()
				committed = append(committed, ids...)
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	r.lookUntil(done, pages)
	slices.Sort(committed)
	wantIDs(t, "committed and read", ids(r.look().Rows), committed)
	r.wantSafeID(r.highest)
}

func (r *reader) lookUntil(done <-chan struct{}, pages *counter) {
	r.Helper()
	defer pages.end() // ends the writers if a read fails
	for {
		select {
		case <-done:
			return
		default:
			r.look()
			pages.add()
		}
	}
}

// writeSlowly writes some rows in a transaction, waits for pages to be read in between, and returns
// the ids that it has committed.
func writeSlowly(t testing.TB, table Table, pages *counter) []int64 {
	tx := table.Begin(t)
	if tx == nil {
		return nil // the table has reported the error
	}
	var written []int64
	for range 1 + rand.IntN(3) {
		written = append(written, tx.Insert(outbox.Message{Topic: "t", Key: []string{"", "a", "b"}[rand.IntN(3)]}))
		pages.wait(rand.IntN(3))
	}
	if rand.IntN(4) == 0 {
		tx.Rollback()
		return nil
	}
	tx.Commit()
	return written
}

// counter counts pages, so that writers can wait for the next ones.
type counter struct {
	changed *sync.Cond
	count   int
	ended   bool
}

func (c *counter) add() {
	c.changed.L.Lock()
	defer c.changed.L.Unlock()
	c.count++
	c.changed.Broadcast()
}

func (c *counter) end() {
	c.changed.L.Lock()
	defer c.changed.L.Unlock()
	c.ended = true
	c.changed.Broadcast()
}

// wait waits until this number of further pages have been read.
func (c *counter) wait(more int) {
	c.changed.L.Lock()
	defer c.changed.L.Unlock()
	for enough := c.count + more; c.count < enough && !c.ended; {
		c.changed.Wait()
	}
}
