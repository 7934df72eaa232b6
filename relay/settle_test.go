package relay

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// TestSettlerStart checks the sizes of the settlements that start, for the numbers of waiting items and of items in flight in
// each list.
func TestSettlerStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kept              bool // done rows are kept
		waiting, inFlight [settlers]int
		want              []int
	}{
		"nothing":                                {},
		"one for both queues":                    {waiting: [2]int{3, 4}, want: []int{7}},
		"one queue":                              {waiting: [2]int{0, 4}, want: []int{4}},
		"as many as fit":                         {waiting: [2]int{settleBatch / 2, settleBatch / 2}, want: []int{settleBatch}},
		"fewer if done rows are kept":            {kept: true, waiting: [2]int{settleBatch / 2, settleBatch / 2}, want: []int{settleBatch / 2, settleBatch / 2}},
		"and a short list suffices then":         {kept: true, waiting: [2]int{settleBatch / 4, 0}, inFlight: [2]int{0, 1}, want: []int{settleBatch / 4}},
		"one for each queue":                     {waiting: [2]int{settleBatch, 1}, want: []int{settleBatch, 1}},
		"at most as many as fit":                 {waiting: [2]int{3 * settleBatch, 0}, want: []int{settleBatch}},
		"a short list waits for the other queue": {waiting: [2]int{5, 0}, inFlight: [2]int{0, 1}},
		"a long list doesn't wait":               {waiting: [2]int{settleBatch / 2, 0}, inFlight: [2]int{0, 1}, want: []int{settleBatch / 2}},
		"a queue has one settlement at a time":   {waiting: [2]int{settleBatch, 0}, inFlight: [2]int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSettler(&base{}, nil, settlers, nil, nil)
			if !c.kept {
				s.base.options.Retention = KeepNothing
			}
			for i := range settlers {
				s.lists[i].inFlight = c.inFlight[i]
				for range c.waiting[i] {
					s.add(&item{lane: &lane{}, row: storage.Row{Lane: i}}, result{})
				}
			}
			s.start(time.Now(), 0)
			var got []int
			for len(s.jobs) > 0 {
				got = append(got, checkJob(t, <-s.jobs))
			}
			if len(got) != len(c.want) || len(got) > 0 && got[0] != c.want[0] || len(got) > 1 && got[1] != c.want[1] {
				t.Errorf("settlements of %v rows, want %v", got, c.want)
			}
		})
	}
}

func checkJob(t *testing.T, job settleJob) int {
	t.Helper()
	at := 0
	for queue, n := range job.of {
		for range n {
			if job.items[at].row.Lane != queue {
				t.Fatalf("item %d of the settlement isn't from list %d", at, queue)
			}
			at++
		}
	}
	if at != len(job.items) {
		t.Errorf("the job has %d items, but its field of counts %d", len(job.items), at)
	}
	return at
}

// The outcomes of a failed settlement are written before newer ones, each in its list.
func TestFailedSettlementIsRepeatedFirst(t *testing.T) {
	t.Parallel()
	s := newSettler(&base{options: Options{Observer: NoObserver{}, Logger: slog.New(slog.DiscardHandler)}, health: &health{epoch: time.Now()}}, nil, settlers, nil, nil)
	add := func(ids ...int64) {
		for _, id := range ids {
			s.add(&item{lane: &lane{}, row: storage.Row{ID: id, Lane: int(id % settlers)}}, result{})
		}
	}
	add(1, 2, 3)
	s.start(time.Now(), 0)
	add(4, 5)
	s.writeAgain(<-s.jobs, errors.New("the connection broke"))
	for queue, want := range [settlers][]int64{{2, 4}, {1, 3, 5}} {
		q := &s.lists[queue]
		if q.inFlight != 0 || !q.retryAt.After(time.Now().Add(-time.Second)) || len(q.unwritten) != len(want) {
			t.Fatalf("list %d: %d items are in flight and %d wait, want %v", queue, q.inFlight, len(q.unwritten), want)
		}
		for i, id := range want {
			if it := q.unwritten[i]; it.row.ID != id {
				t.Errorf("list %d, item %d: row %d, want %d", queue, i, it.row.ID, id)
			}
		}
	}
}

// If a store allows no concurrent settlements, the rows of all lanes are written in one settlement at a time.
func TestSettlerWritesOneSettlementAtATime(t *testing.T) {
	t.Parallel()
	of := &lane{}
	s := newSettler(&base{}, nil, 1, nil, nil)
	add := func(count int) {
		for lane := range count {
			s.add(&item{lane: of, row: storage.Row{Lane: lane % storage.Lanes}}, result{})
		}
		s.start(time.Now(), 0)
	}
	add(settleBatch + 1)
	add(settleBatch)
	if n := len(s.jobs); n != 1 {
		t.Fatalf("%d concurrent settlements", n)
	}
	if job := <-s.jobs; job.of[0] != settleBatch || len(job.items) != settleBatch || s.count() != 2*settleBatch+1 {
		t.Errorf("the settlement has %d rows, and %d outcomes are unwritten", len(job.items), s.count())
	}
}
