// Package load does something at times that were fixed before, however long it
// takes: an open loop. What comes late doesn't make the next wait.
package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Schedule is a number of arrivals at random times (Poisson), the same ones each
// time.
type Schedule struct {
	Rate    float64 // a second, in the mean
	Count   int
	Workers int // how many may be under way at once
}

// arrival is one of them, and its time.
type arrival struct {
	n  int
	at time.Time
}

// Kept is how well a schedule was kept.
type Kept struct {
	Slip time.Duration // how late the latest of a hundred began, because the machine or all workers were busy
	Rate float64       // a second, that was reached; the schedule's own if the last one ended in time
}

// Run does work for each arrival.
func (s Schedule) Run(ctx context.Context, work func(ctx context.Context, n int) error) (Kept, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arrivals := make(chan arrival, s.Count)
	slips, errs := make([]time.Duration, s.Count), make([]error, s.Workers)
	var workers sync.WaitGroup
	for worker := range s.Workers {
		workers.Go(func() {
			for a := range arrivals {
				slips[a.n] = time.Since(a.at)
				if errs[worker] = work(ctx, a.n); errs[worker] != nil {
					cancel()
					return
				}
			}
		})
	}
	began := time.Now()
	planned := s.arrive(ctx, arrivals)
	workers.Wait()
	took := max(planned, time.Since(began))
	slices.Sort(slips)
	return Kept{slips[len(slips)*99/100], s.Rate * float64(planned) / float64(took)}, errors.Join(errs...)
}

// arrive returns when the last one was to arrive, after the beginning.
func (s Schedule) arrive(ctx context.Context, arrivals chan<- arrival) (planned time.Duration) {
	defer close(arrivals)
	random := rand.New(rand.NewPCG(1, 2))
	began := time.Now()
	for n := range s.Count {
		planned += time.Duration(random.ExpFloat64() / s.Rate * float64(time.Second))
		at := began.Add(planned)
		select {
		case <-ctx.Done():
			return planned
		case <-time.After(time.Until(at)):
		}
		arrivals <- arrival{n, at}
	}
	return planned
}
