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

// Run does work for each arrival, and returns how late the latest of a hundred
// began, because the machine or all workers were busy.
func (s Schedule) Run(ctx context.Context, work func(ctx context.Context, n int) error) (slip time.Duration, err error) {
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
	s.arrive(ctx, arrivals)
	workers.Wait()
	slices.Sort(slips)
	return slips[len(slips)*99/100], errors.Join(errs...)
}

func (s Schedule) arrive(ctx context.Context, arrivals chan<- arrival) {
	defer close(arrivals)
	random := rand.New(rand.NewPCG(1, 2))
	at := time.Now()
	for n := range s.Count {
		at = at.Add(time.Duration(random.ExpFloat64() / s.Rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(at)):
		}
		arrivals <- arrival{n, at}
	}
}
