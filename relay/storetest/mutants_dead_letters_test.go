package storetest

import (
	"context"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func deadLetterMutants() []mutant {
	return []mutant{
		{"no dead letter is written", []string{"dead letters are written", "dead letters are written once", "dead letters in order", "dead letters require the claim's token", "a dead letter is written for each sink", "dead letters concurrently"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) { settlement.DeadLetter = nil })
		}},
		{"a dead letter has no headers", []string{"dead letters are written"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.DeadLetter != nil {
					bare := *settlement.DeadLetter
					bare.Headers = ""
					settlement.DeadLetter = &bare
				}
			})
		}},
		{"a dead letter is for all sinks", []string{"dead letters are written"}, func(s Store, _ *facts) Store {
			return eachSettlement(s, func(settlement *storage.Settlement) {
				if settlement.DeadLetter != nil {
					all := *settlement.DeadLetter
					all.Sinks = ""
					settlement.DeadLetter = &all
				}
			})
		}},
		{"a settlement that changes nothing writes its dead letter", []string{"dead letters are written once", "dead letters require the claim's token", "a dead letter is written for each sink", "dead letters concurrently"}, func(s Store, f *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (storage.Settled, error) {
				counts, err := s.Settle(ctx, name, keep, settlements)
				for i := range settlements {
					if letter := settlements[i].DeadLetter; letter != nil && err == nil && counts.Changed == 0 {
						f.table.Write(outbox.Message{ID: letter.MessageID, Topic: letter.Topic})
					}
				}
				return counts, err
			}}
		}},
		{"dead letters are written in the order of the settlements", []string{"dead letters in order"}, func(s Store, _ *facts) Store {
			return onSettle{s, func(ctx context.Context, name string, keep bool, settlements []storage.Settlement) (total storage.Settled, err error) {
				for i := range settlements {
					counts, failed := s.Settle(ctx, name, keep, settlements[i:i+1])
					total.Changed += counts.Changed
					total.Fenced += counts.Fenced
					total.Missing += counts.Missing
					if failed != nil {
						err = failed
					}
				}
				return total, err
			}}
		}},
	}
}
