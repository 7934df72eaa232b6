package main

import (
	"context"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// Each error of the server has an outcome, and the message of another key is delivered afterwards.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings []string // settings of the plug-in
		before   [][]any  // commands that cause the trouble, after the plug-in was opened
		after    [][]any  // commands that end the trouble; nil if it doesn't end
		result   sinks.Result
		reason   sinks.Reason
	}{
		"no memory":                  {before: [][]any{{"CONFIG", "SET", "maxmemory", "1"}}, after: [][]any{{"CONFIG", "SET", "maxmemory", "0"}}, result: sinks.Unavailable, reason: sinks.ReasonThrottled},
		"no memory for the script":   {settings: []string{"duplicate_window", "1m"}, before: [][]any{{"CONFIG", "SET", "maxmemory", "1"}}, after: [][]any{{"CONFIG", "SET", "maxmemory", "0"}}, result: sinks.Unavailable, reason: sinks.ReasonThrottled},
		"too few replicas to write":  {before: [][]any{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, after: [][]any{{"CONFIG", "SET", "min-replicas-to-write", "0"}}, result: sinks.Unavailable, reason: sinks.ReasonThrottled},
		"a replica":                  {before: [][]any{{"REPLICAOF", "127.0.0.1", "1"}}, after: [][]any{{"REPLICAOF", "NO", "ONE"}}, result: sinks.Unavailable, reason: sinks.ReasonConnection},
		"another type":               {before: [][]any{{"SET", "topic", "text"}}, result: sinks.Reject, reason: sinks.ReasonRefused},
		"another type, for all":      {settings: []string{"stream", "topic"}, before: [][]any{{"SET", "topic", "text"}}, after: [][]any{{"DEL", "topic"}}, result: sinks.Unavailable, reason: sinks.ReasonConfig},
		"no right to a stream":       {before: [][]any{{"ACL", "SETUSER", "default", "resetkeys", "~other*"}}, result: sinks.Reject, reason: sinks.ReasonRefused},
		"no right to the one stream": {settings: []string{"stream", "topic"}, before: [][]any{{"ACL", "SETUSER", "default", "resetkeys"}}, after: [][]any{{"ACL", "SETUSER", "default", "~*"}}, result: sinks.Unavailable, reason: sinks.ReasonAuth},
		"too few replicas received":  {settings: []string{"wait_replicas", "1"}, result: sinks.Unavailable, reason: sinks.ReasonThrottled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newServer(t)
			sink := opened(t, p, test.settings...)
			for _, words := range test.before {
				p.do(words...)
			}
			batch := []sinks.Message{message(1, "topic", "a"), message(2, "topic", "a")}
			got := sink.Send(t.Context(), batch)
			if o := got[0]; o.Result != test.result || o.Reason != test.reason || o.Detail == "" {
				t.Errorf("outcome %+v, want %v %s with a detail", o, test.result, test.reason)
			}
			if o := got[1]; o.Result != sinks.Unsent || o.Reason != sinks.ReasonBlocked {
				t.Errorf("the next message of the key: %+v, want it blocked", o)
			}
			for _, words := range test.after {
				p.do(words...)
			}
			if test.after == nil {
				if test.result == sinks.Reject && sink.Send(t.Context(), []sinks.Message{message(3, "other", "b")})[0].Result != sinks.Delivered {
					t.Error("the message of another stream was not delivered")
				}
				return
			}
			p.until("the messages are delivered after the trouble", func() bool {
				return sink.Open(t.Context()) == nil && sink.Send(t.Context(), batch)[1].Result == sinks.Delivered
			})
		})
	}
}

func TestOpenReportsTheReason(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	for name, test := range map[string]struct {
		settings []string
		reason   sinks.Reason
	}{
		"another password": {[]string{"username", "default"}, sinks.ReasonAuth},
		"another database": {[]string{"database", "4711"}, sinks.ReasonConfig},
		"nobody listens":   {[]string{"addresses", "127.0.0.1:1"}, sinks.ReasonConnection},
		"no sentinel":      {[]string{"master_name", "shop"}, sinks.ReasonAuth},
		"not a cluster":    {[]string{"cluster", "true"}, sinks.ReasonConfig},
	} {
		t.Run(name, func(t *testing.T) {
			sink := pluginSink(t, p, test.settings...)
			defer func() { check(t, sink.Close(context.Background())) }()
			if o := sinks.Unopened(sink.Open(t.Context())); o.Reason != test.reason || o.Detail == "" {
				t.Errorf("reason %s (%s), want %s", o.Reason, o.Detail, test.reason)
			}
		})
	}
}

// With a duplicate window, a message is added once, even if another relay sends it again or the server has
// forgotten the script. The copy that a replay has made counts as another message.
func TestDuplicateIsAddedOnce(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	first, second := opened(t, p, "duplicate_window", "1h", "stream", "{{{topic}}}.x"), opened(t, p, "duplicate_window", "1h", "stream", "{{{topic}}}.x")
	batch := []sinks.Message{message(1, "orders", "a"), message(2, "orders", ""), message(3, "orders", "a")}
	want := first.Send(t.Context(), batch)
	p.do("SCRIPT", "FLUSH")
	for i, o := range second.Send(t.Context(), batch) {
		if o.Result != sinks.Delivered || o.Receipt != want[i].Receipt {
			t.Errorf("message %d: %+v, want the receipt %s", i, o, want[i].Receipt)
		}
	}
	replayed := batch[0]
	replayed.Headers = map[string]string{sinks.ReplayedHeader: "lost-by-billing"}
	if o := second.Send(t.Context(), []sinks.Message{replayed})[0]; o.Result != sinks.Delivered || o.Receipt == want[0].Receipt {
		t.Errorf("the copy of a replay: %+v, want another entry than %s", o, want[0].Receipt)
	}
	if got := p.received("{orders}.x"); len(got) != 4 {
		t.Errorf("the stream has %d entries, want 4", len(got))
	}
	if keys := p.do("KEYS", "rowrelay:{orders}:{orders}.x:*").([]any); len(keys) != 4 {
		t.Errorf("the server remembers %v, want 4 keys", keys)
	}
	if left := p.client.PTTL(t.Context(), "rowrelay:{orders}:{orders}.x:id-1/").Val(); left < 59*time.Minute || left > time.Hour {
		t.Errorf("the server forgets a message after %v, want an hour", left)
	}
}

// Messages of one key arrive in order although the server refuses one in the middle.
func TestRoundsKeepTheOrder(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	p.do("SET", "no stream", "text")
	sink := opened(t, p, "window", "2")
	batch := []sinks.Message{
		message(1, "orders", "a"), message(2, "no stream", "a"), message(3, "orders", "a"),
		message(4, "orders", "b"), message(5, "orders", "b"), message(6, "orders", ""), message(7, "no stream", ""), message(8, "orders", ""),
	}
	want := []sinks.Result{sinks.Delivered, sinks.Reject, sinks.Unsent, sinks.Delivered, sinks.Delivered, sinks.Delivered, sinks.Reject, sinks.Delivered}
	for i, o := range sink.Send(t.Context(), batch) {
		if o.Result != want[i] {
			t.Errorf("message %d: %+v, want %v", i+1, o, want[i])
		}
	}
	if got := p.received("orders"); len(got) != 5 || got[0].ID != "id-1" {
		t.Errorf("arrived %+v", got)
	}
}

func TestTrimming(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"by length":                      {"max_length", "100"},
		"by length, in the script":       {"max_length", "100", "duplicate_window", "1m"},
		"by age":                         {"max_age", "1m"},
		"an hour has all of the entries": {"max_age", "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newServer(t)
			const old = 1000
			for n := range old {
				p.do("XADD", "orders", time.Now().Add(-30*time.Minute).UnixMilli()+int64(n), "id", "old")
			}
			sink := opened(t, p, settings...)
			if o := sink.Send(t.Context(), []sinks.Message{message(1, "orders", "")})[0]; o.Result != sinks.Delivered {
				t.Fatalf("outcome %+v", o)
			}
			length, keeps := p.client.XLen(t.Context(), "orders").Val(), settings[1] == "1h"
			if keeps != (length == old+1) || !keeps && length > 300 { // the server removes whole nodes of 100 entries
				t.Errorf("the stream has %d entries", length)
			}
		})
	}
}
