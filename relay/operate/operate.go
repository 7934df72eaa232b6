// Package operate is what people do with a table, as far as it takes more than one call of a
// [storage.Operator]: to read which messages are meant, to requeue very many at a rate, to replay
// what was delivered, and to show a message. The command line and the admin page do it by the same
// code.
package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Selection is which messages somebody means, in the words that they were typed in.
type Selection struct {
	IDs   []string `json:"ids,omitempty"` // the table's or the messages'
	Topic string   `json:"topic,omitempty"`
	Key   string   `json:"key,omitempty"`
	Sink  string   `json:"sink,omitempty"`
	State string   `json:"state,omitempty"`
	Since string   `json:"since,omitempty"` // a time, or how long ago
	Error string   `json:"error,omitempty"`
	Holds bool     `json:"holds,omitempty"` // only parked messages that hold their keys
	After int64    `json:"after,omitempty"`
	Limit int      `json:"limit,omitempty"`
}

// Selects says that there are ids or filters.
func (s Selection) Selects() bool {
	return s.Topic+s.Key+s.Sink+s.State+s.Since+s.Error != "" || len(s.IDs) > 0 || s.Holds
}

// Filter is what the selection says. In errors the names of its parts follow the prefix, which is
// "--" for flags.
func (s Selection) Filter(prefix string) (storage.Filter, error) {
	filter := storage.Filter{Topic: s.Topic, Key: s.Key, Sink: s.Sink, State: storage.State(s.State), Error: s.Error, Holds: s.Holds, AfterID: s.After, Limit: s.Limit}
	if s.State != "" && !slices.Contains(States, filter.State) {
		return filter, fmt.Errorf("%sstate: %q isn't one of pending, claimed, scheduled, retry, error, done", prefix, s.State)
	}
	for name, text := range map[string]string{"topic": s.Topic, "key": s.Key, "sink": s.Sink, "since": s.Since, "error": s.Error} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) { // which databases refuse
			return filter, fmt.Errorf("%s%s: the text isn't UTF-8, or has a zero character", prefix, name)
		}
	}
	if s.Limit < 0 || s.After < 0 {
		return filter, fmt.Errorf("%slimit and %[1]safter must not be negative", prefix)
	}
	since, err := Moment(prefix+"since", s.Since)
	if err != nil {
		return filter, err
	}
	filter.Since = since
	filter.IDs, err = IDs(s.IDs)
	return filter, err
}

// States are those that a message can be in.
var States = []storage.State{storage.StatePending, storage.StateClaimed, storage.StateScheduled, storage.StateRetry, storage.StateError, storage.StateDone}

// Moment reads a time, or how long ago it is; empty is none. The name is what is read.
func Moment(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := settings.Field{Type: settings.TypeDuration, Min: "0s", Max: "36500d"}.Parse(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 90m or 2d", name, text)
	}
	return time.Now().Add(-ago.(time.Duration)), nil
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// IDs are the table's ids or the messages', once each.
func IDs(texts []string) (ids []string, err error) {
	for _, text := range texts {
		number, notNumber := strconv.ParseInt(text, 10, 64)
		if (notNumber != nil || number < 1) && !uuid.MatchString(text) {
			return nil, fmt.Errorf("%q isn't an id: give the table's, such as 42, or the message's, a UUID", text)
		}
		if id := strings.ToLower(text); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ErrNoKeys means that a key can't be paused, as the table is claimed by rows.
var ErrNoKeys = errors.New("the table is claimed by rows, which knows no keys: pause a topic or a sink")

// ErrUnknown means that no living relay has the sink or the name that a control is for.
var ErrUnknown = errors.New("there is none of this name")

// SetControl puts a control in force, if the table's way of claiming knows it. It refuses the name of a sink or relay that
// no living relay has, nor is among the known sinks: nothing would be paused. While no relay lives and no sink is known, it
// takes any name.
func SetControl(ctx context.Context, operator storage.Operator, control storage.Control, lasts time.Duration, known ...string) error {
	if control.Kind == storage.PauseTopic {
		return operator.SetControl(ctx, control, lasts)
	}
	status, err := operator.Status(ctx)
	if err != nil {
		return err
	}
	if control.Kind == storage.PauseKey && status.Claim == storage.ByRows {
		return ErrNoKeys
	}
	var names []string
	switch control.Kind {
	case storage.PauseSink, storage.LimitSink:
		names = append(livingSinks(status), known...)
	case storage.PauseRelay:
		for _, relay := range status.Relays {
			names = append(names, relay.Name)
		}
	}
	if len(names) > 0 && !slices.Contains(names, control.Name) && !slices.Contains(names, cutList) {
		slices.Sort(names)
		return fmt.Errorf("%s: %w; there are %s", control.String(), ErrUnknown, strings.Join(slices.Compact(names), ", "))
	}
	return operator.SetControl(ctx, control, lasts)
}

// cutList ends the sinks of a relay that has too many to tell.
const cutList = "…"

// livingSinks are the names of the sinks that living relays have.
func livingSinks(status storage.Status) (names []string) {
	for _, relay := range status.Relays {
		for _, sink := range relay.Config.Sinks {
			if name, _, _ := strings.Cut(sink, ": "); relay.Alive {
				names = append(names, name)
			}
		}
	}
	return names
}

// What isn't bounded in another way: a listing looks at so many messages of each table for those that its filters
// select, and one by ids looks for so long beyond the rows that were written with them. A page of either brings so
// many bytes of payload into memory, though none is shown: a page less costs the database more, which sorts what is
// left for each.
const (
	LookThrough  = 20_000
	FindPatience = 500 * time.Millisecond
	PageBytes    = 64 << 20
)

// List puts the pages of a listing together, without their payloads. The filter's MaxBytes, or [PageBytes] if it
// has none, are those of a page.
func List(ctx context.Context, operator storage.Operator, filter storage.Filter) (found []storage.Info, err error) {
	filter.MaxBytes, filter.NoPayloads = cmp.Or(filter.MaxBytes, PageBytes), true
	for limit := filter.Limit; len(found) < limit; {
		filter.Limit = limit - len(found)
		page, err := operator.List(ctx, filter)
		if err != nil {
			return nil, err
		}
		bytes := 0
		for i := range page {
			bytes += len(page[i].Message.Payload)
			page[i].Message.Payload = nil
		}
		if found = append(found, page...); bytes < filter.MaxBytes {
			break
		}
		filter.AfterID = page[len(page)-1].ID
	}
	return found, nil
}

// sleep waits, or ends with the context.
func sleep(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
