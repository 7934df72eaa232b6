package sqlstore

import (
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
)

// An id becomes final when it is older than the longest transaction, or at most about one step later.
func TestTimeBoundTrailsByTheLongestTransaction(t *testing.T) {
	t.Parallel()
	const longest, step = time.Minute, 50 * time.Millisecond
	tr := timeBound{longest: longest}
	start := time.Unix(1e9, 0)
	for n := range int64(10_000) { // the id n is known after n steps
		safeID := tr.passed(n, start.Add(time.Duration(n)*step))
		oldest := n - int64(longest/step)
		if safeID > max(oldest, 0) {
			t.Fatalf("id %d is final after %v", safeID, time.Duration(n-safeID)*step)
		}
		if late := oldest - safeID; oldest > 0 && safeID > 0 && late > int64(longest/step/boundSteps)+1 {
			t.Fatalf("id %d isn't final after %v", safeID+1, time.Duration(n-safeID)*step)
		}
	}
	if len(tr.steps) > boundSteps+2 {
		t.Errorf("%d steps are kept", len(tr.steps))
	}
	if safeID := tr.passed(10_000, start.Add(time.Hour)); safeID < 9_980 {
		t.Errorf("an hour later the ids up to %d are final, want at least 9,980", safeID)
	}
}

// Without lists of open transactions the safe id trails the assigned ids by the duration of the longest
// transaction, and never decreases.
func TestOpenTxWithoutListsTrailsByTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	o := newOpenTx(7, now)
	o.bound = &timeBound{longest: time.Second}
	page := func(after time.Duration) (late, safeID int64) {
		now = now.Add(after)
		o.begins(now)
		return o.page("s", nil)
	}
	for _, want := range []struct {
		after        time.Duration
		learn        int64
		late, safeID int64
	}{
		{0, 0, untold, 0}, {500 * time.Millisecond, 0, 0, 0}, {500 * time.Millisecond, 20, 0, 7},
		{500 * time.Millisecond, 0, 7, 7}, {500 * time.Millisecond, 0, 7, 7}, {time.Second, 0, 7, 20}, {time.Millisecond, 0, 20, 20},
	} {
		if late, safeID := page(want.after); late != want.late || safeID != want.safeID {
			t.Errorf("at %v: late after %d, safe id %d; want %d, %d", now.Sub(time.Unix(1e9, 0)), late, safeID, want.late, want.safeID)
		}
		o.learn(want.learn)
	}
}

// If a page or a list comes from another server, the frontier discards its state.
func TestOpenTxRestartsOnAnotherServer(t *testing.T) {
	t.Parallel()
	for what, move := range map[string]func(*openTx, time.Time){
		"a page": func(o *openTx, now time.Time) { o.begins(now); o.page("t", nil) },
		"a list": func(o *openTx, now time.Time) { o.end(o.begin(now), backend.OpenList{Server: "t", Number: 3}, now) },
	} {
		now := time.Unix(1e9, 0)
		o := newOpenTx(500, now)
		o.server, o.safeID = "s", 400
		o.begins(now)
		o.page("s", nil)
		move(o, now)
		if !o.lost() || o.safeID != 0 {
			t.Errorf("%s from another server: the safe id is %d, want 0 and an unknown highest id", what, o.safeID)
		}
		o.found(30, now)
		if !o.due(now) {
			t.Errorf("%s from another server: no list is due", what)
		}
		o.begins(now)
		if late, safeID := o.page("t", nil); late != 0 || safeID != 0 {
			t.Errorf("%s from another server: late after %d, safe id %d; want 0, 0", what, late, safeID)
		}
	}
}

// After unusable lists the store makes lists less often, because the lists of several stores may make each
// other unusable.
func TestUnusableListsAreRequestedLessOften(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	o := newOpenTx(500, now)
	o.server, o.safeID = "s", 400
	for range 20 {
		now = o.next
		o.end(o.begin(now), backend.OpenList{}, now)
	}
	if o.safeID != 400 || o.lost() {
		t.Error("an unusable list was treated as another server's")
	}
	if pause := o.next.Sub(now); pause < vainlyEvery/2 || pause > vainlyEvery/2+listEvery {
		t.Errorf("after 20 unusable lists the next list is due in %v", pause)
	}
	if o.end(o.begin(now), backend.OpenList{Number: 9}, now); o.next.Sub(now) != listEvery {
		t.Errorf("after a usable list the next one is due in %v", o.next.Sub(now))
	}
}

// settled returns a frontier whose ids up to 500 are all final.
func settled(t *testing.T, number uint64) (o *openTx, now time.Time) {
	t.Helper()
	now = time.Unix(1e9, 0)
	o = newOpenTx(500, now)
	for o.safeID < 500 {
		now = now.Add(listEvery)
		o.end(o.begin(now), backend.OpenList{Server: "s", Number: number}, now)
		number++
	}
	o.begins(now)
	o.page("s", nil)
	if o.due(now.Add(time.Hour)) {
		t.Fatal("a list is due, although all ids are final")
	}
	return o, now
}

// A server that was restored from a copy has the name of the old server, and assigns transaction numbers
// and ids again. So the frontier discards its state. After a read that failed on the same server it
// keeps its state.
func TestOpenTxRestartsAfterTheServerWasRestored(t *testing.T) {
	t.Parallel()
	o, now := settled(t, 100)
	o.failed() // a read fails while the server is unavailable
	now = now.Add(listEvery)
	if !o.due(now) {
		t.Fatal("a read failed, but no list is due")
	}
	o.end(o.begin(now), backend.OpenList{Server: "s", Number: 90}, now)
	if !o.lost() {
		t.Error("the highest id of the old server is still used")
	}
	o.found(300, now)
	o.begins(now)
	if late, safeID := o.page("s", nil); late != 0 || safeID != 0 {
		t.Errorf("late after %d, safe id %d; want 0, 0", late, safeID)
	}
	o, now = settled(t, 100)
	o.failed()
	now = now.Add(listEvery)
	if o.end(o.begin(now), backend.OpenList{Server: "s", Number: 200}, now); o.lost() || o.safeID != 500 || o.due(now.Add(time.Hour)) {
		t.Error("a read failed on the same server, and the state was discarded")
	}
}

// The store warns of unusable lists at intervals, and only if no list is usable for some time.
func TestOpenTxReportsUnusableLists(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	o := newOpenTx(500, now)
	told := 0
	for start := now; now.Sub(start) < 100*time.Second; now = o.next {
		o.end(o.begin(now), backend.OpenList{Server: "s"}, now)
		if o.warning != "" {
			told, o.warning = told+1, ""
		}
	}
	if told != 3 {
		t.Errorf("warned %d times in 100 s, want 3", told)
	}
	for range 1000 {
		now = now.Add(listEvery)
		o.end(o.begin(now), backend.OpenList{Server: "s", Number: 1}, now)
		if now = now.Add(listEvery); now.Unix()%7 == 0 {
			o.end(o.begin(now), backend.OpenList{Server: "s"}, now)
		}
	}
	if o.warning != "" {
		t.Error("warned although most lists were usable")
	}
}
