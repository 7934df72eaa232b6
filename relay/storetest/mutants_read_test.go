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

// first remembers the first rows that a reader has returned, and returns them again when the same
// positions are read.
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
		{"read returns settled rows again", []string{"readers leave out settled rows"}, func(s Store, _ *facts) Store {
			var seen first
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = seen.again(page.Rows, request.Positions)
				return page, err
			}}
		}},
		{"scan returns settled rows again", []string{"readers leave out settled rows"}, func(s Store, _ *facts) Store {
			var seen first
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, left, err := s.Scan(ctx, positions, except, keep)
				return seen.again(rows, positions), left, err
			}}
		}},
		{"a mark is granted too high", []string{"grants are true above their marks"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Marks.Main++ })
		}},
		{"until is ignored", []string{"read keeps to positions"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.Until = 0 })
		}},
		{"until is not included", []string{"read keeps to positions"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.Until = max(0, p.Until-1) })
		}},
		{"the row at After is included", []string{"read keeps to positions", "read in order"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.After = max(0, p.After-1) })
		}},
		{"a position's key is ignored", []string{"read keeps to positions"}, func(s Store, _ *facts) Store {
			return eachPosition(s, func(p *storage.Position) { p.Key = "" })
		}},
		{"scan ignores positions", []string{"read keeps to positions"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, _ []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, everything(), except, keep)
			}}
		}},
		{"the newest first", []string{"read in order"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { slices.Reverse(page.Rows) })
		}},
		{"a full page leaves rows out", []string{"read in order"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) {
				if page.More && len(page.Rows) > 2 {
					page.Rows = slices.Delete(page.Rows, 1, 2)
				}
			})
		}},
		{"read goes over the limit", []string{"read in order"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				request.Limit++
				return s.Read(ctx, request)
			}}
		}},
		{"the lowest lanes first", []string{"read first positions first"}, func(s Store, _ *facts) Store {
			return positioned(s, func(positions []storage.Position) {
				slices.SortFunc(positions, func(a, b storage.Position) int { return cmp.Compare(a.Lane, b.Lane) })
			})
		}},
		{"a full page reports that it reached the end", []string{"read in order"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.Through = 1 << 40 })
		}},
		{"never more", []string{"read first positions first", "read in order", "read stops at bytes"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.More = false })
		}},
		{"bytes are ignored", []string{"read stops at bytes"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				request.MaxBytes = plentyBytes
				return s.Read(ctx, request)
			}}
		}},
		{"a large message is never read", []string{"read stops at bytes"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return len(row.Message.Payload) > request.MaxBytes })
				return page, err
			}}
		}},
		{"a replica that lags", []string{"read after a settle"}, func(s Store, f *facts) Store {
			return paged(s, func(page *storage.Page) {
				f.mu.Lock()
				defer f.mu.Unlock()
				before := f.memory
				if f.memory = page.Rows; before != nil {
					page.Rows = before
				}
			})
		}},
		{"scan approves everything", []string{"scan asks for each row"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool { keep(c); return true })
			}}
		}},
		{"scan asks twice", []string{"scan asks for each row"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool { keep(c); return keep(c) })
			}}
		}},
		{"scan returns no payload", []string{"scan asks for each row"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, left, err := s.Scan(ctx, positions, except, keep)
				return changed(rows, func(row *storage.Row) { row.Message.Payload = nil }), left, err
			}}
		}},
		{"scan forgets what is left", []string{"scan in steps"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				rows, _, err := s.Scan(ctx, positions, except, keep)
				return rows, nil, err
			}}
		}},
		{"scan leaves out all", []string{"scan in steps"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, nil, func(c storage.Candidate) bool { return len(except) == 0 && keep(c) })
			}}
		}},
		{"read leaves out all", []string{"except keeps others"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				if len(request.Except) > 0 {
					page.Rows = nil
				}
				return page, err
			}}
		}},
		{"read leaves rows out that name sinks", []string{"except keeps others"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return slices.Contains(request.Except, row.Message.Topic) })
				return page, err
			}}
		}},
		{"Read leaves out similar topics", []string{"except keeps others"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool {
					return row.Sinks == "" && slices.ContainsFunc(request.Except, func(topic string) bool { return strings.TrimSpace(row.Message.Topic) == topic })
				})
				return page, err
			}}
		}},
		{"scan leaves topics out that are alike", []string{"except keeps others"}, func(s Store, _ *facts) Store {
			return onScan{s, func(ctx context.Context, positions []storage.Position, except []string, keep func(storage.Candidate) bool) ([]storage.Row, []storage.Position, error) {
				return s.Scan(ctx, positions, except, func(c storage.Candidate) bool {
					return !slices.ContainsFunc(except, func(topic string) bool { return strings.EqualFold(c.Topic, topic) && c.Sinks == "" }) && keep(c)
				})
			}}
		}},
		{"rows that were left out count as read", []string{"except keeps others"}, func(s Store, _ *facts) Store {
			nothing := false
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				if nothing = nothing || len(request.Except) > 0 && len(page.Rows) == 0; nothing {
					page.Rows = nil
				}
				return page, err
			}}
		}},
		{"a page's last id is that of its last row", []string{"except keeps others"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LastID = highest(page.Rows) })
		}},
		{"marks are stored in any epoch", []string{"marks of another epoch are not"}, func(s Store, _ *facts) Store {
			return onRenew{s, func(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
				renewals = slices.Clone(renewals)
				for i := range renewals {
					renewals[i].Epoch = ""
				}
				return s.Renew(ctx, name, renewals, ttl)
			}}
		}},
		{"a page names no epoch", []string{"page tells the epoch"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.Epoch = "another" })
		}},
		{"a page's last id is too low", []string{"page tells the epoch"}, func(s Store, _ *facts) Store {
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
		{"the safe id is the highest row", []string{"late commit", "late within a key", "late beside a slow settle", "many writers"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.SafeID = max(page.SafeID, highest(page.Rows)) })
		}},
		{"the safe id is one too high", []string{"late commit", "late within a key"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.SafeID++ })
		}},
		{"the safe id never rises", []string{"late commit", "gaps by rollbacks"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.SafeID = 0 })
		}},
		{"a gap stops the safe id", []string{"gaps by rollbacks"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) {
				there := ids(page.Rows)
				page.SafeID = 0
				for page.SafeID < int64(len(there)) && there[page.SafeID] == page.SafeID+1 {
					page.SafeID++
				}
			})
		}},
		{"an old cursor is accepted for the state", []string{"late commit", "many writers"}, func(s Store, _ *facts) Store {
			var read int64
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return row.ID <= read })
				read = max(read, highest(page.Rows))
				return page, err
			}}
		}},
		{"late rows are not reported", []string{"late commit", "late within a key", "failed read tells nothing", "every reader hears", "many writers"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LateAfter = -1 })
		}},
		{"a read without positions reports no late rows", []string{"late told without rows"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(ctx, request)
				if len(request.Positions) == 0 {
					page.LateAfter = -1
				}
				return page, err
			}}
		}},
		{"LateAfter is one too high", []string{"late within a key"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LateAfter++ })
		}},
		{"all rows are always reported as late", []string{"late commit"}, func(s Store, _ *facts) Store {
			return paged(s, func(page *storage.Page) { page.LateAfter = 0 })
		}},
		{"a failed read counts as read", []string{"failed read tells nothing"}, func(s Store, _ *facts) Store {
			return onRead{s, func(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
				page, err := s.Read(context.WithoutCancel(ctx), request)
				if err == nil && ctx.Err() != nil {
					return storage.Page{}, ctx.Err()
				}
				return page, err
			}}
		}},
		{"late rows are reported to one reader only", []string{"every reader hears"}, func(s Store, f *facts) Store {
			return onRead{s, f.reader.Read}
		}},
		{"a transaction that was rolled back is read", []string{"gaps by rollbacks"}, func(s Store, _ *facts) Store {
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
