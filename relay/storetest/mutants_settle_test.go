package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// eachSettlement changes the settlements of Settle.
func eachSettlement(s Store, change func(*storage.Settlement)) Store {
	return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
		settlements = slices.Clone(settlements)
		for i := range settlements {
			change(&settlements[i])
		}
		return s.Settle(ctx, name, keep, settlements)
	}}
}

// counted changes the counts that Settle returns. The function change also gets the number of
// settlements.
func counted(s Store, change func(int, storage.Settled) storage.Settled) Store {
	return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
		counts, err := s.Settle(ctx, name, keep, settlements)
		return change(len(settlements), counts), err
	}}
}

// settleBetween settles as done the rows between two successive settlements of a lane, if the first
// one is done.
func settleBetween(ctx context.Context, s Store, name string, keep bool, settlements []storage.Settlement) error {
	var between []storage.Settlement
	for i := 1; i < len(settlements); i++ {
		before, after := settlements[i-1], settlements[i]
		for id := before.ID + 1; before.State == storage.StateDone && before.Lane == after.Lane && before.Token == "" && id < after.ID; id++ {
			before.ID = id
			if err := takeTheRows(ctx, s, &before); err != nil {
				return err
			}
			between = append(between, before)
		}
	}
	_, err := s.Settle(ctx, name, keep, between)
	return err
}

// discardsAs settles discarded rows to another state.
func discardsAs(s Store, state storage.State) Store {
	return eachSettlement(s, func(settlement *storage.Settlement) {
		if settlement.State == storage.StateDiscarded {
			settlement.State = state
		}
	})
}

func settleMutants() []mutant {
	return []mutant{
		{"discarded rows are kept as done", []string{"discarded rows are deleted", "discard by token", "discard unblocks a held key"}, func(s Store, _ *facts) Store { return discardsAs(s, storage.StateDone) }},
		{"failed attempts are not kept", []string{"failed attempts are kept", "failed attempts of a batch", "failed attempts of each sink", "failed attempts when claiming by rows", "logs of failed attempts are limited"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Failed = nil })
		}},
		{"only the first failed attempt of a settlement is kept", []string{"failed attempts are kept", "failed attempts of a batch", "failed attempts of each sink", "logs of failed attempts are limited"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				settlement.Failed = settlement.Failed[:min(1, len(settlement.Failed))]
			})
		}},
		{"discarded rows are parked", []string{"discarded rows are deleted", "discard by token", "discard unblocks a held key"}, func(s Store, _ *facts) Store { return discardsAs(s, storage.StateError) }},
		{"missing rows count as changed", []string{"settle twice", "parked rows can't be settled", "settle concurrently", "settle by token"}, func(s Store, _ *facts) Store {
			return counted(s, func(given int, c storage.Settled) storage.Settled {
				return storage.Settled{Changed: given - c.Fenced, Fenced: c.Fenced}
			})
		}},
		{"a missing row is an error", []string{"settle twice"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				counts, err := s.Settle(ctx, name, keep, settlements)
				if counts.Missing > 0 {
					err = errors.New("a row is missing")
				}
				return counts, err
			}}
		}},
		{"a parked row is settled", []string{"parked rows can't be settled"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				for _, settlement := range settlements {
					if _, err := s.Requeue(ctx, storage.Filter{IDs: []string{strconv.FormatInt(settlement.ID, 10)}}); err != nil {
						return storage.Settled{}, err
					}
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"rows between settled rows are settled, too", []string{"settle some rows of a key"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				if err := settleBetween(ctx, s, name, keep, settlements); err != nil {
					return storage.Settled{}, err
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"a batch ends after 1,000 settlements", []string{"settle a mixed batch"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				cut := min(1000, len(settlements))
				counts, err := s.Settle(ctx, name, keep, settlements[:cut])
				counts.Changed += len(settlements) - cut
				return counts, err
			}}
		}},
		{"a batch has the attempts of its first row", []string{"settle a mixed batch"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				settlements = slices.Clone(settlements)
				for i := range settlements {
					settlements[i].Attempts = settlements[0].Attempts
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"an empty batch is an error", []string{"settle an empty batch"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				if len(settlements) == 0 {
					return storage.Settled{}, errors.New("a syntax error near )")
				}
				return s.Settle(ctx, name, keep, settlements)
			}}
		}},
		{"a settlement can't be cancelled", []string{"cancelled settle writes all or nothing", "calls in an ended context change nothing"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				return s.Settle(context.WithoutCancel(ctx), name, keep, settlements)
			}}
		}},
		{"a cancelled settlement has written half", []string{"cancelled settle writes all or nothing"}, func(s Store, f *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (counts storage.Settled, err error) {
				for _, settlement := range settlements {
					one, err := s.Settle(ctx, name, keep, []storage.Settlement{settlement})
					if err != nil {
						return storage.Settled{}, err
					}
					counts.Changed += one.Changed
					counts.Missing += one.Missing
					counts.Fenced += one.Fenced
				}
				return counts, nil
			}}
		}},
		{"retries are due early", []string{"retry is due after its delay"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Delay /= 2 })
		}},
		{"a retry stays pending", []string{"retry is due after its delay"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(_ context.Context, _ string, _ bool, settlements []storage.Settlement) (storage.Settled, error) {
				return storage.Settled{Changed: len(settlements)}, nil
			}}
		}},
		{"a row settled as scheduled is a retry", []string{"scheduled keeps its time", "due distinguishes retries from scheduled rows", "retries block their keys"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.State == storage.StateScheduled {
					settlement.State = storage.StateRetry
				}
			})
		}},
		{"done rows are always kept", []string{"done rows are deleted"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, _ bool, settlements []storage.Settlement) (storage.Settled, error) {
				return s.Settle(ctx, name, true, settlements)
			}}
		}},
		{"done rows are never kept", []string{"moves keep the message", "settle a mixed batch", "purge obeys the retention"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, _ bool, settlements []storage.Settlement) (storage.Settled, error) {
				return s.Settle(ctx, name, false, settlements)
			}}
		}},
		{"the error is lost", []string{"moves keep the message", "filters select"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Error = "" })
		}},
		{"the receipt is lost", []string{"moves keep the message"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Receipt = "" })
		}},
		{"crashes of a row are lost", []string{"moves keep the message", "settle as pending frees the row"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.Crashes = 0 })
		}},
	}
}

// messageMutants returns mutants that change a message.
func messageMutants() []mutant {
	change := func(mistake string, change func(*storage.Row)) mutant {
		return mutant{mistake, []string{"moves keep the message", "claim returns the message"}, func(s Store, _ *facts) Store {
			return onClaim{eachRead(s, change), func(ctx context.Context, request storage.ClaimRequest) ([]storage.Row, error) {
				rows, err := s.Claim(ctx, request)
				return changed(rows, change), err
			}}
		}}
	}
	return []mutant{
		change("a NULL payload becomes empty", func(row *storage.Row) { row.Message.Payload = append([]byte{}, row.Message.Payload...) }),
		change("an empty payload becomes NULL", func(row *storage.Row) { row.Message.Payload = append([]byte(nil), row.Message.Payload...) }),
		change("the headers are lost", func(row *storage.Row) { row.Message.Headers = nil }),
		change("the message has another id", func(row *storage.Row) { row.Message.ID = "0197a3b4-ffff-7abc-8def-0123456789ab" }),
		change("the priority is lost", func(row *storage.Row) { row.Message.Priority = 0 }),
		change("a backslash is an escape", func(row *storage.Row) {
			if payload := row.Message.Payload; len(payload) > 0 {
				row.Message.Payload = bytes.ReplaceAll(payload, []byte(`\\`), []byte(`\`))
			}
		}),
		change("a message never expires", func(row *storage.Row) { row.Message.ExpiresAt = time.Time{} }),
		change("a message expires an hour late", func(row *storage.Row) {
			if at := &row.Message.ExpiresAt; !at.IsZero() {
				*at = at.Add(time.Hour)
			}
		}),
		{"the time of creation is off by an hour", []string{"moves keep the message"}, func(s Store, _ *facts) Store {
			return eachRead(s, func(row *storage.Row) { row.CreatedAt = row.CreatedAt.Add(time.Hour) })
		}},
		{"AvailableAt is off by an hour", []string{"moves keep the message", "scheduled keeps its time"}, func(s Store, _ *facts) Store {
			return onList{eachRead(s, hourLater), func(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
				infos, err := s.List(ctx, filter)
				for i := range infos {
					hourLater(&infos[i].Row)
				}
				return infos, err
			}}
		}},
	}
}

func hourLater(row *storage.Row) {
	if at := &row.Message.AvailableAt; !at.IsZero() {
		*at = at.Add(time.Hour)
	}
}
