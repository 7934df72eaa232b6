package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// Each kind of trouble has its outcome. If only one message causes the trouble, messages of
// other keys are delivered.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	config := func(change func(*jetstream.StreamConfig)) func(*server) {
		return func(s *server) {
			s.stream(func(ctx context.Context, js jetstream.JetStream) error {
				c := jetstream.StreamConfig{Name: "TEST", Subjects: []string{"orders.>"}}
				change(&c)
				_, err := js.UpdateStream(ctx, c)
				return err
			})
		}
	}
	big := func(m *outbox.Message) { m.Payload = make([]byte, 2<<10) }
	for name, test := range map[string]struct {
		before func(*server) // called after the plug-in was opened and a message was stored
		change func(*outbox.Message)
		result sinks.Result
		reason sinks.Reason
	}{
		"the stream doesn't have the subject": {change: func(m *outbox.Message) { m.Topic = "nobody.listens" }, result: sinks.Unsent, reason: sinks.ReasonUnroutable},
		"another stream has the subject":      {change: func(m *outbox.Message) { m.Topic = "other.subject" }, result: sinks.Reject, reason: sinks.ReasonUnroutable},
		"invalid subject":                     {change: func(m *outbox.Message) { m.Topic = "orders. *" }, result: sinks.Reject, reason: sinks.ReasonInvalid},
		"empty token":                         {change: func(m *outbox.Message) { m.Topic = "orders..paid" }, result: sinks.Reject, reason: sinks.ReasonInvalid},
		"the server's own subject":            {change: func(m *outbox.Message) { m.Topic = "$JS.API.STREAM.DELETE.TEST" }, result: sinks.Reject, reason: sinks.ReasonInvalid},
		"a header of the client":              {change: func(m *outbox.Message) { m.Headers = map[string]string{"nats-rollup": "all"} }, result: sinks.Reject, reason: sinks.ReasonInvalid},
		"larger than the server allows":       {change: func(m *outbox.Message) { m.Payload = make([]byte, 5<<20) }, result: sinks.Reject, reason: sinks.ReasonTooLarge},
		"larger than the stream allows":       {before: config(func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 10 }), change: big, result: sinks.Reject, reason: sinks.ReasonTooLarge},
		"too many headers":                    {change: func(m *outbox.Message) { m.Headers = map[string]string{"x": strings.Repeat("v", 70<<10)} }, result: sinks.Reject, reason: sinks.ReasonTooLarge},
		"no right to the subject":             {change: func(m *outbox.Message) { m.Topic = "orders.secret" }, result: sinks.Reject, reason: sinks.ReasonRefused},
		"the subject is full": {before: config(func(c *jetstream.StreamConfig) {
			c.Discard, c.DiscardNewPerSubject, c.MaxMsgsPerSubject, c.MaxMsgs = jetstream.DiscardNew, true, 1, 1000
		}), change: func(m *outbox.Message) { m.Topic = "orders.first" }, result: sinks.Unsent, reason: sinks.ReasonBusy},
		"the stream is full":                 {before: config(func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 1 }), result: sinks.Unavailable, reason: sinks.ReasonThrottled},
		"the stream has no room for so much": {before: config(func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardNew, 1<<10 }), change: big, result: sinks.Unavailable, reason: sinks.ReasonThrottled},
		"the stream is sealed":               {before: config(func(c *jetstream.StreamConfig) { c.Sealed = true }), result: sinks.Unavailable, reason: sinks.ReasonConfig},
		"the stream is gone": {before: func(s *server) {
			s.stream(func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteStream(ctx, "TEST") })
		}, result: sinks.Unavailable, reason: sinks.ReasonConfig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.stream(func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other.>"}})
				return err
			})
			sink := opened(t, s)
			delivered(t, sink, message(0, "orders.first", ""))
			if test.before != nil {
				test.before(s)
			}
			batch := []sinks.Message{message(1, "orders.paid", "a"), message(2, "orders.paid", "a"), message(3, "orders.other", "b")}
			if test.change != nil {
				test.change(&batch[0].Message)
			}
			got := sink.Send(t.Context(), batch)
			if o := got[0]; o.Result != test.result || o.Reason != test.reason || o.Detail == "" || (o.RetryAfter > 0) != (o.Result == sinks.Unsent) {
				t.Errorf("outcome %+v, want %v %s with a detail", o, test.result, test.reason)
			}
			if o := got[1]; o.Result != sinks.Unsent || o.Reason != sinks.ReasonBlocked {
				t.Errorf("the next message of the key: %+v, want it blocked", o)
			}
			if o := got[2]; test.result != sinks.Unavailable && o.Result != sinks.Delivered {
				t.Errorf("the message of another key: %+v, want it delivered", o)
			}
		})
	}
}

func TestOpenReportsTheReason(t *testing.T) {
	t.Parallel()
	_, publicKey := seedFile(t)
	for name, test := range map[string]struct {
		options  func(*natsserver.Options)
		settings []string
		reason   sinks.Reason
	}{
		"another login":          {settings: []string{"username", "nobody"}, reason: sinks.ReasonAuth},
		"another nkey":           {options: func(o *natsserver.Options) { o.Nkeys = append(o.Nkeys, &natsserver.NkeyUser{Nkey: publicKey}) }, settings: []string{"nkey_file", "seed"}, reason: sinks.ReasonAuth},
		"no nkeys":               {settings: []string{"nkey_file", "seed"}, reason: sinks.ReasonConfig},
		"nobody listens":         {settings: []string{"servers", "nats://127.0.0.1:1"}, reason: sinks.ReasonConnection},
		"no TLS":                 {settings: []string{"servers", "tls"}, reason: sinks.ReasonConfig},
		"no such stream":         {settings: []string{"stream", "ORDERS"}, reason: sinks.ReasonConfig},
		"subjects of another":    {settings: []string{"stream", "ORDERS", "create_subjects", "orders.>"}, reason: sinks.ReasonConfig},
		"no JetStream":           {options: func(o *natsserver.Options) { o.JetStream = false }, reason: sinks.ReasonConnection},
		"no right to the stream": {options: func(o *natsserver.Options) { deny(o, "$JS.API.STREAM.INFO.TEST", "") }, reason: sinks.ReasonAuth},
		"no right to answers":    {options: func(o *natsserver.Options) { deny(o, "", "_INBOX.>") }, reason: sinks.ReasonAuth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			if test.options != nil {
				s.stop()
				test.options(&s.options)
				s.start()
			}
			for i, value := range test.settings {
				switch value {
				case "seed":
					test.settings[i], _ = seedFile(t)
				case "tls":
					test.settings[i] = strings.Replace(s.running.ClientURL(), "nats:", "tls:", 1)
				}
			}
			sink := pluginSink(t, s, test.settings...)
			defer func() { check(t, sink.Close(context.Background())) }()
			err := sink.Open(t.Context())
			if o := sinks.Unopened(err); err == nil || o.Reason != test.reason {
				t.Errorf("reason %s (%v), want %s", o.Reason, err, test.reason)
			}
		})
	}
}

func TestLoginByNkey(t *testing.T) {
	t.Parallel()
	file, public := seedFile(t)
	s := newServer(t)
	s.stop()
	s.options.Nkeys = append(s.options.Nkeys, &natsserver.NkeyUser{Nkey: public})
	s.start()
	delivered(t, opened(t, s, "nkey_file", file), message(1, "orders.paid", ""))
}

// deny takes rights away from the user of the tests.
func deny(o *natsserver.Options, publish, subscribe string) {
	user := *o.Users[0]
	user.Permissions = &natsserver.Permissions{Publish: &natsserver.SubjectPermission{Deny: []string{"orders.secret"}}, Subscribe: &natsserver.SubjectPermission{}}
	if publish != "" {
		user.Permissions.Publish.Deny = append(user.Permissions.Publish.Deny, publish)
	}
	if subscribe != "" {
		user.Permissions.Subscribe.Deny = []string{subscribe}
	}
	o.Users = append([]*natsserver.User{&user}, o.Users[1:]...)
}

// The plug-in creates the stream only if it is missing.
func TestCreatesTheStream(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for range 2 {
		sink := opened(t, s, "stream", "NEW", "create_subjects", "new.>, newer", "create_duplicate_window", "1h")
		delivered(t, sink, message(1, "new.topic", ""), message(2, "newer", ""))
	}
	s.stream(func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, "NEW")
		if err != nil {
			return err
		}
		if info := stream.CachedInfo(); info.State.Msgs != 2 || info.Config.Duplicates.Hours() != 1 || !info.Config.AllowDirect {
			return errors.New("the stream is another one")
		}
		return nil
	})
}
