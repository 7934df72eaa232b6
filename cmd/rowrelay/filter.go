package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// filterFlags select messages.
type filterFlags struct {
	topic, key, state, since, errorText string
	after                               int64
	limit                               int
}

var states = []relay.State{relay.StatePending, relay.StateClaimed, relay.StateScheduled, relay.StateRetry, relay.StateError, relay.StateDone}

func (f *filterFlags) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.topic, "topic", "", "only messages of exactly this `topic`")
	flags.StringVar(&f.key, "key", "", "only messages of exactly this `key`")
	flags.StringVar(&f.state, "state", "", "only messages in this `state`: pending, claimed, scheduled, retry, error or done")
	flags.StringVar(&f.since, "since", "", "only messages written at or after this `time`, or so long ago: 2026-01-31T12:00:00Z or 2h")
	flags.StringVar(&f.errorText, "error", "", "only messages whose last error contains this `text`")
}

func (f *filterFlags) given() bool {
	return f.topic != "" || f.key != "" || f.state != "" || f.since != "" || f.errorText != ""
}

// read checks the flags and ids.
func (f *filterFlags) read(ids []string) (relay.Filter, error) {
	filter := relay.Filter{Topic: f.topic, Key: f.key, State: relay.State(f.state), Error: f.errorText, AfterID: f.after, Limit: f.limit}
	if f.state != "" && !slices.Contains(states, filter.State) {
		return filter, fmt.Errorf("--state: %q isn't one of pending, claimed, scheduled, retry, error, done", f.state)
	}
	if f.limit < 0 || f.after < 0 {
		return filter, fmt.Errorf("--limit and --after must not be negative")
	}
	var err error
	if filter.Since, err = readSince(f.since, time.Now()); err != nil {
		return filter, err
	}
	filter.IDs, err = readIDs(ids)
	return filter, err
}

// readSince reads a time, or a duration before now.
func readSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := settings.Field{Type: settings.TypeDuration, Min: "0s", Max: "36500d"}.Parse(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since: %q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 90m or 2d", text)
	}
	return now.Add(-ago.(time.Duration)), nil
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// readIDs takes ids of the table and of messages, each once.
func readIDs(texts []string) (ids []string, err error) {
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
