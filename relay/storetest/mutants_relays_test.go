package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// told changes what Status returns.
func told(s Store, change func(*storage.Status)) Store {
	return onStatus{s, func(ctx context.Context) (storage.Status, error) {
		status, err := s.Status(ctx)
		change(&status)
		return status, err
	}}
}

// onFenceRelay changes FenceRelay.
type onFenceRelay struct {
	Store
	bury func(ctx context.Context, name string, claim storage.Claim) error
}

func (s onFenceRelay) FenceRelay(ctx context.Context, name string, claim storage.Claim) error {
	return s.bury(ctx, name, claim)
}

// onDeregister changes Deregister.
type onDeregister struct {
	Store
	deregister func(ctx context.Context, name string) error
}

func (s onDeregister) Deregister(ctx context.Context, name string) error {
	return s.deregister(ctx, name)
}

func burialMutants() []mutant {
	return []mutant{
		{"FenceRelay only deregisters the relay", []string{"fencing a relay ends its leases", "fencing a relay ends its claims"}, func(s Store, _ *facts) Store {
			return onFenceRelay{s, func(ctx context.Context, name string, claim storage.Claim) error { return s.Deregister(ctx, name) }}
		}},
		{"fenced relays are still listed as alive", []string{"fencing a relay ends its leases"}, func(s Store, _ *facts) Store {
			return onFenceRelay{s, func(ctx context.Context, name string, claim storage.Claim) error {
				err := s.FenceRelay(ctx, name, claim)
				_, beat := s.Heartbeat(ctx, storage.Identity{Name: name, Claim: claim}, time.Hour)
				return errors.Join(err, beat)
			}}
		}},
		{"fenced relays may renew until others have their lanes", []string{"fencing a relay ends its leases"}, func(s Store, _ *facts) Store {
			dead := map[string]storage.Claim{}
			later := onFenceRelay{s, func(ctx context.Context, name string, claim storage.Claim) error {
				dead[name] = claim
				return s.Deregister(ctx, name)
			}}
			return onAcquire{later, func(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
				for name, claim := range dead {
					if err := s.FenceRelay(ctx, name, claim); err != nil {
						return nil, err
					}
				}
				return s.Acquire(ctx, name, count, ttl)
			}}
		}},
		{"FenceRelay fences all relays", []string{"fencing a relay ends its leases", "fencing a relay ends its claims"}, func(s Store, _ *facts) Store {
			return onFenceRelay{s, func(ctx context.Context, name string, claim storage.Claim) error {
				return errors.Join(s.FenceRelay(ctx, name, claim), s.FenceRelay(ctx, "b", claim), s.FenceRelay(ctx, "c", claim))
			}}
		}},
	}
}

func statusMutants() []mutant {
	return []mutant{
		{"states without rows are left out", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) {
				for state, count := range status.Counts {
					if count == 0 {
						delete(status.Counts, state)
					}
				}
			})
		}},
		{"scheduled counts as pending", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) {
				status.Counts[storage.StatePending] += status.Counts[storage.StateScheduled]
				status.Counts[storage.StateScheduled] = 0
			})
		}},
		{"status has no topics", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { clear(status.Topics) })
		}},
		{"the status shows dead relays as alive", []string{"status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) {
				for i := range status.Relays {
					status.Relays[i].Alive = true
				}
			})
		}},
		{"the status has no lanes", []string{"status counts", "calls in an ended context change nothing"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { status.LanesLeased = 0 })
		}},
		{"claimed counts as pending", []string{"status counts claims"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) {
				status.Counts[storage.StatePending] += status.Counts[storage.StateClaimed]
				status.Counts[storage.StateClaimed] = 0
			})
		}},
		{"rows that can't be delivered have an age, too", []string{"status shows the oldest pending row", "status counts"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { status.OldestPending += time.Second })
		}},
		{"pending rows have no age", []string{"status shows the oldest pending row", "retention begins when a row finishes"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) { status.OldestPending = 0 })
		}},
	}
}

// inOldWay runs the function work. If the store returns ErrOtherClaim, inOldWay changes the claim
// mode to rows, runs the function again, and changes the mode back to lanes.
func inOldWay(ctx context.Context, s Store, work func() error) error {
	if err := work(); !errors.Is(err, storage.ErrOtherClaim) {
		return err
	}
	if err := s.SetClaimMode(ctx, storage.ByRows); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err
	}
	return s.SetClaimMode(ctx, storage.ByLanes)
}

func relayMutants() []mutant {
	return []mutant{
		{"heartbeats last half their TTL", []string{"relays are members while they are alive"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				return s.Heartbeat(ctx, self, ttl/2)
			}}
		}},
		{"the time of heartbeats is off by an hour", []string{"heartbeat returns the database's time"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				members, err := s.Heartbeat(ctx, self, ttl)
				members.Now = members.Now.Add(time.Hour)
				return members, err
			}}
		}},
		{"heartbeats have no time", []string{"heartbeat returns the database's time"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				members, err := s.Heartbeat(ctx, self, ttl)
				members.Now = time.Time{}
				return members, err
			}}
		}},
		{"heartbeats last for an hour", []string{"relays are members while they are alive", "claim mode can't change while relays use it", "status counts"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, _ time.Duration) (storage.Members, error) {
				return s.Heartbeat(ctx, self, time.Hour)
			}}
		}},
		{"a heartbeat doesn't return its own relay", []string{"relays are members while they are alive"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				members, err := s.Heartbeat(ctx, self, ttl)
				members.Relays = slices.DeleteFunc(members.Relays, func(m storage.Member) bool { return m.Name == self.Name })
				return members, err
			}}
		}},
		{"the first configuration of a relay is kept", []string{"relays are members while they are alive"}, func(s Store, _ *facts) Store {
			first := map[string]storage.Config{}
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				if _, ok := first[self.Name]; !ok && self.Config.Print != "" {
					first[self.Name] = self.Config
				}
				self.Config = first[self.Name]
				return s.Heartbeat(ctx, self, ttl)
			}}
		}},
		{"a relay receives its own configuration for all relays", []string{"relays are members while they are alive"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				members, err := s.Heartbeat(ctx, self, ttl)
				for i := range members.Relays {
					members.Relays[i].Config = self.Config
				}
				return members, err
			}}
		}},
		{"the status has no configurations", []string{"relays are members while they are alive"}, func(s Store, _ *facts) Store {
			return told(s, func(status *storage.Status) {
				for i := range status.Relays {
					status.Relays[i].Config = storage.Config{}
				}
			})
		}},
		{"the claim mode is changed while relays are alive", []string{"claim mode can't change while relays use it"}, func(s Store, f *facts) Store {
			return onAdopt{s, func(ctx context.Context, claim storage.Claim) error {
				_ = s.SetClaimMode(ctx, claim)
				return nil
			}}
		}},
		{"the claim mode never changes", []string{"claim mode can't change while relays use it", "claim mode change resets marks and claims"}, func(s Store, f *facts) Store {
			return onAdopt{s, func(ctx context.Context, claim storage.Claim) error {
				if status, err := s.Status(ctx); err != nil || status.Claim != "" && status.Claim != claim {
					return storage.ErrOtherClaim
				}
				return s.SetClaimMode(ctx, claim)
			}}
		}},
		{"heartbeats of another claim mode are accepted", []string{"claim mode can't change while relays use it"}, func(s Store, f *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				members, err := s.Heartbeat(ctx, self, ttl)
				if errors.Is(err, storage.ErrOtherClaim) {
					err = nil
				}
				return members, err
			}}
		}},
		{"leases outlive a change of the claim mode", []string{"claim mode change fences old relays"}, func(s Store, f *facts) Store {
			return counted(s, func(_ int, c storage.Settled) storage.Settled {
				return storage.Settled{Changed: c.Changed + c.Fenced, Missing: c.Missing}
			})
		}},
		{"marks outlive a change of the claim mode", []string{"claim mode change resets marks and claims"}, func(s Store, _ *facts) Store {
			return eachGrant(s, func(g *storage.Grant) { g.Marks.Main = 1 })
		}},
		{"claims outlive a change of the claim mode", []string{"claim mode change resets marks and claims"}, func(s Store, f *facts) Store {
			return paged(s, func(page *storage.Page) {
				page.Rows = slices.DeleteFunc(page.Rows, func(row storage.Row) bool { return f.token(row.ID) != "" })
			})
		}},
		{"a claim works on a table claimed by lanes", []string{"claim mode change ends claims"}, func(s Store, _ *facts) Store {
			return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) (rows []storage.Row, err error) {
				err = inOldWay(ctx, s, func() error { rows, err = s.Claim(ctx, request); return err })
				return rows, err
			}}
		}},
		{"Extend works on a table claimed by lanes", []string{"claim mode change ends claims"}, func(s Store, _ *facts) Store {
			return onExtend{s, func(ctx context.Context, token string, ids []int64, ttl time.Duration) (still []int64, err error) {
				err = inOldWay(ctx, s, func() error { still, err = s.Extend(ctx, token, ids, ttl); return err })
				return still, err
			}}
		}},
		{"deferred rows are moved back in a table claimed by lanes", []string{"claim mode change ends claims"}, func(s Store, _ *facts) Store {
			return onReclaim{s, func(ctx context.Context, limit int) (freed int, err error) {
				err = inOldWay(ctx, s, func() error { freed, err = s.Reclaim(ctx, limit); return err })
				return freed, err
			}}
		}},
		{"settlements after a change of the claim mode count as changed", []string{"claim mode change during settles by token", "claim mode change ends claims"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				settled, err := s.Settle(ctx, name, keep, settlements)
				return storage.Settled{Changed: settled.Changed + settled.Fenced + settled.Missing}, err
			}}
		}},
		{"Purge exceeds its limit", []string{"purge obeys the retention"}, func(s Store, _ *facts) Store {
			return onPurge{s, func(ctx context.Context, retention time.Duration, _ int) (int, error) {
				return s.Purge(ctx, retention, plenty)
			}}
		}},
		{"purge ignores the retention", []string{"purge obeys the retention", "retention begins when a row finishes"}, func(s Store, _ *facts) Store {
			return onPurge{s, func(ctx context.Context, _ time.Duration, limit int) (int, error) {
				return s.Purge(ctx, -time.Hour, limit)
			}}
		}},
		{"Purge deletes parked rows, too", []string{"purge obeys the retention"}, func(s Store, _ *facts) Store {
			return onPurge{s, func(ctx context.Context, retention time.Duration, limit int) (int, error) {
				if _, err := s.Discard(ctx, storage.Filter{}); err != nil {
					return 0, err
				}
				return s.Purge(ctx, retention, limit)
			}}
		}},
		{"ended contexts are ignored", []string{"calls in an ended context change nothing"}, func(s Store, _ *facts) Store {
			return onBeat{s, func(ctx context.Context, self storage.Identity, ttl time.Duration) (storage.Members, error) {
				return s.Heartbeat(context.WithoutCancel(ctx), self, ttl)
			}}
		}},
	}
}
