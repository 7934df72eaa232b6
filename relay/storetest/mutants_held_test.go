package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// eachDue changes the rows that Due returns.
func eachDue(s Store, change func(*storage.Row)) Store {
	return onDue{s, func(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
		rows, next, err := s.Due(ctx, lanes, after, limit, maxBytes)
		return changed(rows, change), next, err
	}}
}

func heldMutants() []mutant {
	return []mutant{
		{"due rows are in the order of ids", []string{"due in order"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
				rows, next, err := s.Due(ctx, lanes, after, limit, maxBytes)
				slices.SortFunc(rows, func(a, b storage.Row) int { return cmp.Compare(a.ID, b.ID) })
				return rows, next, err
			}}
		}},
		{"the cursor of due rows is only a time", []string{"due in order"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
				if after.ID != 0 {
					after.ID = 1 << 60
				}
				return s.Due(ctx, lanes, after, limit, maxBytes)
			}}
		}},
		{"the cursor of due rows is ignored", []string{"due in order"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, lanes []int, _ storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
				return s.Due(ctx, lanes, storage.DueCursor{}, limit, maxBytes)
			}}
		}},
		{"due rows of all lanes are returned", []string{"due in order"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, _ []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
				return s.Due(ctx, lanes(), after, limit, maxBytes)
			}}
		}},
		{"Due exceeds its limit", []string{"due in order"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
				return s.Due(ctx, lanes, after, limit+1, maxBytes)
			}}
		}},
		{"Due ignores the byte limit", []string{"read obeys the byte limit"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, lanes []int, after storage.DueCursor, limit, _ int) ([]storage.Row, storage.DueCursor, error) {
				return s.Due(ctx, lanes, after, limit, plentyBytes)
			}}
		}},
		{"Due returns rows that are due tomorrow", []string{"due in order", "retry is due after its delay", "scheduled keeps its time"}, func(s Store, f *facts) Store {
			return onDue{s, f.dueTomorrow}
		}},
		{"rows without a time are never due", []string{"due in order", "scheduled keeps its time"}, func(s Store, _ *facts) Store {
			return onDue{s, func(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
				rows, next, err := s.Due(ctx, lanes, after, limit, maxBytes)
				return slices.DeleteFunc(rows, func(row storage.Row) bool { return row.Message.AvailableAt.IsZero() }), next, err
			}}
		}},
		{"every due row is a retry", []string{"due distinguishes retries from scheduled rows", "requeue parked"}, func(s Store, _ *facts) Store {
			return eachDue(s, func(row *storage.Row) { row.Retrying = true })
		}},
		{"no due row is a retry", []string{"due distinguishes retries from scheduled rows", "next holder finds deferred rows and blocked keys"}, func(s Store, _ *facts) Store {
			return eachDue(s, func(row *storage.Row) { row.Retrying = false })
		}},
		{"blocked keys of all lanes are returned", []string{"retries block their keys"}, func(s Store, _ *facts) Store {
			return onHeldKeys{s, func(ctx context.Context, _ []int, limit int) ([]storage.BlockedKey, error) {
				return s.BlockedKeys(ctx, lanes(), limit)
			}}
		}},
		{"blocked keys exceed the limit", []string{"retries block their keys"}, func(s Store, _ *facts) Store {
			return onHeldKeys{s, func(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
				return s.BlockedKeys(ctx, lanes, limit+1)
			}}
		}},
		{"only due retries hold their keys", []string{"retries block their keys"}, func(s Store, _ *facts) Store {
			return onHeldKeys{s, func(ctx context.Context, lanes []int, limit int) ([]storage.BlockedKey, error) {
				keys, err := s.BlockedKeys(ctx, lanes, limit)
				due, _, _ := s.Due(ctx, lanes, storage.DueCursor{}, plenty, plentyBytes)
				return slices.DeleteFunc(keys, func(key storage.BlockedKey) bool { return !slices.Contains(ids(due), key.ID) }), err
			}}
		}},
		{"a lane's next holder doesn't find its blocked keys", []string{"next holder finds deferred rows and blocked keys"}, func(s Store, _ *facts) Store {
			return onHeldKeys{s, func(context.Context, []int, int) ([]storage.BlockedKey, error) { return nil, nil }}
		}},
		among("BlockedAmong finds no key", func(context.Context, Store, []storage.LaneKey) ([]storage.BlockedKey, error) { return nil, nil }),
		among("BlockedAmong returns all blocked keys", func(ctx context.Context, s Store, _ []storage.LaneKey) ([]storage.BlockedKey, error) {
			return s.BlockedKeys(ctx, lanes(), plenty)
		}),
		among("blocked keys of other lanes are found", func(ctx context.Context, s Store, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
			return heldWhere(ctx, s, func(held storage.BlockedKey) bool {
				return slices.ContainsFunc(keys, func(key storage.LaneKey) bool { return key.Key == held.Key })
			}, func(held storage.BlockedKey) storage.BlockedKey {
				held.Lane = keys[slices.IndexFunc(keys, func(key storage.LaneKey) bool { return key.Key == held.Key })].Lane
				return held
			})
		}),
		among("blanks at the end of a key don't count", func(ctx context.Context, s Store, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
			for i := range keys {
				if trimmed := strings.TrimRight(keys[i].Key, " "); trimmed != keys[i].Key {
					found, err := s.BlockedAmong(ctx, append(slices.Clone(keys), storage.LaneKey{Lane: keys[i].Lane, Key: trimmed}))
					for j := range found {
						if found[j].Key == trimmed {
							found[j].Key = keys[i].Key
						}
					}
					return found, err
				}
			}
			return s.BlockedAmong(ctx, keys)
		}),
		among("only one row of a blocked key is returned", func(ctx context.Context, s Store, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
			found, err := s.BlockedAmong(ctx, keys)
			seen := map[storage.LaneKey]bool{}
			return slices.DeleteFunc(found, func(held storage.BlockedKey) bool {
				ref := storage.LaneKey{Lane: held.Lane, Key: held.Key}
				defer func() { seen[ref] = true }()
				return seen[ref]
			}), err
		}),
		among("only the last row of a blocked key is returned", func(ctx context.Context, s Store, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
			found, err := s.BlockedAmong(ctx, keys)
			for i := range found {
				all, _ := heldWhere(ctx, s, func(held storage.BlockedKey) bool { return held.Key == found[i].Key && held.Topic == found[i].Topic }, nil)
				for _, held := range all {
					found[i].ID = max(found[i].ID, held.ID)
				}
			}
			return found, err
		}),
	}
}

func among(mistake string, heldAmong func(context.Context, Store, []storage.LaneKey) ([]storage.BlockedKey, error)) mutant {
	return mutant{mistake, []string{"blocked keys are found among others"}, func(s Store, _ *facts) Store {
		return onHeldAmong{s, func(ctx context.Context, keys []storage.LaneKey) ([]storage.BlockedKey, error) {
			return heldAmong(ctx, s, keys)
		}}
	}}
}

func heldWhere(ctx context.Context, s Store, match func(storage.BlockedKey) bool, change func(storage.BlockedKey) storage.BlockedKey) (found []storage.BlockedKey, err error) {
	all, err := s.BlockedKeys(ctx, lanes(), plenty)
	for _, held := range all {
		if !match(held) {
			continue
		}
		if change != nil {
			held = change(held)
		}
		found = append(found, held)
	}
	return found, err
}

// dueTomorrow returns the rows that are due within a day.
func (f *facts) dueTomorrow(ctx context.Context, lanes []int, after storage.DueCursor, limit, maxBytes int) ([]storage.Row, storage.DueCursor, error) {
	now := f.table.DB.Now
	f.table.DB.Now = func() time.Time { return now().Add(24 * time.Hour) }
	defer func() { f.table.DB.Now = now }()
	return f.table.DB.Store().Due(ctx, lanes, after, limit, maxBytes)
}
