package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// paged changes the pages that Read returns.
func paged(s Store, change func(*storage.Page)) Store {
	return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
		page, err := s.Read(ctx, request)
		change(&page)
		return page, err
	}}
}

// eachRead changes the rows that Read returns.
func eachRead(s Store, change func(*storage.Row)) Store {
	return paged(s, func(page *storage.Page) { changed(page.Rows, change) })
}

func changed(rows []storage.Row, change func(*storage.Row)) []storage.Row {
	for i := range rows {
		change(&rows[i])
	}
	return rows
}

// positioned changes the positions of Read.
func positioned(s Store, change func([]storage.Position)) Store {
	return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
		request.Positions = slices.Clone(request.Positions)
		change(request.Positions)
		return s.Read(ctx, request)
	}}
}

func eachPosition(s Store, change func(*storage.Position)) Store {
	return positioned(s, func(positions []storage.Position) {
		for i := range positions {
			change(&positions[i])
		}
	})
}

// A value of the type `first` keeps the rows of a mutant's first read, and adds them to later
// reads whose positions include them.
type first struct {
	mu   sync.Mutex
	rows []storage.Row
}

func (f *first) again(rows []storage.Row, positions []storage.Position) []storage.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rows == nil {
		f.rows = slices.Clone(rows)
	}
	for _, row := range f.rows {
		asked := slices.ContainsFunc(positions, func(p storage.Position) bool { return p.Lane == row.Lane && row.ID > p.After })
		if asked && !slices.ContainsFunc(rows, func(r storage.Row) bool { return r.ID == row.ID }) {
			rows = append(rows, row)
		}
	}
	return byID(rows)
}

func readMutants() []mutant {
	return []mutant{
		{"read returns settled rows again", []string{"reads leave out settled rows"}, func(s Store, _ *facts) Store {
			var seen first
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = seen.again(page.Rows, request.Positions)
				return page, err
			}}
		}},
		{"scan returns settled rows again", []string{"reads leave out settled rows"}, func(s Store, _ *facts) Store {
			var seen first
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, left, err := s.Scan(ctx, positions, except, keep)
				return seen.again(rows, positions), left, err
			}}
		}},
		{"a mark is granted too high", []string{"next holder finds the unsettled rows above the mark"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Marks.Main++ })
		}},
		{"Until is ignored", []string{"read obeys positions"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.Until = 0 })
		}},
		{"the row at Until is left out", []string{"read obeys positions"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.Until = max(0, p.Until-1) })
		}},
		{"the row at After is included", []string{"read obeys positions", "read in order"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.After = max(0, p.After-1) })
		}},
		{"a position's key is ignored", []string{"read obeys positions"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.Key = "" })
		}},
		{"scan ignores positions", []string{"read obeys positions"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, _ []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, everything(), except, keep)
			}}
		}},
		{"a page begins with the newest rows", []string{"read in order"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { slices.Reverse(page.Rows) })
		}},
		{"a full page leaves out a row in the middle", []string{"read in order"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) {
				if page.More && len(page.Rows) > 2 {
					page.Rows = slices.Delete(page.Rows, 1, 2)
				}
			})
		}},
		{"Read exceeds its limit", []string{"read in order"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				request.Limit++
				return s.Read(ctx, request)
			}}
		}},
		{"a page begins with the lowest lanes", []string{"a full page begins with the first position or the oldest row"}, func(s Store, _ *facts) Store {
			return positioned(s, func(positions []storage.Position) {
				slices.SortFunc(positions, func(a, b storage.Position) int { return cmp.Compare(a.Lane, b.Lane) })
			})
		}},
		{"Through is too high", []string{"read in order"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.Through = 1 << 40 })
		}},
		{"More is never set", []string{"a full page begins with the first position or the oldest row", "read in order", "read obeys the byte limit"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.More = false })
		}},
		{"Read ignores the byte limit", []string{"read obeys the byte limit"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				request.MaxBytes = plentyBytes
				return s.Read(ctx, request)
			}}
		}},
		{"a large message is never read", []string{"read obeys the byte limit"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return len(row.Message.Payload) > request.MaxBytes })
				return page, err
			}}
		}},
		{"reads lag behind by one page", []string{"read after a settle"}, func(s Store, f *facts) Store {
			return paged(s, func(page *storage.Page) {
				f.mu.Lock()
				defer f.mu.Unlock()
				before := f.memory
				if f.memory = page.Rows; before != nil {
					page.Rows = before
				}
			})
		}},
		{"Scan returns rows that keep rejects", []string{"scan calls its callback once for each row"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool { keep(c); return true })
			}}
		}},
		{"Scan calls keep twice for a row", []string{"scan calls its callback once for each row"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool { keep(c); return keep(c) })
			}}
		}},
		{"scan returns no payload", []string{"scan calls its callback once for each row"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, left, err := s.Scan(ctx, positions, except, keep)
				return changed(rows, func(row *storage.Row) { row.Message.Payload = nil }), left, err
			}}
		}},
		{"Scan returns no positions from which to continue", []string{"scan in steps"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, _, err := s.Scan(ctx, positions, except, keep)
				return rows, nil, err
			}}
		}},
		{"Scan with topics in Except returns no row", []string{"scan in steps"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, nil, func(c storage.Candidate) bool { return len(except) == 0 && keep(c) })
			}}
		}},
		{"Read with topics in Except returns no row", []string{"reads leave out only the excepted topics"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				if len(request.Except) > 0 {
					page.Rows = nil
				}
				return page, err
			}}
		}},
		{"Read leaves out rows that name sinks", []string{"reads leave out only the excepted topics"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return slices.Contains(request.Except, row.Message.Topic) })
				return page, err
			}}
		}},
		{"Read leaves out similar topics", []string{"reads leave out only the excepted topics"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool {
					return row.Sinks == "" && slices.ContainsFunc(request.Except, func(topic string) bool { return strings.TrimSpace(row.Message.Topic) == topic })
				})
				return page, err
			}}
		}},
		{"Scan leaves out similar topics", []string{"reads leave out only the excepted topics"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool {
					return !slices.ContainsFunc(except, func(topic string) bool { return strings.EqualFold(c.Topic, topic) && c.Sinks == "" }) && keep(c)
				})
			}}
		}},
		{"rows that were left out count as read", []string{"reads leave out only the excepted topics"}, func(s Store, _ *facts) Store {
			nothing := false
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				if nothing = nothing || len(request.Except) > 0 && len(page.Rows) == 0; nothing {
					page.Rows = nil
				}
				return page, err
			}}
		}},
		{"a page's last id is its last row's", []string{"reads leave out only the excepted topics"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LastID = highest(page.Rows) })
		}},
		{"marks are stored in any epoch", []string{"marks of another epoch are not stored"}, func(s Store, _ *facts) Store {
			return onRenew{s, func(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
				renewals = slices.Clone(renewals)
				for i := range renewals {
					renewals[i].Epoch = ""
				}
				return s.Renew(ctx, name, renewals, ttl)
			}}
		}},
		{"a page has another epoch than the heartbeat", []string{"page has the epoch and the last id"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.Epoch = "another" })
		}},
		{"a page's last id is too low", []string{"page has the epoch and the last id"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LastID = 0 })
		}},
		{"no read row has Later set", []string{"scheduled keeps its time"}, func(s Store, _ *facts) Store {
			return eachRead(s, func(row *storage.Row) { row.Later = false })
		}},
	}
}

// highest returns the highest id of the rows.
func highest(rows []storage.Row) (id int64) {
	for i := range rows {
		id = max(id, rows[i].ID)
	}
	return id
}

func lateMutants() []mutant {
	return []mutant{
		{"the safe id is the highest row of the page", []string{"late commit", "late commit within a key", "late commit during a slow settle", "many writers"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.SafeID = max(page.SafeID, highest(page.Rows)) })
		}},
		{"the safe id is one too high", []string{"late commit", "late commit within a key"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.SafeID++ })
		}},
		{"the safe id never rises", []string{"late commit", "ids of rollbacks don't stop the safe id"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.SafeID = 0 })
		}},
		{"a gap stops the safe id", []string{"ids of rollbacks don't stop the safe id"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) {
				there := ids(page.Rows)
				page.SafeID = 0
				for page.SafeID < int64(len(there)) && there[page.SafeID] == page.SafeID+1 {
					page.SafeID++
				}
			})
		}},
		{"rows below the highest row that was read are left out", []string{"late commit", "many writers"}, func(s Store, _ *facts) Store {
			var read int64
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return row.ID <= read })
				read = max(read, highest(page.Rows))
				return page, err
			}}
		}},
		{"late rows are not reported", []string{"late commit", "late commit within a key", "late rows are reported after a failed read", "every reader gets the report of late rows", "many writers"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LateAfter = -1 })
		}},
		{"a read without positions reports no late rows", []string{"read without positions reports late rows"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				if len(request.Positions) == 0 {
					page.LateAfter = -1
				}
				return page, err
			}}
		}},
		{"LateAfter is one too high", []string{"late commit within a key"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LateAfter++ })
		}},
		{"all rows are always reported as late", []string{"late commit"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LateAfter = 0 })
		}},
		{"a failed read uses up the report of late rows", []string{"late rows are reported after a failed read"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(context.WithoutCancel(ctx), request)
				if err == nil && ctx.Err() != nil {
					return storage.Page{}, ctx.Err()
				}
				return page, err
			}}
		}},
		{"late rows are reported to one reader only", []string{"every reader gets the report of late rows"}, func(s Store, f *facts) Store {
			return onRead{s, f.reader.Read}
		}},
		{"a transaction that was rolled back is read", []string{"ids of rollbacks don't stop the safe id"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) {
				if last := highest(page.Rows); last > 2 {
					page.Rows = append(page.Rows, storage.Row{ID: last - 1, Lane: 9})
				}
			})
		}},
		{"rows are lost", []string{"many writers"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) {
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return row.ID%16 == 0 })
			})
		}},
	}
}
