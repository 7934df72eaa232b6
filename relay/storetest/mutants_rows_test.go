package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// requested changes the arguments of Claim.
func requested(s Store, change func(*storage.ClaimRequest)) Store {
	return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
		change(&request)
		return s.Claim(ctx, request)
	}}
}

// eachClaimed changes the rows that Claim returns.
func eachClaimed(s Store, change func(*storage.Row)) Store {
	return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
		rows, err := s.Claim(ctx, request)
		return changed(rows, change), err
	}}
}

func claimMutants() []mutant {
	return []mutant{
		{"Claim exceeds its limit", []string{"claims are distinct", "claim obeys the pick"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Limit++ })
		}},
		{"Claim ignores the byte limit", []string{"claim obeys the byte limit"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.MaxBytes = 0 })
		}},
		{"claimed rows are not marked", []string{"claims are distinct", "claim obeys the pick"}, func(s Store, _ *facts) Store {
			return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
				rows, err := s.Claim(ctx, request)
				if err != nil {
					return nil, err
				}
				_, err = s.Settle(ctx, request.Relay, true, allClaimed(request.Token, storage.StatePending, rows))
				return rows, err
			}}
		}},
		{"claims without a prompt find no rows", []string{"reclaim frees expired claims"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) {
				if r.Unprompted {
					r.Limit = 0
				}
			})
		}},
		{"claims return one row less than their limit", []string{"claims are distinct"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Limit-- })
		}},
		{"the limit of a claim includes locked rows", []string{"claim skips locked rows"}, func(s Store, f *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Limit = max(0, r.Limit-f.lockedRows()) })
		}},
		{"a claim waits for locked rows", []string{"claim skips locked rows"}, func(s Store, f *facts) Store {
			return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
				for f.locked() {
					if time.Sleep(pause); ctx.Err() != nil {
						return nil, ctx.Err()
					}
				}
				return s.Claim(ctx, request)
			}}
		}},
		{"locked rows are claimed", []string{"claim skips locked rows"}, func(s Store, f *facts) Store {
			return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
				f.unlock()
				return s.Claim(ctx, request)
			}}
		}},
		{"claims always begin with the oldest rows", []string{"claim obeys the pick"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Pick = storage.Oldest })
		}},
		{"claimed rows are returned in any order", []string{"claim obeys the pick"}, func(s Store, _ *facts) Store {
			return onClaim{s, func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
				rows, err := s.Claim(ctx, request)
				slices.Reverse(rows)
				return rows, err
			}}
		}},
		{"topics are ignored", []string{"claim obeys topics"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Topics = nil })
		}},
		{"Except is ignored", []string{"claim obeys topics"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Except = nil })
		}},
		{"Except is ignored if topics are given", []string{"claim obeys topics"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) {
				if len(r.Topics) > 0 {
					r.Except = nil
				}
			})
		}},
		{"no claimed row has Later set", []string{"claim returns the message"}, func(s Store, _ *facts) Store {
			return eachClaimed(s, func(row *storage.Row) { row.Later = false })
		}},
		{"claims have no relay name", []string{"claim returns the message"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.Relay = "" })
		}},
		{"the token is not checked", []string{"settle by token", "reclaim frees expired claims"}, func(s Store, f *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Token = f.token(settlement.ID) })
		}},
		{"Extend ignores the token", []string{"extend keeps the claim"}, func(s Store, f *facts) Store {
			return onExtend{s, func(ctx context.Context, _ string, ids []int64, ttl time.Duration) (still []int64, err error) {
				for _, id := range ids {
					one, err := s.Extend(ctx, f.token(id), []int64{id}, ttl)
					if err != nil {
						return nil, err
					}
					still = append(still, one...)
				}
				return still, nil
			}}
		}},
		{"Extend extends no claim", []string{"extend keeps the claim"}, func(s Store, _ *facts) Store {
			return onExtend{s, func(ctx context.Context, token string, ids []int64, _ time.Duration) ([]int64, error) {
				return s.Extend(ctx, token, ids, short/2)
			}}
		}},
		{"Extend reports that all rows were held", []string{"extend keeps the claim"}, func(s Store, _ *facts) Store {
			return onExtend{s, func(ctx context.Context, token string, ids []int64, ttl time.Duration) ([]int64, error) {
				_, err := s.Extend(ctx, token, ids, ttl)
				return ids, err
			}}
		}},
		{"rows that are settled as pending are deferred", []string{"settle as pending frees the row", "settle by token"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.State == storage.StatePending {
					settlement.State = storage.StateRetry
				}
			})
		}},
	}
}

func reclaimMutants() []mutant {
	return []mutant{
		{"claims end early", []string{"reclaim frees expired claims"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.TTL /= 2 })
		}},
		{"claims never end", []string{"reclaim frees expired claims", "reclaim concurrently"}, func(s Store, _ *facts) Store {
			return requested(s, func(r *storage.ClaimRequest) { r.TTL = time.Hour })
		}},
		{"crashes of claims are not counted", []string{"reclaim frees expired claims", "reclaim concurrently"}, func(s Store, _ *facts) Store {
			return eachClaimed(s, func(row *storage.Row) { row.Crashes = 0 })
		}},
		{"rows are freed twice", []string{"reclaim frees expired claims", "reclaim concurrently"}, func(s Store, _ *facts) Store {
			return onReclaim{s, func(ctx context.Context, limit int) (int, error) {
				freed, err := s.Reclaim(ctx, limit)
				return 2 * freed, err
			}}
		}},
		{"Reclaim exceeds its limit", []string{"reclaim concurrently"}, func(s Store, _ *facts) Store {
			return onReclaim{s, func(ctx context.Context, limit int) (int, error) { return s.Reclaim(ctx, limit+1) }}
		}},
		{"rows that are moved back lose their attempts", []string{"reclaim moves due rows back", "settle as pending frees the row"}, func(s Store, _ *facts) Store {
			return eachClaimed(s, func(row *storage.Row) { row.Attempts = 0 })
		}},
		{"parked rows are moved back", []string{"reclaim moves due rows back"}, func(s Store, _ *facts) Store {
			return onReclaim{s, func(ctx context.Context, limit int) (int, error) {
				if _, err := s.Requeue(ctx, storage.Filter{}); err != nil {
					return 0, err
				}
				return s.Reclaim(ctx, limit)
			}}
		}},
		{"rows are moved back before they are due", []string{"reclaim moves due rows back"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Delay = 0 })
		}},
		{"no row is moved back", []string{"reclaim moves due rows back", "requeue when claiming by rows"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.State != storage.StateDone {
					settlement.State, settlement.Delay = storage.StateRetry, 24*time.Hour
				}
			})
		}},
	}
}
