package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// DefaultTable is the name of the table if none is given.
const DefaultTable = "outbox"

// Source is a table to relay from. The relay replaces durations of zero and empty strings by the defaults
// of [relay.Options].
type Source struct {
	Name         string
	Database     Database
	Table        string // the default is [DefaultTable]
	Claim        storage.Claim
	Pick         storage.Pick
	Topics       []string
	RelayName    string // empty: each process gets a new name
	Join         bool   // share messages with live relays that have other sinks or routes
	Lease        time.Duration
	Poll         time.Duration
	Listen       Switch        // whether the database's notifications wake the relay
	Retention    time.Duration // a 0 in the file is stored as relay.KeepNothing
	DrainTimeout time.Duration

	// LongestTransaction applies to databases that don't show open transactions.
	// Messages of a producer's transaction keep their order only if the
	// transaction stays open for at most this time.
	LongestTransaction time.Duration

	File string // the name that was passed to Load; empty if flags named the table
}

// Switch turns a feature on or off. An empty Switch stands for the default.
type Switch string

// Values of a Switch.
const (
	On  Switch = "on"
	Off Switch = "off"
)

// Set sets one of the settings database, table, claim, pick, relay_name, join, lease, poll, listen,
// retention, drain_timeout or longest_transaction. The error describes why the text is invalid.
func (s *Source) Set(name, text string) error { return setText(sourceFields(), s, name, text) }

// SetTopics sets the topics, which have the same form as in the configuration file. The error describes
// why a topic is invalid.
func (s *Source) SetTopics(topics ...string) error {
	n := &node{kind: isList}
	for _, topic := range topics {
		n.items = append(n.items, textNode("", topic))
	}
	return setNode(sourceFields(), s, "topics", n)
}

func sourceFields() []field[Source] {
	return []field[Source]{
		secret("database", ParseDatabase, func(s *Source) *Database { return &s.Database }),
		{name: "password", secret: true, set: func(r *reader, _ *Source, n *node) { set(r, n, "the value", text(maxSecret), &r.password) }},
		value("table", parseTable, func(s *Source) *string { return &s.Table }),
		value("claim", oneOf(storage.ByLanes, storage.ByRows), func(s *Source) *storage.Claim { return &s.Claim }),
		value("pick", oneOf(storage.Oldest, storage.Newest, storage.Priority), func(s *Source) *storage.Pick { return &s.Pick }),
		values("topics", text(255), func(s *Source) *[]string { return &s.Topics }),
		value("relay_name", text(255), func(s *Source) *string { return &s.RelayName }),
		value("join", as[bool](settings.Field{Type: settings.TypeBool}), func(s *Source) *bool { return &s.Join }),
		value("lease", duration("1s", "1h"), func(s *Source) *time.Duration { return &s.Lease }),
		value("poll", duration("1ms", "1m"), func(s *Source) *time.Duration { return &s.Poll }),
		value("listen", oneOf(On, Off), func(s *Source) *Switch { return &s.Listen }),
		value("retention", orZero(relay.KeepNothing, duration("1s", "3650d")), func(s *Source) *time.Duration { return &s.Retention }),
		value("drain_timeout", duration("1ms", "1h"), func(s *Source) *time.Duration { return &s.DrainTimeout }),
		value("longest_transaction", duration("1s", "24h"), func(s *Source) *time.Duration { return &s.LongestTransaction }),
	}
}

func parseTable(name string) (string, error) {
	if _, err := dialect.ParseTable(name); err != nil {
		return "", fmt.Errorf("isn't a table: %s", strings.TrimPrefix(err.Error(), fmt.Sprintf("table %q: ", name)))
	}
	return name, nil
}

func (r *reader) source(name string, n *node) Source {
	source := Source{Name: name, Table: DefaultTable}
	before := len(r.secrets)
	r.password = ""
	fill(r, n, sourceFields(), &source)
	for _, o := range r.secrets[before:] {
		if o.path == n.child("database") {
			source.Database.from = o
		} else {
			source.Database.password = o
		}
	}
	if cmp.Or(n.get("database"), n.get("database_file"), n.get("database_command")) == nil {
		r.fail(n, "needs a database")
	}
	if password := cmp.Or(n.get("password"), n.get("password_file"), n.get("password_command")); password != nil && source.Database.Kind() != "" {
		changed, err := source.Database.withPassword(r.password)
		if err != nil {
			r.fail(password, err.Error())
		}
		source.Database = changed
	}
	if source.Claim != storage.ByRows {
		for _, name := range []string{"pick", "topics"} {
			if given := n.get(name); given != nil {
				r.fail(given, "needs claim: rows; with claim: lanes, the relay reads all messages in their order")
			}
		}
	}
	if listen := n.get("listen"); source.Listen == On && source.Database.Polled() {
		r.fail(listen, "can't be on: only "+databases.Notifying()+" has notifications; the relay polls")
	}
	return source
}

// Route sends the messages of topics to a sink, from one source or from all sources.
type Route struct {
	relay.Route
	Source string // the name of a source; empty means every source
}

func routeFields() []field[Route] {
	return []field[Route]{
		value("topic", text(255), func(t *Route) *string { return &t.Topic }),
		value("prefix", text(255), func(t *Route) *string { return &t.Prefix }),
		value("pattern", parsePattern, func(t *Route) *string { return &t.Pattern }),
		value("sink", text(maxName), func(t *Route) *string { return &t.Sink }),
		values("sinks", text(maxName), func(t *Route) *[]string { return &t.Sinks }),
		value("also", as[bool](settings.Field{Type: settings.TypeBool}), func(t *Route) *bool { return &t.Also }),
		value("expire_after", duration("1s", "3650d"), func(t *Route) *time.Duration { return &t.ExpireAfter }),
		value("on_expire", oneOf(relay.ParkExpired, relay.DiscardExpired), func(t *Route) *relay.OnExpire { return &t.OnExpire }),
		value("source", text(maxName), func(t *Route) *string { return &t.Source }),
	}
}

// sinksOf returns the names of a route's sinks.
func sinksOf(route relay.Route) []string {
	if route.Sink != "" {
		return []string{route.Sink}
	}
	return route.Sinks
}

func parsePattern(pattern string) (string, error) {
	if pattern == "" {
		return "", fmt.Errorf("is empty")
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return "", fmt.Errorf("isn't a regular expression: %w", err)
	}
	return pattern, nil
}

func (r *reader) route(n *node) Route {
	var route Route
	fill(r, n, routeFields(), &route)
	given := 0
	for _, name := range []string{"topic", "prefix", "pattern"} {
		if n.get(name) != nil {
			given++
		}
	}
	if given != 1 {
		r.fail(n, "needs exactly one of topic, prefix and pattern")
	}
	if (n.get("sink") == nil) == (n.get("sinks") == nil) {
		r.fail(n, "needs either sink or sinks")
	}
	return route
}

// RoutesOf returns the routes of a source, in the order of the file.
func (c Config) RoutesOf(source string) []relay.Route {
	var routes []relay.Route
	for _, route := range c.Routes {
		if route.Source == "" || route.Source == source {
			routes = append(routes, route.Route)
		}
	}
	return routes
}

// HasRoute reports whether a route of the source matches the topic. Without routes, every topic goes to the only sink.
func (c Config) HasRoute(source, topic string) bool {
	return len(c.Routes) == 0 || slices.ContainsFunc(c.RoutesOf(source), takes(topic))
}

// SinksOf returns the sinks that a source's messages can go to: the sinks of its
// routes and of their dead letters, or all sinks if there are no routes.
func (c Config) SinksOf(source string) []Sink {
	if len(c.Routes) == 0 {
		return c.Sinks
	}
	routed := map[string]bool{}
	for _, route := range c.RoutesOf(source) {
		for _, name := range sinksOf(route) {
			routed[name] = true
		}
	}
	for more := true; more; { // a sink that receives dead letters may itself have a sink for dead letters
		more = false
		for _, sink := range c.Sinks {
			if to := sink.DeadLetter.Sink; to != "" && routed[sink.Name] && !routed[to] {
				routed[to], more = true, true
			}
		}
	}
	var found []Sink
	for _, sink := range c.Sinks {
		if routed[sink.Name] {
			found = append(found, sink)
		}
	}
	return found
}
