package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// scanCounter is a store that records the largest number of rows that one scan has returned.
type scanCounter struct {
	*memstore.Store
	most *int
}

func (s scanCounter) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	rows, left, err := s.Store.Scan(ctx, positions, except, keep)
	*s.most = max(*s.most, len(rows))
	return rows, left, err
}

// scansCounted is a store that counts the scans that found rows.
type scansCounted struct {
	*memstore.Store
	scans *int
}

func (s scansCounted) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	rows, left, err := s.Store.Scan(ctx, positions, except, keep)
	if len(rows) > 0 {
		*s.scans++
	}
	return rows, left, err
}

// If transactions always overlap, pages return the late rows without scans.
func TestPagesReturnLateRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, scans := memstore.New(), &recorder{}, 0
		_, stop := start(t, scansCounted{db.Store(), &scans}, relay.Options{Sinks: to(sink)})
		for i := range 100 {
			late := db.Begin()
			late.Insert(outbox.Message{Topic: "orders", Key: fmt.Sprint("late-", i%3)})
			write(db, "orders", fmt.Sprint("soon-", i%5), 1)
			time.Sleep(time.Second)
			late.Commit()
			time.Sleep(time.Second)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(sink.ids()); n != 200 {
			t.Errorf("%d messages were delivered, want 200", n)
		}
		inOrder(t, sink.received)
		if scans > 5 {
			t.Errorf("%d scans, want hardly any", scans)
		}
	})
}

// If a transaction commits more late rows than there is room for, memory is limited nevertheless, and no row is lost.
func TestManyLateRowsFitIntoMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, most := memstore.New(), &recorder{}, 0
		late := db.Begin()
		for i := range 10_000 {
			late.Insert(outbox.Message{Topic: "orders", Key: fmt.Sprint("late-", i%100)})
		}
		write(db, "orders", "soon", 1000)
		_, stop := start(t, scanCounter{db.Store(), &most}, relay.Options{Sinks: to(sink)})
		time.Sleep(10 * time.Second)
		if n := len(sink.ids()); n != 1000 {
			t.Errorf("%d messages were delivered before the late commit, want 1000", n)
		}
		late.Commit()
		for i := range 100 {
			db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint("late-", i)})
		}
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(sink.ids()); n != 11_100 {
			t.Errorf("%d messages were delivered, want 11,100", n)
		}
		inOrder(t, sink.received)
		if most == 0 || most > 2000 {
			t.Errorf("a scan returned %d rows, want at most 2,000", most)
		}
	})
}

// Large late rows don't fill the memory either: a scan returns rows until their payloads reach 8 MiB.
func TestLargeLateRowsFitIntoMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink, most := memstore.New(), &recorder{}, 0
		late, payload := db.Begin(), make([]byte, 1<<20)
		for i := range 100 {
			late.Insert(outbox.Message{Topic: "orders", Key: fmt.Sprint("late-", i%10), Payload: payload})
		}
		for i := range 1000 { // rows in all lanes, so many that pages, which begin a little below the cursors, don't return the late rows
			write(db, "orders", fmt.Sprint("soon-", i%200), 1)
		}
		_, stop := start(t, bytesScanned{db.Store(), &most}, relay.Options{Sinks: to(sink)})
		time.Sleep(10 * time.Second)
		late.Commit()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := len(sink.ids()); n != 1100 {
			t.Errorf("%d messages were delivered, want 1,100", n)
		}
		inOrder(t, sink.received)
		if most == 0 || most > 9<<20 {
			t.Errorf("a scan returned %d bytes, want at most 9 MiB", most)
		}
	})
}

// bytesScanned is a store that records the largest number of bytes that one scan has returned.
type bytesScanned struct {
	*memstore.Store
	most *int
}

func (s bytesScanned) Scan(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
	rows, left, err := s.Store.Scan(ctx, positions, except, keep)
	bytes := 0
	for _, row := range rows {
		bytes += len(row.Message.Payload)
	}
	*s.most = max(*s.most, bytes)
	return rows, left, err
}

// warner is a store that returns a warning with each page.
type warner struct{ *memstore.Store }

func (s warner) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := s.Store.Read(ctx, request)
	page.Warning = "the list says nothing"
	return page, err
}

// A warning that the store returns with a page is logged.
func TestStoreWarningIsLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		db, sink := memstore.New(), &recorder{}
		write(db, "orders", "k", 1)
		_, stop := start(t, warner{db.Store()}, relay.Options{Sinks: to(sink), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(sink.ids()) != 1 || !strings.Contains(log.String(), "the list says nothing") {
			t.Errorf("%d messages were delivered, and the log is %q", len(sink.ids()), log.String())
		}
	})
}

// A transaction commits between a page and its scan for late rows. It has messages both below and above the beginning of the
// scan, and all of them are delivered in order.
func TestCommitBetweenThePageAndTheScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, sink := memstore.New(), &recorder{}
		keys := keysOf(0, storage.Lanes, 2)
		both, late := db.Begin(), db.Begin()
		both.Insert(outbox.Message{Topic: "orders", Key: keys[0]})
		late.Insert(outbox.Message{Topic: "orders", Key: "late"})
		both.Insert(outbox.Message{Topic: "orders", Key: keys[0]})
		write(db, "orders", keys[1], 1)
		scans := 0
		store := db.Store()
		store.Hooks.Fail = func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpScan {
				if scans++; scans == 1 {
					both.Commit()
				}
			}
			return nil
		}
		_, stop := start(t, store, relay.Options{Sinks: to(sink)})
		time.Sleep(time.Second)
		late.Commit()
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := len(sink.ids()); got != 4 || scans == 0 {
			t.Errorf("%d messages were delivered after %d scans, want 4", got, scans)
		}
		inOrder(t, sink.received)
	})
}
