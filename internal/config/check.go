package config

import (
	"fmt"
	"slices"
)

// checkRoutes reports routes that lead nowhere, or say the same twice, and
// sources whose topics have no way to go.
func (r *reader) checkRoutes(root *node, c *Config) {
	nodes := routeNodes(root)
	for i, route := range c.Routes {
		r.checkEnds(nodes[i], c, route)
		for j, earlier := range c.Routes[:i] {
			if !anyBroken(nodes[i]) && overlap(earlier, route) {
				r.fail(nodes[i], fmt.Sprintf("says the same as routes[%d]: remove one of them", j))
			}
		}
	}
	if len(c.Routes) == 0 && len(c.Sinks) > 1 {
		r.report(root.line, root.column, "routes", "are needed where there is more than one sink: say which topic goes to which")
	}
	for _, source := range c.Sources {
		if len(c.Routes) > 0 && len(c.RoutesOf(source.Name)) == 0 {
			r.fail(root.get("sources").get(source.Name), "has no route: add one with this source, or without any")
		}
	}
}

func routeNodes(root *node) []*node {
	if routes := root.get("routes"); routes != nil {
		return routes.items
	}
	return nil
}

func (r *reader) checkEnds(n *node, c *Config, route Route) {
	if at := n.get("sink"); at != nil && !at.broken && !slices.Contains(c.sinkNames(), route.Sink) {
		r.fail(at, fmt.Sprintf("there is no sink %q%s", route.Sink, suggest(route.Sink, c.sinkNames())))
	}
	if at := n.get("source"); at != nil && !at.broken && !slices.Contains(c.sourceNames(), route.Source) {
		r.fail(at, fmt.Sprintf("there is no source %q%s", route.Source, suggest(route.Source, c.sourceNames())))
	}
}

// overlap says whether two routes take the same topics of a common source.
func overlap(a, b Route) bool {
	common := a.Source == "" || b.Source == "" || a.Source == b.Source
	return common && a.Topic == b.Topic && a.Prefix == b.Prefix && a.Pattern == b.Pattern
}
