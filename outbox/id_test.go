package outbox

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// version7 is the form of RFC 9562: version 7, variant 10.
var version7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestNewIDIsAUUIDv7(t *testing.T) {
	t.Parallel()
	before := time.Now().Add(-time.Second)
	for range 1000 {
		id := NewID()
		if !version7.MatchString(id) {
			t.Fatalf("NewID() = %s", id)
		}
		milliseconds, err := strconv.ParseInt(id[:8]+id[9:13], 16, 64)
		if at := time.UnixMilli(milliseconds); err != nil || at.Before(before) || at.After(time.Now().Add(time.Minute)) {
			t.Fatalf("NewID() = %s has the time %s", id, at)
		}
	}
}

func TestNewIDsAscend(t *testing.T) {
	t.Parallel()
	before := NewID()
	for range 20_000 {
		id := NewID()
		if id <= before {
			t.Fatalf("%s came after %s", id, before)
		}
		before = id
	}
}

func TestNewIDsAscendWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	for name, step := range map[string]time.Duration{
		"stands still":        0,
		"steps back":          -time.Hour,
		"moves by less":       time.Nanosecond,
		"steps over midnight": 24 * time.Hour,
	} {
		var last atomic.Uint64
		before := newID(start, &last)
		for i := range 5000 { // more than there are fractions of a millisecond
			id := newID(start.Add(time.Duration(i)*step), &last)
			if id <= before {
				t.Fatalf("the clock %s: %s came after %s", name, id, before)
			}
			before = id
		}
	}
}

func TestNewIDBeginsWithTheTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_500_000, time.UTC)
	id := newID(at, new(atomic.Uint64))
	if want := "019b7ca9-8f2e-7800"; id[:len(want)] != want { // half a millisecond is 0x800
		t.Errorf("newID(%s) = %s, want %s…", at, id, want)
	}
}

func TestNewIDsAreUniqueAcrossGoroutines(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 5000
	ids := make([][]string, writers)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for range each {
				ids[w] = append(ids[w], NewID())
			}
		})
	}
	running.Wait()
	for w, own := range ids {
		if !slices.IsSorted(own) {
			t.Errorf("the ids of goroutine %d don't ascend", w)
		}
	}
	all := slices.Concat(ids...)
	slices.Sort(all)
	if unique := len(slices.Compact(all)); unique != writers*each {
		t.Errorf("%d of %d ids are unique", unique, writers*each)
	}
}

func TestIsUUID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"019b7ca5-c92e-7800-9abc-def012345678":          true,
		"019B7CA5-C92E-7800-9ABC-DEF012345678":          true,
		"ffffffff-ffff-ffff-ffff-ffffffffffff":          true,
		"00000000-0000-0000-0000-000000000000":          false,
		"":                                              false,
		"019b7ca5c92e78009abcdef012345678":              false,
		"{019b7ca5-c92e-7800-9abc-def012345678}":        false,
		"urn:uuid:019b7ca5-c92e-7800-9abc-def012345678": false,
		"019b7ca5-c92e-7800-9abc-def01234567g":          false,
		"019b7ca5-c92e-7800-9abc+def012345678":          false,
		"019b7ca5-c92e-78009-abc-def012345678":          false,
		"-19b7ca5-c92e-7800-9abc-def012345678":          false,
	} {
		if got := isUUID(id); got != want {
			t.Errorf("isUUID(%q) = %v", id, got)
		}
	}
}

func BenchmarkNewID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewID()
	}
}

func BenchmarkNewIDParallel(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			NewID()
		}
	})
}
