package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Sink configures a destination. The relay replaces numbers and durations of zero by its defaults. SinkOptions.Sink is
// nil; Make makes the sink.
type Sink struct {
	relay.SinkOptions
	Name     string
	Type     string         // the name of a sinks.Kind
	Settings map[string]any // the settings that belong to the kind; may have secrets

	// URL replaces Type and Settings if it isn't empty. Only the command line can
	// set it. It may have secrets.
	URL string

	secrets []origin // the files and commands from which secrets in Settings are read
}

// certificateFiles returns the names of the certificate files in the settings or the URL. A sink reads these files when
// it is made.
func (s Sink) certificateFiles() (names []string) {
	settingsOf := func(name string) string { text, _ := s.Settings[name].(string); return text }
	if parsed, err := url.Parse(s.URL); s.URL != "" && err == nil {
		settingsOf = parsed.Query().Get
	}
	for _, f := range settings.TLSFields() {
		if name := settingsOf(f.Name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Renewable reports whether the sink has secrets or certificates in files, or secrets from commands.
func (s Sink) Renewable() bool { return len(s.secrets)+len(s.certificateFiles()) > 0 }

// Await waits for the commands that print the sink's secrets, if their last secret is too old. If the destination has refused the
// sink's login, Await waits for all commands. The wait ends early if the context ends.
func (s Sink) Await(ctx context.Context, refused bool) { await(ctx, s.secrets, refused) }

// State returns a hash of the settings and of the current content of the certificate files.
func (s Sink) State() string {
	hash := sha256.New()
	text, _ := json.Marshal(s.Settings) // can't fail: the settings are texts, numbers, lists and maps
	fmt.Fprintf(hash, "%q %q", s.URL, text)
	for _, name := range s.certificateFiles() {
		content, err := os.ReadFile(name)
		fmt.Fprintf(hash, "%q %q %v", name, content, err)
	}
	return string(hash.Sum(nil))
}

// Set sets one of the settings batch, batch_bytes, workers, buffer, buffer_bytes, timeout, max_attempts,
// breaker_threshold, judge_alone_after, park_rate_limit or on_park. The error describes why the text is
// invalid.
func (s *Sink) Set(name, text string) error { return setText(sinkFields(), s, name, text) }

// Make makes the sink. It doesn't connect.
func (s Sink) Make(kinds *sinks.Registry) (sinks.Sink, error) {
	if s.URL != "" {
		return kinds.FromURL(s.URL)
	}
	return kinds.Make(s.Type, s.Settings)
}

// LogValue implements [slog.LogValuer]. The value has only the name and the type, because settings may have secrets.
func (s Sink) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", s.Name), slog.String("type", s.Type))
}

func sinkFields() []field[Sink] {
	return []field[Sink]{
		value("type", text(maxName), func(s *Sink) *string { return &s.Type }),
		value("batch", number("1", "10000"), func(s *Sink) *int { return &s.Batch }),
		value("batch_bytes", size("1KiB", "256MiB"), func(s *Sink) *int { return &s.BatchBytes }),
		value("workers", number("1", "256"), func(s *Sink) *int { return &s.Workers }),
		value("buffer", number("1", "100000"), func(s *Sink) *int { return &s.Buffer }),
		value("buffer_bytes", size("1KiB", "4GiB"), func(s *Sink) *int { return &s.BufferBytes }),
		value("timeout", duration("10ms", "1h"), func(s *Sink) *time.Duration { return &s.Timeout }),
		value("max_attempts", orWord("unlimited", -1, number("1", "1000000")), func(s *Sink) *int { return &s.MaxAttempts }),
		value("breaker_threshold", orWord("never", -1, number("1", "100000")), func(s *Sink) *int { return &s.BreakerThreshold }),
		value("judge_alone_after", orWord("never", relay.NeverJudgeAlone, orZero(relay.JudgeAtOnce, duration("10ms", "7d"))), func(s *Sink) *time.Duration { return &s.JudgeAloneAfter }),
		value("park_rate_limit", orWord("never", -1, number("1", "1000000")), func(s *Sink) *int { return &s.ParkRateLimit }),
		value("on_park", oneOf(relay.ContinueKey, relay.HoldKey), func(s *Sink) *relay.OnPark { return &s.OnPark }),
		group("dead_letter", deadLetterFields(), func(s *Sink) *relay.DeadLetter { return &s.DeadLetter }),
		group("backoff", backoffFields(), func(s *Sink) *relay.Backoff { return &s.Backoff }),
		group("breaker_backoff", backoffFields(), func(s *Sink) *relay.Backoff { return &s.BreakerBackoff }),
	}
}

func deadLetterFields() []field[relay.DeadLetter] {
	return []field[relay.DeadLetter]{
		value("topic", text(255), func(d *relay.DeadLetter) *string { return &d.Topic }),
		value("sink", text(maxName), func(d *relay.DeadLetter) *string { return &d.Sink }),
	}
}

func backoffFields() []field[relay.Backoff] {
	bounds := duration("1ms", "7d")
	return []field[relay.Backoff]{
		value("min", bounds, func(b *relay.Backoff) *time.Duration { return &b.Min }),
		value("max", bounds, func(b *relay.Backoff) *time.Duration { return &b.Max }),
	}
}

func (r *reader) sink(name string, n *node) (sink Sink) {
	sink.Name = name
	if !r.mapping(n) {
		return sink
	}
	before := len(r.secrets)
	r.pending = false
	defer func() { sink.secrets = r.secrets[before:] }()
	others := fillKnown(r, n, sinkFields(), &sink)
	for _, name := range []string{"backoff", "breaker_backoff"} {
		r.checkBackoff(n.get(name), map[string]relay.Backoff{"backoff": sink.Backoff, "breaker_backoff": sink.BreakerBackoff}[name])
	}
	if n.get("type") == nil {
		r.fail(n, "needs a type: "+strings.Join(r.kindNames(), ", "))
		return sink
	}
	r.settings(n, others, &sink)
	return sink
}

// checkDeadLetters checks where each sink's dead letters go. If they go to another sink, that sink must exist. If they go
// to a topic, each source with messages for the sink must have a route for the topic.
func (r *reader) checkDeadLetters(root *node, c *Config) {
	for _, sink := range c.Sinks {
		n, to := root.get("sinks").get(sink.Name).get("dead_letter"), sink.DeadLetter
		if n == nil || anyBroken(n) {
			continue
		}
		switch {
		case (to.Topic == "") == (to.Sink == ""):
			r.fail(n, "needs either a topic or a sink")
		case to.Sink == sink.Name:
			r.fail(n.get("sink"), "is the sink itself, which has refused the message: name another sink, or a topic")
		case to.Sink != "" && !slices.Contains(c.SinkNames(), to.Sink):
			r.fail(n.get("sink"), fmt.Sprintf("there is no sink %q%s", to.Sink, suggest(to.Sink, "sinks are", c.SinkNames())))
		}
		for _, source := range c.Sources {
			has := slices.ContainsFunc(c.SinksOf(source.Name), func(s Sink) bool { return s.Name == sink.Name })
			if to.Topic != "" && has && len(c.RoutesOf(source.Name)) > 0 && !c.HasRoute(source.Name, to.Topic) {
				r.fail(n.get("topic"), fmt.Sprintf("matches no route of the source %q", source.Name))
			}
		}
	}
}

// takes returns a function that reports whether a route matches this topic.
func takes(topic string) func(relay.Route) bool {
	return func(route relay.Route) bool {
		matched, err := regexp.MatchString(`\A(?:`+route.Pattern+`)\z`, topic)
		return route.Topic == "*" || route.Topic == topic || route.Prefix != "" && strings.HasPrefix(topic, route.Prefix) ||
			route.Pattern != "" && err == nil && matched
	}
}

func (r *reader) checkBackoff(n *node, b relay.Backoff) {
	if n != nil && b.Max != 0 && b.Max < b.Min {
		r.fail(n, "has a max below its min")
	}
}

// settings reads the settings of a sink's kind from the given entries of the mapping n. The
// other entries are settings of the relay.
func (r *reader) settings(n *node, entries []entry, sink *Sink) {
	at := n.get("type")
	if at.broken {
		return
	}
	kind, ok := r.kinds.Kind(sink.Type)
	if !ok {
		r.fail(at, fmt.Sprintf("there is no type %q%s", sink.Type, suggest(sink.Type, "types are", r.kindNames())))
		return
	}
	fields := settingFields(kind)
	sink.Settings = map[string]any{}
	for _, e := range fillKnown(r, &node{path: n.path, entries: entries}, fields, &sink.Settings) {
		r.unknown(n, e, append(names(fields), names(sinkFields())...))
	}
	if r.pending {
		return
	}
	_, err := kind.Parse(sink.Settings)
	if err == nil && !anyBroken(n) {
		_, err = sink.Make(r.kinds)
	}
	if err != nil {
		r.refused(n, err)
	}
}

func (r *reader) kindNames() (names []string) {
	for _, kind := range r.kinds.Kinds() {
		names = append(names, kind.Name)
	}
	return names
}

// settingFields returns fields that store values in a map without checking them, because the kind checks its own
// settings.
func settingFields(kind sinks.Kind) (fields []field[map[string]any]) {
	for _, f := range kind.Fields {
		fields = append(fields, field[map[string]any]{
			name:   f.Name,
			secret: f.Type == settings.TypeSecret,
			set: func(r *reader, target *map[string]any, n *node) {
				if n.kind == isNothing {
					r.fail(n, "needs a value; leave it out for the default")
				}
				if f.Type == settings.TypeSecretMap {
					r.secretEntries(n)
				}
				(*target)[f.Name] = n.plain()
			},
		})
	}
	return fields
}

// secretEntries replaces the entries of a mapping that name the files or commands of secrets. For example, an entry with the key
// password_file or password_command is replaced by an entry with the key password and the secret as its value. The entry is removed
// if there is no secret.
func (r *reader) secretEntries(n *node) {
	var entries []entry
	for _, e := range n.entries {
		name, derived := derivedFrom(e.key)
		if !derived {
			entries = append(entries, e)
		} else if held := r.fromOrigin(n, e, name); held != nil {
			entries = append(entries, entry{name, e.line, e.column, held})
		} else {
			n.broken = n.broken || e.node.broken
		}
	}
	n.entries = entries
}

// refused reports a kind's errors about its settings, each at the position of its setting.
func (r *reader) refused(n *node, err error) {
	var list settings.Errors
	if !errors.As(err, &list) {
		r.fail(n, err.Error())
		return
	}
	for _, problem := range list {
		at := cmp.Or(n.get(problem.Field), n.get(problem.Field+"_file"), n.get(problem.Field+"_command"))
		switch {
		case at == nil:
			r.report(n.line, n.column, n.child(problem.Field), problem.Err.Error())
		case !anyBroken(at):
			r.fail(at, problem.Err.Error())
		}
	}
}

func anyBroken(n *node) bool {
	if n.broken || slices.ContainsFunc(n.items, anyBroken) {
		return true
	}
	return slices.ContainsFunc(n.entries, func(e entry) bool { return anyBroken(e.node) })
}
