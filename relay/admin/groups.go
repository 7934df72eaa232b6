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

// parkedGroup is a group of parked messages that have the same topic and sinks, and whose errors differ only in numbers and in
// names that contain numbers.
type parkedGroup struct {
	Topic  string `json:"topic"`
	Sinks  string `json:"sinks,omitempty"`
	Error  string `json:"error"` // the longest constant part of the error, for a search
	Count  int    `json:"count"`
	Of     int    `json:"of,omitempty"`     // 0 if all parked messages were read; otherwise the number of messages read, which are the newest ones
	Newest bool   `json:"newest,omitempty"` // the group has the newest parked message

	Example string `json:"example,omitempty"` // the error of the group's newest message
}

// parkedGroups has the largest groups, and the group with the newest message.
type parkedGroups struct {
	groups []parkedGroup
	others int // number of messages in other groups
	of     int // see parkedGroup.Of
}

// Bounds for the grouping of parked messages.
const (
	mostGrouped  = 50_000
	groupingTime = 3 * time.Second
	mostKinds    = 1000 // groups that are counted
	mostGroups   = 8    // groups that are shown
	mostSearched = 100  // bytes of parkedGroup.Error
)

// groupParked groups the parked messages. It reads the newest messages first, and stops when it reaches a bound.
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

// varying matches the parts that differ between errors of one kind: numbers, and names with a number in them. status3 matches
// an HTTP status, which counts as a constant part: errors with 404 and with 503 are of different kinds.
var (
	varying = regexp.MustCompile(`[\pL_.:-]*[0-9][\pL0-9_.:-]*`)
	status3 = regexp.MustCompile(`^[1-5][0-9][0-9]:?$`)
)

// shapeOf returns an error's first line without the varying parts, and the longest of the remaining parts.
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
