package relay

import (
	"testing"

	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestRouterTakesTheMostSpecificRoute(t *testing.T) {
	t.Parallel()
	names := []string{"exact", "long", "pattern", "rest", "short"}
	r, err := newRouter([]Route{
		{Topic: "*", Sink: "rest"},
		{Pattern: `audit\..*|x`, Sink: "pattern"},
		{Prefix: "orders.", Sink: "short"},
		{Prefix: "orders.eu.", Sink: "long"},
		{Topic: "orders.eu.paid", Sink: "exact"},
	}, names)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]string{
		"orders.eu.paid":  "exact",
		"orders.eu.paids": "long",
		"orders.us":       "short",
		"orders":          "rest",
		"audit.login":     "pattern",
		"x":               "pattern",
		"xx":              "rest", // a pattern matches the whole topic
		"no audit.login":  "rest",
		"":                "rest",
	} {
		for range 2 { // the second time from the cache
			if got := names[r.route(topic).sinks[0]]; got != want {
				t.Errorf("topic %q goes to %s, want %s", topic, got, want)
			}
		}
	}
}

// toOneSink returns a router that routes every topic to one sink.
func toOneSink() *router {
	return &router{names: []string{"sink"}, rest: target{sinks: []int{0}}, cache: map[string]target{}, ownTopics: make([][]string, 2)}
}

func TestRouterWithoutARouteForAll(t *testing.T) {
	t.Parallel()
	r, err := newRouter([]Route{{Topic: "a", Sink: "s"}}, []string{"s"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.route("b").sinks[0]; got != 1 {
		t.Errorf("a topic without a route goes to queue %d, want 1, the queue for messages without a route", got)
	}
}

func TestFairSharesAddUp(t *testing.T) {
	t.Parallel()
	relays := []storage.Member{}
	for n := range 100 {
		relays = append(relays, storage.Member{Name: string(rune('A' + n))})
		total := 0
		for _, relay := range relays {
			share := fairShare(relays, relay.Name)
			if share < storage.Lanes/len(relays) || share > storage.Lanes/len(relays)+1 {
				t.Errorf("one of %d relays gets %d lanes", len(relays), share)
			}
			total += share
		}
		if total != storage.Lanes {
			t.Errorf("the shares of %d relays have %d lanes in total", len(relays), total)
		}
	}
}

func TestShortenKeepsValidText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"abc": "abc", "abcdef": "abcd", "abc\x00": "abc", "aéé": "aé", "\xff": "�"} {
		if got := shorten(in, 4); len(got) > 4 || (want != "abc" && got != want) {
			t.Errorf("shorten(%q) = %q, want %q", in, got, want)
		}
	}
}
