package relay

import "testing"

// A page makes a scan for late rows needless only where it shows the whole lane
// from there on.
func TestWhatAPageBrings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *readResult, l *lane)
		after  int64
		want   bool
	}{
		"from there on":             {after: 10, want: true},
		"from before it":            {after: 11, want: true},
		"from behind it":            {after: 9},
		"another kind of read":      {after: 10, change: func(r *readResult, _ *lane) { r.job.kind = readOutlet }},
		"a page that was cut off":   {after: 10, change: func(r *readResult, _ *lane) { r.page.More = true }},
		"another lane":              {after: 10, change: func(_ *readResult, l *lane) { l.Lane = 4 }},
		"a lane that is given up":   {after: 10, change: func(_ *readResult, l *lane) { l.draining = true }},
		"what is to be found again": {after: 10, change: func(_ *readResult, l *lane) { l.recheck = 10 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &lane{Lease: Lease{Lane: 3}, cursor: 20, recheck: none}
			r := &readResult{job: readJob{kind: readLanes, positions: []Position{{Lane: 3, After: 10}}}}
			if c.change != nil {
				c.change(r, l)
			}
			if got := r.brings(l, c.after); got != c.want {
				t.Errorf("brings what is above %d: %v, want %v", c.after, got, c.want)
			}
		})
	}
}

// What is read once more must neither fill pages nor reach far back.
func TestHowFarALookReadsAgain(t *testing.T) {
	t.Parallel()
	e := &engine{lanes: map[int]*lane{0: {cursor: 90}, 1: {cursor: 1000}}}
	for _, step := range []struct{ lateAfter, want int64 }{
		{-1, 1000}, {995, 995}, {998, 995}, {0, 995}, {900, 900}, {1000, 912}, {-1, 912},
	} {
		e.learnLag(step.lateAfter)
		if got := e.readAgain(); got != step.want {
			t.Errorf("after late rows above %d: reads again above %d, want %d", step.lateAfter, got, step.want)
		}
	}
	e.read.rowBytes = againBytes
	e.read.lag = 0
	e.learnLag(990)
	if got := e.readAgain(); got != 1000 {
		t.Errorf("large rows are read again above %d", got)
	}
}
