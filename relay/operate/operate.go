// Package operate implements operations on a table that need several calls of a [storage.Operator]: selecting messages,
// requeueing many messages at a limited rate, replaying delivered messages, and showing a message. The command line and the admin page
// share it.
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

// Selection selects messages. Its fields have the texts that a user has typed; [Selection.Filter] checks them.
type Selection struct {
	IDs         []string `json:"ids,omitempty"` // of rows or of messages
	Topic       string   `json:"topic,omitempty"`
	TopicPrefix string   `json:"topic_prefix,omitempty"`
	Key         string   `json:"key,omitempty"`
	Sink        string   `json:"sink,omitempty"`
	State       string   `json:"state,omitempty"`
	Since       string   `json:"since,omitempty"` // a time or an age
	Error       string   `json:"error,omitempty"`
	Holds       bool     `json:"holds,omitempty"` // only parked messages that hold their keys
	After       int64    `json:"after,omitempty"`
	Limit       int      `json:"limit,omitempty"`
}

// Selects reports whether the selection has ids or filters.
func (s Selection) Selects() bool {
	return s.Topic+s.TopicPrefix+s.Key+s.Sink+s.State+s.Since+s.Error != "" || len(s.IDs) > 0 || s.Holds
}

// Filter returns the selection as a filter. In errors, the prefix precedes the names of fields; for the flags of a command it
// is "--".
func (s Selection) Filter(prefix string) (storage.Filter, error) {
	filter := storage.Filter{Topic: s.Topic, TopicPrefix: s.TopicPrefix, Key: s.Key, Sink: s.Sink, State: storage.State(s.State), Error: s.Error, Holds: s.Holds, AfterID: s.After, Limit: s.Limit}
	if s.State != "" && !slices.Contains(States, filter.State) {
		return filter, fmt.Errorf("%sstate: %q isn't one of pending, claimed, scheduled, retry, error, done", prefix, s.State)
	}
	for name, text := range map[string]string{"topic": s.Topic, "topic_prefix": s.TopicPrefix, "key": s.Key, "sink": s.Sink, "since": s.Since, "error": s.Error} {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) { // databases refuse such text
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

// States are the states of a message.
var States = []storage.State{storage.StatePending, storage.StateClaimed, storage.StateScheduled, storage.StateRetry, storage.StateError, storage.StateDone}

// Moment parses a time, or an age, such as 2h for two hours ago. It returns the zero time for an empty text. Errors begin with
// the argument `name`.
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

// IDs checks ids of rows or of messages, and removes duplicates.
func IDs(texts []string) (ids []string, err error) {
	for _, text := range texts {
		number, notNumber := strconv.ParseInt(text, 10, 64)
		if (notNumber != nil || number < 1) && !uuid.MatchString(text) {
			return nil, fmt.Errorf("%q isn't an id: give the id of a row, such as 42, or of a message, a UUID", text)
		}
		if id := strings.ToLower(text); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// ErrNoKeys means that a key can't be paused, because the table is claimed by rows.
var ErrNoKeys = errors.New("keys can't be paused, because the table is claimed by rows: pause a topic or a sink")

// ErrUnknown means that a control names a relay or a sink that isn't known.
var ErrUnknown = errors.New("no relay has this name or sink")

// ErrWildcard means that a pause names a topic that ends with an asterisk.
var ErrWildcard = errors.New("a topic must be given without wildcards: pause each topic or the sink")

// SetControl sets a pause or a limit. It returns [ErrWildcard] for a topic with a wildcard, and [ErrNoKeys] for a key if the
// table is claimed by rows. It returns [ErrUnknown] for a relay that isn't in the table of relays, and for a sink that no live
// relay has and that isn't in the argument `known`. It accepts any name if the table has no relays, if no sinks are known, or if
// a relay's list of sinks is incomplete.
func SetControl(ctx context.Context, operator storage.Operator, control storage.Control, lasts time.Duration, known ...string) error {
	if control.Kind == storage.PauseTopic {
		if strings.HasSuffix(control.Name, "*") {
			return fmt.Errorf("%s: %w", control.String(), ErrWildcard)
		}
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
		return fmt.Errorf("%s: %w: known are %s", control.String(), ErrUnknown, strings.Join(slices.Compact(names), ", "))
	}
	return operator.SetControl(ctx, control, lasts)
}

// cutList is the last entry in a relay's list of sinks if the list is incomplete.
const cutList = "…"

// livingSinks returns the names of the sinks that live relays have.
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

// Bounds of lists. LookThrough limits the messages that a search with a filter examines in each table. FindPatience is
// the approximate time limit of a search for a message's id. PageBytes bounds the payloads that one page of a list reads into
// memory: lists don't show payloads, but some stores read them nevertheless. Smaller pages would cost the database more,
// because it sorts the remaining messages for each page.
const (
	LookThrough  = 20_000
	FindPatience = 500 * time.Millisecond
	PageBytes    = 64 << 20
)

// List returns the messages that the filter selects, without their payloads. It reads them in pages of the filter's
// MaxBytes, or of [PageBytes] if that is 0.
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

// sleep waits for the duration, or until the context ends.
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
