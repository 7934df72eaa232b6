package relay

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Routing: from topics to sinks.

// router finds the sinks of a topic.
type router struct {
	names    []string // the names of the sinks, by index
	exact    map[string]target
	prefixes []prefixRoute // longest first
	patterns []patternRoute
	rest     target      // the target of all other topics; without a route for "*" it has one index, the number of sinks, which stands for "no route"
	also     []alsoRoute // routes that add their sinks to the sinks of each topic that they match
	expires  bool        // some route has an ExpireAfter

	// print is a fingerprint of the routes. The marks that a relay has stored for its sinks are valid for another relay only if the
	// fingerprints of both relays are equal.
	print string
	cache map[string]target // the targets of topics that were seen

	// ownTopics lists, for each sink, topics that only this sink needs; the last element lists topics without a route. Each list
	// contains at most the first maxExcept topics that were seen.
	ownTopics [][]string
}

// maxExcept is the maximum number of a sink's topics that a read leaves out by name.
const maxExcept = 50

// alsoRoute is a route whose option Also is true.
type alsoRoute struct {
	matches func(topic string) bool
	sinks   []int
}

// target is the result of routing a topic.
type target struct {
	sinks       []int         // indexes, at least one; for a topic without a route, only the index after the last sink
	expireAfter time.Duration // 0 means never
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

// maxCachedTopics limits how many topics are kept in memory, in case an application puts ids into topics.
const maxCachedTopics = 10_000

// newRouter compiles routes. The index of a sink is the index of its name in the list `names`. The index after the last
// sink means "no route".
func newRouter(routes []Route, names []string) (*router, error) {
	if len(routes) == 0 && len(names) > 1 {
		return nil, fmt.Errorf("routes: required if there are several sinks (%d here)", len(names))
	}
	r := &router{names: names, exact: map[string]target{}, rest: target{sinks: []int{len(names)}, onExpire: ParkExpired}, cache: map[string]target{}}
	digest := sha256.New()
	type match struct{ topic, prefix, pattern string } // one of the three is set
	merged := map[match]target{}                       // the combined sinks of routes with the same match
	var order []match                                  // the order in which patterns are tried
	var problems []error
	for i, route := range routes {
		fmt.Fprintf(digest, "%q %q %q %q %q %t\n", route.Topic, route.Prefix, route.Pattern, route.Sink, route.Sinks, route.Also)
		to, err := r.target(&route)
		what := match{route.Topic, route.Prefix, route.Pattern}
		other, twice := merged[what]
		switch {
		case err != nil:
		case route.Also:
			err = r.addAlso(&route, to)
		case !twice:
			merged[what], order = to, append(order, what)
		case other.expireAfter != to.expireAfter || other.onExpire != to.onExpire:
			err = fmt.Errorf("%q has two routes with different expiry", what.topic+what.prefix+what.pattern)
		default:
			merged[what] = to.with(other.sinks)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("route %d: %w", i+1, err))
		}
	}
	for _, what := range order {
		switch to := merged[what]; {
		case what.topic == "*":
			r.rest = to
		case what.topic != "":
			r.exact[what.topic] = to
		case what.prefix != "":
			r.prefixes = append(r.prefixes, prefixRoute{what.prefix, to})
		default:
			r.patterns = append(r.patterns, patternRoute{compiled(what.pattern), to})
		}
	}
	slices.SortFunc(r.prefixes, func(a, b prefixRoute) int {
		return cmp.Or(len(b.prefix)-len(a.prefix), cmp.Compare(a.prefix, b.prefix))
	})
	r.print = hex.EncodeToString(digest.Sum(nil)[:8])
	if r.ownTopics = make([][]string, len(names)+1); len(r.exact) <= maxExcept && len(problems) == 0 { // with more topics, ownTopics gets the first ones that are seen
		for topic := range r.exact {
			r.route(topic)
		}
	}
	return r, errors.Join(problems...)
}

// target checks a route and returns its target.
func (r *router) target(route *Route) (to target, err error) {
	to = target{expireAfter: route.ExpireAfter, onExpire: cmp.Or(route.OnExpire, ParkExpired)}
	r.expires = r.expires || route.ExpireAfter > 0
	set, sinks := 0, slices.Clone(route.Sinks)
	for _, s := range []string{route.Topic, route.Prefix, route.Pattern} {
		if s != "" {
			set++
		}
	}
	if route.Sink != "" || len(sinks) == 0 {
		sinks = append(sinks, route.Sink)
	}
	for _, name := range sinks {
		sink := slices.Index(r.names, name)
		if sink < 0 {
			return to, fmt.Errorf("there is no sink %q", name)
		}
		if !slices.Contains(to.sinks, sink) {
			to.sinks = append(to.sinks, sink)
		}
	}
	slices.Sort(to.sinks)
	switch {
	case route.Sink != "" && len(route.Sinks) > 0:
		return to, errors.New("give sink or sinks, not both")
	case set != 1:
		return to, errors.New("exactly one of topic, prefix and pattern must be set")
	case len(route.Topic) > 1 && (strings.HasSuffix(route.Topic, "*") || strings.HasSuffix(route.Topic, ".#")):
		return to, fmt.Errorf("the topic %q would match only messages of exactly this topic: use the prefix %q", route.Topic, strings.TrimRight(route.Topic, "*#"))
	case route.ExpireAfter < 0:
		return to, fmt.Errorf("expire after %v: must not be negative", route.ExpireAfter)
	case to.onExpire != ParkExpired && to.onExpire != DiscardExpired:
		return to, fmt.Errorf("on expire %q: must be %q or %q", route.OnExpire, ParkExpired, DiscardExpired)
	}
	if route.Pattern != "" {
		if _, err := regexp.Compile(route.Pattern); err != nil {
			return to, fmt.Errorf("pattern %q: %w", route.Pattern, err)
		}
	}
	return to, nil
}

// compiled compiles the pattern of a route, which must be valid.
func compiled(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`\A(?:` + pattern + `)\z`)
}

// with returns a copy of the target that also has the given sinks. All its sinks are ordered by index, without duplicates.
func (t target) with(sinks []int) target {
	t.sinks = slices.Concat(t.sinks, sinks)
	slices.Sort(t.sinks)
	t.sinks = slices.Compact(t.sinks)
	return t
}

// addAlso adds a route whose option Also is true.
func (r *router) addAlso(route *Route, to target) error {
	if route.ExpireAfter != 0 || route.OnExpire != "" {
		return errors.New("a route with the option \"also\" can't set an expiry: set it on the topic's own route")
	}
	also := alsoRoute{sinks: to.sinks, matches: func(topic string) bool { return topic == route.Topic }}
	switch {
	case route.Topic == "*":
		also.matches = func(string) bool { return true }
	case route.Prefix != "":
		also.matches = func(topic string) bool { return strings.HasPrefix(topic, route.Prefix) }
	case route.Pattern != "":
		also.matches = compiled(route.Pattern).MatchString
	}
	r.also = append(r.also, also)
	return nil
}

// several returns an error if some topic may have several sinks, and the mode of claiming or the names of the sinks don't
// allow this. If the relay claims by rows, each message has one sink. If it claims by lanes, the names of a topic's sinks must
// fit into a row; the check assumes that every route with the option Also matches every topic.
func (r *router) several(claim storage.Claim) error {
	all := []target{r.rest}
	for _, to := range r.exact {
		all = append(all, to)
	}
	for _, p := range r.prefixes {
		all = append(all, p.target)
	}
	for _, p := range r.patterns {
		all = append(all, p.target)
	}
	var every []int
	for _, also := range r.also {
		every = append(every, also.sinks...)
	}
	for _, to := range all {
		var names []string
		for _, sink := range to.with(every).sinks {
			if sink < len(r.names) {
				names = append(names, r.names[sink])
			}
		}
		joined := storage.JoinSinks(names)
		switch {
		case len(names) < 2:
		case claim == storage.ByRows:
			return fmt.Errorf("routes: a topic with several sinks (%s) requires a relay that claims by lanes", joined)
		case strings.Count(joined, ",") >= len(names):
			return fmt.Errorf("routes: a topic has several sinks (%s), whose names must not contain commas", joined)
		case len(joined) > storage.MostSinks:
			return fmt.Errorf("routes: the names of a topic's sinks have %d bytes in total; they must have at most %d: %.100s…", len(joined), storage.MostSinks, joined)
		}
	}
	return nil
}

// queuesOf returns the indexes of the queues that need a row, at least one. They are the queues of the sinks that the row names,
// or, if the row names none, of the sinks of its topic's route.
func (r *router) queuesOf(topic, sinks string) []int {
	if sinks != "" {
		return r.named(sinks)
	}
	return r.route(topic).sinks
}

// named returns the indexes of the sinks that a row names. For a sink that this relay doesn't have, it returns the index of the
// queue for rows without a route, where the row waits. It may be called concurrently.
func (r *router) named(sinks string) []int {
	var named target
	for _, name := range storage.SplitSinks(sinks) {
		sink := slices.Index(r.names, name)
		if sink < 0 {
			sink = len(r.names)
		}
		named.sinks = append(named.sinks, sink)
	}
	return named.with(nil).sinks
}

// route returns the target of a topic, and caches it. Only the loop may call it.
func (r *router) route(topic string) target {
	if to, ok := r.cache[topic]; ok {
		return to
	}
	to := r.find(topic)
	if len(r.cache) < maxCachedTopics {
		r.cache[topic] = to
		if own := &r.ownTopics[to.sinks[0]]; len(to.sinks) == 1 && len(*own) < maxExcept {
			*own = append(*own, topic)
		}
	}
	return to
}

// find returns the target of a topic without using the cache. It may be called concurrently.
func (r *router) find(topic string) target {
	to := r.own(topic)
	for _, also := range r.also {
		if !also.matches(topic) {
			continue
		}
		if to.sinks[0] == len(r.names) { // the topic has no route of its own
			to.sinks = nil
		}
		to = to.with(also.sinks)
	}
	return to
}

// own returns the target of the topic's own route: the most specific matching route whose option Also is false.
func (r *router) own(topic string) target {
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

// unroutedName is the name that marks use for the queue of messages without a route. That queue has no sink, and never has room.
const unroutedName = "(unrouted)"
