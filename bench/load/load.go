// Package load is an open loop: it starts work at times that were fixed in advance, however long
// the work takes. So work that takes long doesn't delay the work that follows.
package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Schedule describes arrivals at random times (a Poisson process). The times are the same in
// each run.
type Schedule struct {
	Rate    float64 // mean arrivals per second
	Count   int
	Workers int // the largest number of arrivals that are handled concurrently
}

// arrival is one scheduled arrival: its number, and its time.
type arrival struct {
	n  int
	at time.Time
}

// Kept reports how closely a run followed its schedule.
type Kept struct {
	Slip time.Duration // the 99th percentile of the delays from an arrival to the start of its work
	Rate float64       // arrivals handled per second; the schedule's own rate if the last arrival was handled in time
}

// Run calls work for each arrival.
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

// arrive sends the arrivals at their times. It returns the time from the start to the last
// arrival.
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
