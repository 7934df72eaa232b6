package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// From the topic to the sink, and what waits as no route takes it: it is told of, now and then,
// until it is gone.

// router finds the sink of a topic.
type router struct {
	exact    map[string]target
	prefixes []prefixRoute // longest first
	patterns []patternRoute
	rest     target // for every other topic; unrouted if there is none
	expires  bool   // some route has an ExpireAfter

	// print is a fingerprint: it tells whether two relays route alike. Only then do the
	// marks that one stored for its sinks mean the same to the other.
	print string
	cache map[string]target
}

// target is what a route says of its topics.
type target struct {
	sink        int
	expireAfter time.Duration // 0: never
	onExpire    OnExpire
}

type prefixRoute struct {
	prefix string
	target
}

type patternRoute struct {
	pattern *regexp.Regexp
	target
}

// maxCachedTopics bounds the memory that topics take up, should someone put
// an id into them.
const maxCachedTopics = 10_000

// newRouter compiles routes to sinks, which are named by their index in names;
// unrouted is the index that stands for "no route".
func newRouter(routes []Route, names []string, unrouted int) (*router, error) {
	if len(routes) == 0 {
		if len(names) != 1 {
			return nil, fmt.Errorf("routes: with %d sinks each topic needs a route", len(names))
		}
		routes = []Route{{Topic: "*", Sink: names[0]}}
	}
	r := &router{exact: map[string]target{}, rest: target{sink: unrouted, onExpire: ParkExpired}, cache: map[string]target{}}
	digest := sha256.New()
	var problems []error
	for i, route := range routes {
		fmt.Fprintf(digest, "%q %q %q %q\n", route.Topic, route.Prefix, route.Pattern, route.Sink)
		var problem error
		to, set := target{slices.Index(names, route.Sink), route.ExpireAfter, or(route.OnExpire, ParkExpired)}, 0
		r.expires = r.expires || route.ExpireAfter > 0
		for _, s := range []string{route.Topic, route.Prefix, route.Pattern} {
			if s != "" {
				set++
			}
		}
		switch other, twice := r.exact[route.Topic]; {
		case to.sink < 0:
			problem = fmt.Errorf("there is no sink %q", route.Sink)
		case set != 1:
			problem = errors.New("exactly one of topic, prefix and pattern must be set")
		case route.ExpireAfter < 0:
			problem = fmt.Errorf("expire after %v: must not be negative", route.ExpireAfter)
		case to.onExpire != ParkExpired && to.onExpire != DiscardExpired:
			problem = fmt.Errorf("on expire %q: must be %q or %q", route.OnExpire, ParkExpired, DiscardExpired)
		case route.Topic == "*":
			r.rest = to
		case route.Topic != "" && twice && other != to:
			problem = fmt.Errorf("topic %q has two routes", route.Topic)
		case route.Topic != "":
			r.exact[route.Topic] = to
		case route.Prefix != "":
			r.prefixes = append(r.prefixes, prefixRoute{route.Prefix, to})
		default:
			var compiled *regexp.Regexp
			if compiled, problem = regexp.Compile(`\A(?:` + route.Pattern + `)\z`); problem != nil {
				problem = fmt.Errorf("pattern %q: %w", route.Pattern, problem)
			}
			r.patterns = append(r.patterns, patternRoute{compiled, to})
		}
		if problem != nil {
			problems = append(problems, fmt.Errorf("route %d: %w", i+1, problem))
		}
	}
	slices.SortStableFunc(r.prefixes, func(a, b prefixRoute) int { return len(b.prefix) - len(a.prefix) })
	r.print = hex.EncodeToString(digest.Sum(nil)[:8])
	return r, errors.Join(problems...)
}

// sink returns the index of the topic's sink.
func (r *router) sink(topic string) int { return r.route(topic).sink }

// route returns what the topic's route says of it.
func (r *router) route(topic string) target {
	if to, ok := r.exact[topic]; ok {
		return to
	}
	if len(r.prefixes) == 0 && len(r.patterns) == 0 {
		return r.rest
	}
	if to, ok := r.cache[topic]; ok {
		return to
	}
	to := r.find(topic)
	if len(r.cache) < maxCachedTopics {
		r.cache[topic] = to
	}
	return to
}

// find is route without the cache; any goroutine may call it.
func (r *router) find(topic string) target {
	if to, ok := r.exact[topic]; ok {
		return to
	}
	for _, p := range r.prefixes {
		if strings.HasPrefix(topic, p.prefix) {
			return p.target
		}
	}
	for _, p := range r.patterns {
		if p.pattern.MatchString(topic) {
			return p.target
		}
	}
	return r.rest
}

// unroutedInterval is how often a topic without a route is told of.
const unroutedInterval = time.Minute

// unroutedRows is how many rows are read at once to learn what has no route.
const unroutedRows = 500

// pollUnrouted reads what waits without a route, now and then: who takes a lane
// over knows from its marks that something does, and not which topics; and nothing
// else would tell that it is gone. Each lane is read up to the first such row.
func (e *byLanes) pollUnrouted(now time.Time) *fetch {
	if e.unroutedAt.After(now) {
		return nil
	}
	if !e.unroutedAt.IsZero() {
		e.unroutedAt = time.Time{}
		for _, l := range e.lanes {
			l.alarmed = false
		}
	}
	q := e.queues[len(e.queues)-1]
	f := &fetch{kind: readUnrouted, queue: q, limit: unroutedRows, maxBytes: 1 << 20}
	for _, l := range e.lanesInTurn() {
		if l.skippedFrom[q.index] != none && !l.alarmed && !l.draining {
			f.positions = append(f.positions, storage.Position{Lane: l.Lane, After: l.skippedFrom[q.index], Until: l.cursor})
		}
	}
	if len(f.positions) > 0 {
		return f
	}
	e.unroutedAt = now.Add(unroutedInterval)
	if len(e.unrouted) > 0 && !e.skippedAny(q) {
		clear(e.unrouted)
	}
	return nil
}

// mergeUnrouted alarms of the topics of a page. A page that has all that waits tells
// also which of them are gone.
func (e *byLanes) mergeUnrouted(f *fetch) {
	q, lanes, topics, whole := f.queue, e.catchingUp(f), map[string]bool{}, !f.page.More
	for _, l := range e.lanes {
		whole = whole && (l.skippedFrom[q.index] == none || lanes[l.Lane] == l)
	}
	for i := range f.page.Rows {
		row := &f.page.Rows[i]
		l := lanes[row.Lane]
		switch {
		case l == nil:
		case e.routes.sink(row.Message.Topic) == q.index:
			topics[row.Message.Topic], l.alarmed = true, true
			e.alarmUnrouted(row.Message.Topic)
		case !l.alarmed:
			l.skippedFrom[q.index] = row.ID
		}
	}
	if f.page.More {
		return
	}
	for _, p := range f.positions {
		if l := lanes[p.Lane]; l != nil && !l.alarmed && p.Until == l.cursor {
			l.skippedFrom[q.index] = none
		}
	}
	if whole {
		maps.DeleteFunc(e.unrouted, func(topic string, _ time.Time) bool { return !topics[topic] })
	}
}

func (e *engine) alarmUnrouted(topic string) {
	now := time.Now()
	if now.Before(e.unrouted[topic]) {
		return
	}
	if len(e.unrouted) >= maxCachedTopics {
		clear(e.unrouted)
	}
	e.unrouted[topic] = now.Add(unroutedInterval)
	e.options.Observer.Unrouted(topic)
	e.options.Logger.Warn("relay: no route or handler takes this topic, its messages wait; add one and restart",
		"relay", e.options.Name, "topic", topic)
}

// unroutedLeft is the error of a drain that had to leave messages behind.
func (e *engine) unroutedLeft() error {
	topics := slices.Sorted(maps.Keys(e.unrouted))
	if len(topics) > 10 {
		topics = append(topics[:10], "…")
	}
	return fmt.Errorf("drained, but messages without a route are left (topics: %s); add a route", strings.Join(topics, ", "))
}
