package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// byRows returns a worker on a table that is claimed by rows.
func byRows(t testing.TB, table Table, name string) *worker {
	t.Helper()
	w := hire(t, table, name)
	w.do("set the claim mode", func(ctx context.Context) error { return w.store.SetClaimMode(ctx, storage.ByRows) })
	return w
}

func (w *worker) claim(request storage.ClaimRequest) (rows []storage.Row) {
	w.Helper()
	request.Relay = w.name
	if request.TTL == 0 {
		request.TTL = long
	}
	w.do("claim", func(ctx context.Context) (err error) {
		rows, err = w.store.Claim(ctx, request)
		return err
	})
	if len(rows) > request.Limit {
		w.Fatalf("claimed %d rows, the limit was %d", len(rows), request.Limit)
	}
	return rows
}

// claimed returns the settlement of a row that was claimed with the token.
func claimed(token string, state storage.State, row storage.Row) storage.Settlement {
	return storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: token, State: state, Attempts: row.Attempts, Crashes: row.Crashes}
}

func allClaimed(token string, state storage.State, rows []storage.Row) []storage.Settlement {
	settlements := make([]storage.Settlement, len(rows))
	for i, row := range rows {
		settlements[i] = claimed(token, state, row)
	}
	return settlements
}

// freed calls Reclaim until it has freed count rows.
func (w *worker) freed(count int) {
	w.Helper()
	total := 0
	eventually(w, strconv.Itoa(count)+" rows are reclaimed", func() bool {
		w.do("reclaim", func(ctx context.Context) error {
			n, err := w.store.Reclaim(ctx, plenty)
			total += n
			return err
		})
		return total >= count
	})
	if total != count {
		w.Errorf("reclaimed %d rows, want %d", total, count)
	}
}

// Thirty consumers claim a hundred rows. Each row is claimed once, no claim exceeds its limit, and
// no claim is empty while rows are free. If consumers claim in different orders, they may deadlock;
// then the database cancels one claim, which is retried.
func claimsAreDistinct(t testing.TB, table Table) {
	const consumers, count, limit = 30, 100, 4
	byRows(t, table, "first")
	messages := plain(count)
	for i := range messages {
		messages[i].Priority = int16(i % 3)
	}
	stores := make([]Store, consumers)
	for i := range stores {
		stores[i] = table.Store(t)
	}
	for _, order := range append(picks(), "mixed") {
		written := write(t, table, messages...)
		claims := make([][]storage.Row, consumers)
		var all sync.WaitGroup
		for i, store := range stores {
			pick := order
			if order == "mixed" {
				pick = picks()[i%len(picks())]
			}
			request := storage.ClaimRequest{Relay: fmt.Sprint(order, i), Token: fmt.Sprint(order, i), TTL: long, Limit: limit, Pick: pick}
			all.Go(func() {
				if err := again(t, func(ctx context.Context) (err error) {
					claims[i], err = store.Claim(ctx, request)
					return err
				}); err != nil {
					t.Errorf("claim: %v", err)
				}
			})
		}
		all.Wait()
		wantDistinct(t, claims, limit, written)
	}
}

func wantDistinct(t testing.TB, claims [][]storage.Row, limit int, written []int64) {
	t.Helper()
	var got []int64
	for _, claim := range claims {
		if len(claim) > limit {
			t.Errorf("claimed %d rows, the limit was %d", len(claim), limit)
		}
		got = append(got, inOrder(claim)...)
	}
	slices.Sort(got)
	wantIDs(t, strconv.Itoa(len(claims))+" concurrent claims", got, written)
}

// Claim returns all columns of a row, and whether the row's AvailableAt is in the future.
func claimReturnsTheMessage(t testing.TB, table Table) {
	a := byRows(t, table, "a")
	for _, message := range append(variants(), outbox.Message{ID: outbox.NewID(), Topic: "later", AvailableAt: time.Now().Add(time.Hour)}) {
		id := write(t, table, message)[0]
		rows := a.claim(storage.ClaimRequest{Token: newToken(), Limit: 10})
		if len(rows) != 1 || rows[0].ID != id {
			t.Fatalf("claimed %v, want row %d", inOrder(rows), id)
		}
		wantMessage(t, "claimed", rows[0].Message, message)
		wantExpiry(t, "claimed", rows[0], message, false)
		if later := message.Topic == "later"; rows[0].Later != later || rows[0].Deferred {
			t.Errorf("claimed a row, available at %v, with Later %t and Deferred %t", message.AvailableAt, rows[0].Later, rows[0].Deferred)
		}
		a.wantState(storage.StateClaimed, id)
		if by := a.info(id).ClaimedBy; by != a.name {
			t.Errorf("a row that %s has claimed has ClaimedBy %q", a.name, by)
		}
	}
}

// The row that reaches a claim's limit of bytes is the last one claimed, so a claim has at least one
// row. The other rows stay free and unchanged. The claim doesn't report whether more rows exist.
func claimObeysTheByteLimit(t testing.TB, table Table) {
	const size, count = 20_000, 6
	a, b := byRows(t, table, "a"), byRows(t, table, "b")
	bytes, text := outbox.Message{Topic: "t", Payload: make([]byte, size)}, outbox.Message{Topic: "t", Payload: []byte("small")}
	for _, maxBytes := range []int{1, size - 1, size, size + 1, 3*size + 1, 3 * size, count*size - 1, 2 * count * size} {
		for _, pick := range picks() {
			written := write(t, table, slices.Repeat([]outbox.Message{bytes}, count)...)
			rows := a.claim(storage.ClaimRequest{Token: newToken(), Limit: plenty, MaxBytes: maxBytes, Pick: pick})
			want := min(count, max(1, (maxBytes+size-1)/size)) // the row that exceeds the limit of bytes is still claimed
			if len(rows) != want {
				t.Errorf("claimed %d rows of %d bytes with a limit of %d bytes and the pick %s, want %d rows", len(rows), size, maxBytes, pick, want)
			}
			first := slices.Clone(written)
			if pick == storage.Newest {
				slices.Reverse(first)
			}
			wantIDs(t, "claimed", inOrder(rows), first[:min(count, len(rows))])
			for _, row := range rows {
				if len(row.Message.Payload) != size {
					t.Errorf("row %d was claimed with a payload of %d bytes, want %d", row.ID, len(row.Message.Payload), size)
				}
			}
			rest := b.claim(storage.ClaimRequest{Token: newToken(), Limit: plenty, Pick: pick})
			wantIDs(t, "claimed by another relay", inOrder(rest), first[min(count, len(rows)):])
		}
	}
	// Large rows follow small ones, since a store may adapt to the sizes of rows. The last row is larger
	// than all limits.
	huge := outbox.Message{Topic: "t", Payload: make([]byte, 5*size)}
	written := write(t, table, text, text, bytes, huge, text, huge, bytes)
	for i, want := range [][]int64{written[:4], written[4:6], written[6:], nil} {
		rows := a.claim(storage.ClaimRequest{Token: newToken(), Limit: plenty, MaxBytes: 2 * size})
		wantIDs(t, "claim "+strconv.Itoa(i), inOrder(rows), want)
	}
}
