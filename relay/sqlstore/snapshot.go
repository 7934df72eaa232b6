package sqlstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// snapshot is what PostgreSQL's pg_current_snapshot says: which transactions'
// changes a statement saw.
type snapshot struct {
	xmin uint64   // all lower transactions had ended
	xmax uint64   // one more than the highest that had ended; from here on nothing was seen
	open []uint64 // between the two, those that had not ended, ascending
}

// parseSnapshot reads the text form, xmin:xmax:open,open,…
func parseSnapshot(text string) (snapshot, error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("read snapshot %q: want three parts", text)
	}
	numbers := parts[:2]
	if parts[2] != "" {
		numbers = append(numbers, strings.Split(parts[2], ",")...)
	}
	values := make([]uint64, len(numbers))
	for i, number := range numbers {
		value, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return snapshot{}, fmt.Errorf("read snapshot %q: %w", text, err)
		}
		values[i] = value
	}
	return snapshot{xmin: values[0], xmax: values[1], open: values[2:]}, nil
}

// sees says whether the transaction had ended.
func (s snapshot) sees(xid uint64) bool {
	if xid < s.xmin || xid >= s.xmax {
		return xid < s.xmin
	}
	_, open := slices.BinarySearch(s.open, xid)
	return !open
}

// endedFrom says whether any transaction had ended that has this number or a
// higher one.
func (s snapshot) endedFrom(xid uint64) bool {
	if xid >= s.xmax {
		return false
	}
	at, _ := slices.BinarySearch(s.open, xid)
	return uint64(len(s.open)-at) < s.xmax-max(xid, s.xmin) || xid < s.xmin
}
