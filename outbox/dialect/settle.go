package dialect

import "strings"

// The columns of a row that stay as they are wherever it goes, and those that
// a settlement may change.
const (
	kept     = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at"
	changing = "attempts, crashes, available_at, last_error"
)

func prefixed(columns, prefix string) string {
	return prefix + strings.ReplaceAll(columns, ", ", ", "+prefix)
}

// kinds are the ways that rows of a batch go.
type kinds struct {
	hotDone, hotHeld, heldDone, heldHeld, freed bool
}

func kindsOf(settlements []Settlement) (has kinds) {
	for _, s := range settlements {
		done := s.State == "done"
		switch {
		case s.State == "pending":
			has.freed = true
		case s.Held:
			has.heldDone, has.heldHeld = has.heldDone || done, has.heldHeld || !done
		default:
			has.hotDone, has.hotHeld = has.hotDone || done, has.hotHeld || !done
		}
	}
	return has
}

// lease is a lane and its fence.
type lease struct {
	lane  int
	fence int64
}

// leasesOf are the leases that the settlements show, which are in the order of
// lanes.
func leasesOf(settlements []Settlement) (leases []lease) {
	for i, s := range settlements {
		if i == 0 || s.Lane != settlements[i-1].Lane || s.Fence != settlements[i-1].Fence {
			leases = append(leases, lease{s.Lane, s.Fence})
		}
	}
	return leases
}

// held are the settlements whose leases hold.
func held(settlements []Settlement, holds func(lane int, fence int64) bool) (some []Settlement) {
	for _, s := range settlements {
		if holds(s.Lane, s.Fence) {
			some = append(some, s)
		}
	}
	return some
}
