package admin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// incidents is an Operator with the given parked messages, the newest last.
type incidents struct {
	storage.Operator
	parked []storage.Parked
}

func (i *incidents) add(count int, topic string, text func(n int) string) {
	for n := range count {
		i.parked = append(i.parked, storage.Parked{ID: int64(len(i.parked) + 1), Topic: topic, Error: text(n)})
	}
}

func (i *incidents) Parked(ctx context.Context, filter storage.Filter, _ int64, each func(storage.Parked)) error {
	for n := range i.parked {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := n
		if filter.NewestFirst {
			at = len(i.parked) - 1 - n
		}
		each(i.parked[at])
	}
	return nil
}

// The page shows the largest groups, and the group with the newest message even if this group is small. It counts the messages of
// the other groups.
func TestProblemsHaveTheLargestIncidentsAndTheNewest(t *testing.T) {
	t.Parallel()
	i := &incidents{}
	for old := range 30 { // each in a group of its own
		i.add(10+old, fmt.Sprint("old-", old), func(int) string { return "HTTP 404: gone" })
	}
	i.add(5000, "orders.paid", func(n int) string { return fmt.Sprintf("HTTP 503: account %d of tenant-%da is closed", n, n%9) })
	i.add(1, "newest", func(int) string { return "HTTP 422: refused" })
	var found parkedGroups
	var err error
	synctest.Test(t, func(t *testing.T) { found, err = groupParked(t.Context(), i) }) // on a simulated clock, so that the grouping never exceeds groupingTime
	if err != nil || len(found.groups) != mostGroups || found.of != 0 {
		t.Fatalf("%d groups of %d, %v", len(found.groups), found.of, err)
	}
	if g := found.groups[0]; g.Topic != "orders.paid" || g.Count != 5000 || g.Error != "HTTP 503: account" || g.Newest {
		t.Errorf("the largest group is %+v", g)
	}
	if g := found.groups[mostGroups-1]; g.Topic != "newest" || g.Count != 1 || !g.Newest {
		t.Errorf("the group with the newest message is %+v", g)
	}
	all := found.others
	for _, group := range found.groups {
		all += group.Count
	}
	if all != len(i.parked) {
		t.Errorf("the groups have %d messages of %d", all, len(i.parked))
	}
}

// If too many messages are parked, only the newest are grouped, and each group reports how many were read.
func TestOnlyTheNewestMessagesAreGrouped(t *testing.T) {
	t.Parallel()
	i := &incidents{}
	i.add(mostGrouped, "old", func(int) string { return "no" })
	i.add(100, "new", func(int) string { return "no" })
	var found parkedGroups
	var err error
	synctest.Test(t, func(t *testing.T) { found, err = groupParked(t.Context(), i) }) // on a simulated clock, so that the grouping never exceeds groupingTime
	if err != nil || found.of != mostGrouped || len(found.groups) != 2 || found.groups[1].Topic != "new" || found.groups[1].Count != 100 || found.groups[1].Of != mostGrouped {
		t.Errorf("%+v, %v", found, err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := groupParked(ended, i); err == nil {
		t.Error("groupParked returned groups although its context had ended")
	}
}

func TestShapesOfErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"HTTP 404: gone":                           "HTTP 404: gone | HTTP 404: gone",
		"invalid: account 7 is closed":             "invalid: account … is closed | invalid: account",
		"invalid: account 4711234 is closed":       "invalid: account … is closed | invalid: account",
		"id 6f9619ff-8b86-d011-b42d-00c04fc964ff?": "id …? | id",
		"7\nmore":               "… | ",
		"":                      " | ",
		strings.Repeat("é", 99): strings.Repeat("é", 99) + " | " + strings.Repeat("é", 50),
	} {
		shape, search := shapeOf(text)
		if got := shape + " | " + search; got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
