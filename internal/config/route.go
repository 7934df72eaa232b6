package config

import (
	"fmt"
	"regexp"

	"github.com/rowrelay/rowrelay/relay"
)

// Route sends topics to a sink, from one source or from all.
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
		value("source", text(maxName), func(t *Route) *string { return &t.Source }),
	}
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
	if n.get("sink") == nil {
		r.fail(n, "needs a sink")
	}
	return route
}

// RoutesOf returns the routes of a source, in their order.
func (c Config) RoutesOf(source string) []relay.Route {
	var routes []relay.Route
	for _, route := range c.Routes {
		if route.Source == "" || route.Source == source {
			routes = append(routes, route.Route)
		}
	}
	return routes
}

// SinksOf returns the sinks that a source's messages can go to: those of its
// routes, or all where there is no route.
func (c Config) SinksOf(source string) []Sink {
	if len(c.Routes) == 0 {
		return c.Sinks
	}
	routed := map[string]bool{}
	for _, route := range c.RoutesOf(source) {
		routed[route.Sink] = true
	}
	var found []Sink
	for _, sink := range c.Sinks {
		if routed[sink.Name] {
			found = append(found, sink)
		}
	}
	return found
}
