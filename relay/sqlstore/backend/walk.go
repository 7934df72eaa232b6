package backend

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Whole is a range of ids that has those of all positions.
func Whole(positions []storage.Position) storage.Position {
	whole := storage.Position{After: positions[0].After, Until: positions[0].Until}
	for _, p := range positions {
		whole.After, whole.Until = min(whole.After, p.After), max(whole.Until, p.Until)
	}
	return whole
}

// WithinWhole is a condition of the rows t of that range that are at the positions.
// A sum is a condition only, and no range of its own.
func WithinWhole(positions []storage.Position) string {
	whole := Whole(positions)
	var lanes []int
	var others Alternatives
	for _, p := range slices.SortedFunc(slices.Values(positions), func(a, b storage.Position) int { return a.Lane - b.Lane }) {
		bounds := ""
		if p.After > whole.After {
			bounds += " AND t.id + 0 > " + strconv.FormatInt(p.After, 10)
		}
		if p.Until < whole.Until {
			bounds += " AND t.id + 0 <= " + strconv.FormatInt(p.Until, 10)
		}
		if bounds == "" {
			lanes = append(lanes, p.Lane)
		} else {
			others.Add(p.Lane, "t.lane = "+strconv.Itoa(p.Lane)+bounds)
		}
	}
	switch all := "t.lane IN " + NumberList(lanes); {
	case len(others.lanes) == 0:
		return all
	case len(lanes) == 0:
		return others.Condition()
	default:
		return "(" + all + " OR " + others.Condition() + ")"
	}
}

// Alternatives are conditions of rows t of one lane each, in the order of lanes. Many
// are a tree: servers try one after the other on each row.
type Alternatives struct {
	lanes      []int
	conditions []string
}

// Add adds the condition of a lane.
func (a *Alternatives) Add(lane int, condition string) {
	a.lanes, a.conditions = append(a.lanes, lane), append(a.conditions, condition)
}

// Condition is true for rows that meet one of them.
func (a *Alternatives) Condition() string {
	const most = 8
	if len(a.conditions) <= most {
		return "(" + strings.Join(a.conditions, "\n    OR ") + ")"
	}
	var groups []string
	for from := 0; from < len(a.conditions); from += most {
		to := min(from+most, len(a.conditions))
		groups = append(groups, "t.lane BETWEEN "+strconv.Itoa(a.lanes[from])+" AND "+strconv.Itoa(a.lanes[to-1])+
			" AND ("+strings.Join(a.conditions[from:to], " OR ")+")")
	}
	return "(" + strings.Join(groups, "\n    OR ") + ")"
}

// NumberList is a list for IN; it matches nothing if there are none.
func NumberList[N int | int64](numbers []N) string {
	if len(numbers) == 0 {
		return "(NULL)"
	}
	list := make([]byte, 0, 12*len(numbers))
	separator := byte('(')
	for _, number := range numbers {
		list = strconv.AppendInt(append(list, separator), int64(number), 10)
		separator = ','
	}
	return string(append(list, ')'))
}

// MostBytes is the bound of a claim where a statement needs one.
func MostBytes(request storage.ClaimRequest) int64 {
	if request.MaxBytes <= 0 {
		return math.MaxInt64
	}
	return int64(request.MaxBytes)
}

// ClaimOrder is the order of a pick: that of one of the indexes for claiming by rows.
func ClaimOrder(pick storage.Pick) string {
	switch pick {
	case storage.Newest:
		return "id DESC"
	case storage.Priority:
		return "priority DESC, id"
	default:
		return "id"
	}
}
