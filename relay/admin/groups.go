package admin

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// parkedGroup is parked messages of a topic, for the same sinks, with the same error but for numbers and names in it.
type parkedGroup struct {
	Topic  string `json:"topic"`
	Sinks  string `json:"sinks,omitempty"`
	Error  string `json:"error"` // the longest part that they have in common, by which they can be found
	Count  int    `json:"count"`
	Of     int    `json:"of,omitempty"`     // only this number of the newest parked messages were looked at
	Newest bool   `json:"newest,omitempty"` // it has the newest parked message

	Example string `json:"example,omitempty"` // the error of the newest of them
}

// parkedGroups are the largest groups, and the one with the newest message.
type parkedGroups struct {
	groups []parkedGroup
	others int // messages in other groups
	of     int // as in parkedGroup
}

// Bounds of grouping parked messages.
const (
	mostGrouped  = 200_000
	groupingTime = 3 * time.Second
	mostKinds    = 1000 // groups while they are counted
	mostGroups   = 8    // that are shown
	mostSearched = 100  // bytes of parkedGroup.Error
)

// groupParked counts what parked messages have in common, the newest first until the time is up.
func groupParked(ctx context.Context, table storage.Operator) (parkedGroups, error) {
	limited, enough := context.WithTimeout(ctx, groupingTime)
	defer enough()
	type kind struct{ topic, sinks, shape string }
	groups, seen, others := map[kind]*parkedGroup{}, 0, 0
	err := table.Parked(limited, storage.Filter{NewestFirst: true}, 0, func(row storage.Parked) {
		if seen == mostGrouped {
			enough()
			return
		}
		seen++
		shape, search := shapeOf(row.Error)
		of := kind{row.Topic, row.Sinks, shape}
		group := groups[of]
		if group == nil {
			if len(groups) == mostKinds {
				others++
				return
			}
			group = &parkedGroup{Topic: row.Topic, Sinks: row.Sinks, Error: search, Example: row.Error, Newest: seen == 1}
			groups[of] = group
		}
		group.Count++
	})
	cut := limited.Err() != nil
	if err != nil && (!cut || ctx.Err() != nil || seen == 0) {
		return parkedGroups{}, err
	}
	found := parkedGroups{others: others}
	if cut {
		found.of = seen
	}
	for _, group := range groups {
		group.Of = found.of
		found.groups = append(found.groups, *group)
	}
	slices.SortFunc(found.groups, func(a, b parkedGroup) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Sinks, b.Sinks), cmp.Compare(a.Error, b.Error))
	})
	if at := slices.IndexFunc(found.groups, func(g parkedGroup) bool { return g.Newest }); at >= mostGroups {
		newest := found.groups[at]
		found.groups = slices.Insert(slices.Delete(found.groups, at, at+1), mostGroups-1, newest)
	}
	for _, group := range found.groups[min(len(found.groups), mostGroups):] {
		found.others += group.Count
	}
	found.groups = found.groups[:min(len(found.groups), mostGroups)]
	return found, nil
}

// varying is what differs between errors of one kind: a number of any length, or a name with a number in it. A status of HTTP
// isn't: 404 and 503 are two kinds.
var (
	varying = regexp.MustCompile(`[\pL_.:-]*[0-9][\pL0-9_.:-]*`)
	status3 = regexp.MustCompile(`^[1-5][0-9][0-9]:?$`)
)

// shapeOf is an error's first line without what varies, and its longest part without.
func shapeOf(text string) (shape, search string) {
	text, _, _ = strings.Cut(text, "\n")
	var parts []string
	from := 0
	for _, at := range varying.FindAllStringIndex(text, -1) {
		if status3.MatchString(text[at[0]:at[1]]) && (strings.HasSuffix(text[:at[0]], "HTTP ") || strings.HasSuffix(text[:at[0]], "status ")) {
			continue
		}
		parts = append(parts, text[from:at[0]])
		from = at[1]
	}
	parts = append(parts, text[from:])
	for _, part := range parts {
		if part = strings.TrimSpace(part); len(part) > len(search) {
			search = part
		}
	}
	if len(search) > mostSearched {
		search = strings.TrimSpace(strings.ToValidUTF8(search[:mostSearched], ""))
	}
	return strings.Join(parts, "…"), search
}
