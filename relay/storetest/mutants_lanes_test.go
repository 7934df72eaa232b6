package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// granted changes what Acquire returns.
func granted(s Store, change func([]storage.Grant) []storage.Grant) Store {
	return onAcquire{s, func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
		grants, err := s.Acquire(ctx, name, count, ttl)
		return change(grants), err
	}}
}

// eachGrant changes every grant.
func eachGrant(s Store, change func(*storage.Grant)) Store {
	return granted(s, func(grants []storage.Grant) []storage.Grant {
		for i := range grants {
			change(&grants[i])
		}
		return grants
	})
}

// renewals changes the arguments of Renew.
func renewals(s Store, change func([]storage.Renewal) []storage.Renewal) Store {
	return onRenew{s, func(ctx context.Context, name string, renewals []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
		return s.Renew(ctx, name, change(slices.Clone(renewals)), ttl)
	}}
}

func eachRenewal(s Store, change func(*storage.Renewal)) Store {
	return renewals(s, func(renewals []storage.Renewal) []storage.Renewal {
		for i := range renewals {
			change(&renewals[i])
		}
		return renewals
	})
}

func laneMutants() []mutant {
	return []mutant{
		{"two relays get one lane", []string{"acquire gives each lane to one relay"}, func(s Store, _ *facts) Store {
			return granted(s, func(grants []storage.Grant) []storage.Grant {
				if len(grants) == 0 {
					grants = append(grants, storage.Grant{Lease: storage.Lease{Lane: 7, Fence: 2}})
				}
				return grants
			})
		}},
		{"a lane is never granted", []string{"acquire gives each lane to one relay"}, func(s Store, _ *facts) Store {
			return granted(s, func(grants []storage.Grant) []storage.Grant {
				return slices.DeleteFunc(grants, func(g storage.Grant) bool { return g.Lane == 63 })
			})
		}},
		{"Acquire exceeds its count", []string{"acquire grants at most the requested lanes", "acquire gives each lane to one relay"}, func(s Store, _ *facts) Store {
			return onAcquire{s, func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
				return s.Acquire(ctx, name, count+1, ttl)
			}}
		}},
		{"leases end early", []string{"takeover only after expiry"}, func(s Store, _ *facts) Store {
			return onAcquire{s, func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
				return s.Acquire(ctx, name, count, ttl/2)
			}}
		}},
		{"leases never end", []string{"takeover only after expiry"}, func(s Store, _ *facts) Store {
			return onAcquire{s, func(ctx context.Context, name string, count int, _ time.Duration) ([]storage.Grant, error) {
				return s.Acquire(ctx, name, count, time.Hour)
			}}
		}},
		{"fences don't grow", []string{"takeover only after expiry"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Fence = 1 })
		}},
		{"fences grow by one", []string{"fences grow by random steps"}, func(s Store, f *facts) Store {
			var leases atomic.Int64
			counting := onAcquire{s, func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
				grants, err := s.Acquire(ctx, name, count, ttl)
				next := leases.Add(1)
				for i := range grants {
					grants[i].Fence = next
				}
				return grants, err
			}}
			return onRelease{counting, func(ctx context.Context, name string, renewals []storage.Renewal) error {
				for i := range renewals {
					renewals[i].Fence = f.fence(renewals[i].Lane)
				}
				return s.Release(ctx, name, renewals)
			}}
		}},
		{"crashes are not counted", []string{"takeover only after expiry", "calm renewal clears crashes"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Crashes = 0 })
		}},
		{"a release only expires the lease", []string{"takeover only after expiry"}, func(s Store, _ *facts) Store {
			return onRelease{s, func(ctx context.Context, name string, renewals []storage.Renewal) error {
				_, err := s.Renew(ctx, name, renewals, -time.Second)
				return err
			}}
		}},
		{"a renewal renews all lanes of the relay's name", []string{"a lease expires while its relay is alive", "a restarted relay has no leases of its predecessor", "deregistering keeps leases"}, func(s Store, f *facts) Store {
			return onRenew{s, func(ctx context.Context, name string, given []storage.Renewal, ttl time.Duration) ([]storage.Lease, error) {
				all := slices.Clone(given)
				for lane := range storage.Lanes {
					if f.owner(lane) == name && !slices.ContainsFunc(given, func(r storage.Renewal) bool { return r.Lane == lane }) {
						all = append(all, storage.Renewal{Lease: storage.Lease{Lane: lane, Fence: f.fence(lane)}})
					}
				}
				return s.Renew(ctx, name, all, ttl)
			}}
		}},
		{"Deregister ends leases", []string{"deregistering keeps leases"}, func(s Store, _ *facts) Store {
			return onDeregister{s, func(ctx context.Context, name string) error { return s.FenceRelay(ctx, name, storage.ByLanes) }}
		}},
		{"a renewal doesn't wait for a takeover", []string{"renewal races a takeover"}, func(s Store, _ *facts) Store {
			return onRenew{s, func(ctx context.Context, name string, given []storage.Renewal, ttl time.Duration) (held []storage.Lease, _ error) {
				_, err := s.Renew(ctx, name, given, ttl)
				for _, r := range given {
					held = append(held, r.Lease)
				}
				return held, err
			}}
		}},
		{"Calm is ignored", []string{"calm renewal clears crashes"}, func(s Store, _ *facts) Store {
			return eachRenewal(s, func(r *storage.Renewal) { r.Calm = false })
		}},
		{"every renewal is calm", []string{"calm renewal clears crashes"}, func(s Store, _ *facts) Store {
			return eachRenewal(s, func(r *storage.Renewal) { r.Calm = true })
		}},
		{"a renewal reports success and extends nothing", []string{"renew extends the lease"}, func(s Store, _ *facts) Store {
			return onRenew{s, func(_ context.Context, _ string, renewals []storage.Renewal, _ time.Duration) (held []storage.Lease, _ error) {
				for _, r := range renewals {
					held = append(held, r.Lease)
				}
				return held, nil
			}}
		}},
		{"a lease that has ended is not renewed", []string{"renew after expiry"}, func(s Store, f *facts) Store {
			return renewals(s, func(renewals []storage.Renewal) []storage.Renewal {
				f.mu.Lock()
				defer f.mu.Unlock()
				return slices.DeleteFunc(renewals, func(r storage.Renewal) bool { return time.Now().After(f.until[r.Lane]) })
			})
		}},
		{"any relay renews any lane", []string{"only the holder renews", "renew after expiry"}, func(s Store, f *facts) Store {
			return onRenew{s, func(ctx context.Context, _ string, renewals []storage.Renewal, ttl time.Duration) (held []storage.Lease, err error) {
				for _, r := range renewals {
					r.Fence = f.fence(r.Lane)
					if _, err = s.Renew(ctx, f.owner(r.Lane), []storage.Renewal{r}, ttl); err != nil {
						break
					}
					held = append(held, r.Lease)
				}
				return held, err
			}}
		}},
		{"any relay releases any lane", []string{"only the holder releases"}, func(s Store, f *facts) Store {
			return onRelease{s, func(ctx context.Context, _ string, renewals []storage.Renewal) error {
				for _, r := range renewals {
					r.Fence = f.fence(r.Lane)
					if err := s.Release(ctx, f.owner(r.Lane), []storage.Renewal{r}); err != nil {
						return err
					}
				}
				return nil
			}}
		}},
		{"the sinks' marks are lost", []string{"marks are kept"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Marks.Sinks = nil })
		}},
		{"a release stores no marks", []string{"marks are kept"}, func(s Store, _ *facts) Store {
			return onRelease{s, func(ctx context.Context, name string, renewals []storage.Renewal) error {
				renewals = slices.Clone(renewals)
				for i := range renewals {
					renewals[i].Marks = storage.Marks{}
				}
				return s.Release(ctx, name, renewals)
			}}
		}},
		{"journals are lost", []string{"journals are kept"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Suspects = nil })
		}},
		{"the number of crashes in a journal is lost", []string{"journals are kept"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) {
				g.Suspects = slices.Clone(g.Suspects)
				for i := range g.Suspects {
					g.Suspects[i].Crashes = 0
				}
			})
		}},
		{"sent batches are lost", []string{"sent batches are kept"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Batches = nil })
		}},
		{"sent batches are granted with another lane", []string{"sent batches are kept"}, func(s Store, _ *facts) Store {
			return granted(s, func(grants []storage.Grant) []storage.Grant {
				for i := range max(0, len(grants)-1) {
					grants[i].Batches = grants[i+1].Batches
				}
				return grants
			})
		}},
		{"deferred rows are not picked", []string{"pick returns pending and deferred rows"}, func(s Store, _ *facts) Store {
			return onPick{s, func(rows []storage.Row) []storage.Row {
				return slices.DeleteFunc(rows, func(r storage.Row) bool { return r.Deferred })
			}}
		}},
		{"all picked rows are returned as pending", []string{"pick returns pending and deferred rows"}, func(s Store, _ *facts) Store {
			return onPick{s, func(rows []storage.Row) []storage.Row {
				for i := range rows {
					rows[i].Deferred = false
				}
				return rows
			}}
		}},
		{"a calm renewal keeps the journal", []string{"journals are kept"}, func(s Store, _ *facts) Store {
			return eachRenewal(s, func(r *storage.Renewal) { r.Calm = false })
		}},
	}
}

func fenceMutants() []mutant {
	return []mutant{
		{"the fence is not compared", []string{"old fence changes nothing", "wrong fence changes nothing", "batch with current and lost leases", "batch with an old and the current lease", "next holder finds deferred rows and blocked keys"}, func(s Store, f *facts) Store {
			return eachSettlement(f.asOwner(s), func(settlement *storage.Settlement) { settlement.Fence = f.fence(settlement.Lane) })
		}},
		{"a fence that is too high is accepted", []string{"wrong fence changes nothing"}, func(s Store, f *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				settlement.Fence = min(settlement.Fence, f.fence(settlement.Lane))
			})
		}},
		{"fenced counts as missing", []string{"old fence changes nothing"}, func(s Store, _ *facts) Store {
			return counted(s, func(_ int, c storage.Settled) storage.Settled {
				return storage.Settled{Changed: c.Changed, Missing: c.Missing + c.Fenced}
			})
		}},
		{"one lost lane fences the batch", []string{"batch with current and lost leases", "batch with an old and the current lease"}, func(s Store, f *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				for _, settlement := range settlements {
					if settlement.Fence != f.fence(settlement.Lane) {
						return storage.Settled{Fenced: len(settlements)}, nil
					}
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"the fence is compared without locking the lane", []string{"settle that waits during a takeover", "settle races a takeover"}, func(s Store, f *facts) Store {
			return onSettle{s, f.settleWithoutLock(s)}
		}},
	}
}

// settleWithoutLock compares the fence, and writes some time later.
func (f *facts) settleWithoutLock(s Store) func(context.Context, string, bool, []storage.Settlement) (storage.Settled, error) {
	return func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
		settlements = slices.Clone(settlements)
		for i, settlement := range settlements {
			if f.fence(settlement.Lane) != settlement.Fence {
				return storage.Settled{Fenced: len(settlements)}, nil
			}
			settlements[i].Fence = 0
		}
		f.setWaiting(true)
		defer f.setWaiting(false)
		time.Sleep(4 * pause)
		for f.locked() {
			time.Sleep(pause)
		}
		for i, settlement := range settlements {
			settlements[i].Fence = f.fence(settlement.Lane)
		}
		return f.asOwner(s).Settle(ctx, name, keep, settlements)
	}
}

// asOwner returns a store that makes each settlement without a token in the name of
// the lane's owner.
func (f *facts) asOwner(s Store) Store {
	return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (total storage.Settled, err error) {
		of := map[string][]storage.Settlement{}
		for _, settlement := range settlements {
			owner := name
			if settlement.Token == "" {
				owner = f.owner(settlement.Lane)
			}
			of[owner] = append(of[owner], settlement)
		}
		for owner, settlements := range of {
			counts, err := s.Settle(ctx, owner, keep, settlements)
			if err != nil {
				return storage.Settled{}, err
			}
			total.Changed += counts.Changed
			total.Fenced += counts.Fenced
			total.Missing += counts.Missing
		}
		return total, nil
	}}
}
