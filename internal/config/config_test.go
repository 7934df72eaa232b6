package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// withoutEmpty returns an error if a text is empty.
func withoutEmpty(list []string) error {
	if slices.Contains(list, "") {
		return errors.New("has an empty text")
	}
	return nil
}

// kinds has two kinds of sinks: one without settings, and one with secrets.
func kinds() *sinks.Registry {
	discard := func(settings.Values) (sinks.Sink, error) { return nil, nil }
	web := sinks.Kind{Name: "http", New: newWeb, Fields: []settings.Field{
		{Name: "url", Type: settings.TypeString, Required: true, Help: "Where to."},
		{Name: "token", Type: settings.TypeSecret},
		{Name: "headers", Type: settings.TypeSecretMap},
		{Name: "port", Type: settings.TypeInt, Max: "9000"},
		{Name: "tls", Type: settings.TypeBool},
		{Name: "networks", Type: settings.TypeList, Check: settings.Check(withoutEmpty)},
	}}
	registry, err := sinks.NewRegistry(sinks.Kind{Name: "discard", New: discard}, web)
	if err != nil {
		panic(err)
	}
	return registry
}

func newWeb(s settings.Values) (sinks.Sink, error) {
	if s.Text("url") == "nowhere" {
		return nil, errors.New("nowhere is no place")
	}
	return nil, nil
}

func parse(t *testing.T, text string) (Config, error) {
	t.Helper()
	return Parse("rowrelay.yaml", []byte(text), kinds())
}

func mustParse(t *testing.T, text string) Config {
	t.Helper()
	c, err := parse(t, text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const smallest = `
sources:
  shop: {database: "sqlite:shop.db"}
sinks:
  nothing: {type: discard}
`

func TestTheSmallestConfigurationNeedsNoRoute(t *testing.T) {
	t.Parallel()
	c := mustParse(t, smallest)
	want := Config{
		Sources: []Source{{Name: "shop", Database: Database{kind: "sqlite", url: "shop.db"}, Table: "outbox"}},
		Sinks:   []Sink{{Name: "nothing", Type: "discard", Settings: map[string]any{}}},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if routes := c.RoutesOf("shop"); routes != nil {
		t.Errorf("routes %v, want none", routes)
	}
	if found := c.SinksOf("shop"); len(found) != 1 || found[0].Name != "nothing" {
		t.Errorf("sinks %+v, want the only one", found)
	}
}

func TestEverySettingIsRead(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
sources:
  shop:
    database: postgres://u:p@h/d
    table: sales.events
    claim: rows
    pick: priority
    topics: [orders, 7, "yes"]
    relay_name: shop-0
    join: true
    lease: 20s
    poll: 50ms
    listen: off
    retention: 7d
    drain_timeout: 1m
    longest_transaction: 2m
  other:
    database: sqlite:///var/lib/other.db
    retention: 0
sinks:
  web:
    type: http
    url: https://example.org/in
    token: hunter2
    port: 8080
    tls: true
    headers: {a: b}
    batch: 100
    batch_bytes: 2MiB
    workers: 4
    buffer: 1000
    buffer_bytes: 8 MiB
    timeout: 3s
    max_attempts: unlimited
    breaker_threshold: never
    judge_alone_after: 0s
    park_rate_limit: never
    on_park: hold
    dead_letter: {sink: nothing}
    backoff: {min: 1s, max: 1m}
    breaker_backoff: {min: 2s, max: 2m}
  nothing:
    type: discard
    max_attempts: 5
routes:
  - topic: orders
    sink: web
    source: shop
    expire_after: 90m
    on_expire: discard
  - {prefix: audit., sinks: [nothing, web]}
  - {topic: "*", sink: nothing, also: true}
  - {pattern: '[a-z]+', sink: nothing}
admin:
  listen: :8321
log:
  level: debug
  format: json
`)
	want := Config{
		Sources: []Source{
			{"shop", Database{kind: "postgres", url: "postgres://u:p@h/d"}, "sales.events", storage.ByRows, storage.Priority,
				[]string{"orders", "7", "yes"}, "shop-0", true, 20 * time.Second, 50 * time.Millisecond, Off, 7 * 24 * time.Hour, time.Minute, 2 * time.Minute, ""},
			{Name: "other", Database: Database{kind: "sqlite", url: "/var/lib/other.db"}, Table: "outbox", Retention: relay.KeepNothing},
		},
		Sinks: []Sink{
			{relay.SinkOptions{Batch: 100, BatchBytes: 2 << 20, Workers: 4, Buffer: 1000, BufferBytes: 8 << 20, Timeout: 3 * time.Second,
				MaxAttempts: -1, BreakerThreshold: -1, JudgeAloneAfter: -1, ParkRateLimit: -1, OnPark: relay.HoldKey, DeadLetter: relay.DeadLetter{Sink: "nothing"},
				Backoff: relay.Backoff{Min: time.Second, Max: time.Minute}, BreakerBackoff: relay.Backoff{Min: 2 * time.Second, Max: 2 * time.Minute}},
				"web", "http", map[string]any{"url": "https://example.org/in", "token": "hunter2", "port": int64(8080),
					"tls": true, "headers": map[string]any{"a": "b"}}, "", nil},
			{Name: "nothing", Type: "discard", Settings: map[string]any{}, SinkOptions: relay.SinkOptions{MaxAttempts: 5}},
		},
		Routes: []Route{
			{relay.Route{Topic: "orders", Sink: "web", ExpireAfter: 90 * time.Minute, OnExpire: relay.DiscardExpired}, "shop"},
			{relay.Route{Prefix: "audit.", Sinks: []string{"nothing", "web"}}, ""},
			{relay.Route{Topic: "*", Sink: "nothing", Also: true}, ""},
			{relay.Route{Pattern: "[a-z]+", Sink: "nothing"}, ""},
		},
		Admin: Admin{Listen: "127.0.0.1:8321"},
		Log:   Log{Level: -4, Format: JSON},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
	if routes := c.RoutesOf("other"); len(routes) != 3 || routes[0].Prefix != "audit." {
		t.Errorf("other has the routes %+v, want all but the shop's own", routes)
	}
	if found := c.SinksOf("other"); len(found) != 2 {
		t.Errorf("other has the sinks %+v, want both", found)
	}
}

func TestAllProblemsAreReportedInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	_, err := parse(t, `sources:
  shop:
    databse: sqlite:x.db
    claim: line
    lease: 5
    pick: newest
  "bad name":
    database: sqlite:y.db
sinks:
  web:
    type: htp
    batch: 0
  nothing:
    type: discard
    colour: red
routes:
  - {topic: a, prefix: b, sink: wep}
  - sink: nothing
  - {topic: x, sink: nothing, source: shops}
  - {topic: x, sinks: [web, nothing]}
  - {pattern: "a(", sink: web}
admin:
  listen: nowhere
lock: {}
`)
	want := []string{
		"rowrelay.yaml:2:3: sources.shop: needs a database",
		"rowrelay.yaml:3:5: sources.shop.databse: is not a setting here: did you mean database?",
		`rowrelay.yaml:4:12: sources.shop.claim: "line" must be one of lanes, rows`,
		`rowrelay.yaml:5:12: sources.shop.lease: "5" must be a number with a unit, such as 250ms, 10s, 24h or 7d`,
		"rowrelay.yaml:6:11: sources.shop.pick: needs claim: rows; with claim: lanes, the relay reads all messages in their order",
		`rowrelay.yaml:7:3: sources: "bad name" isn't a name: use 1 to 63 letters, digits, dots, hyphens and underscores, beginning with a letter or digit`,
		`rowrelay.yaml:11:11: sinks.web.type: there is no type "htp": did you mean http?`,
		`rowrelay.yaml:12:12: sinks.web.batch: "0" must be at least 1`,
		"rowrelay.yaml:15:5: sinks.nothing.colour: is not a setting here: the settings are type, batch, batch_bytes, workers, buffer, buffer_bytes, timeout, max_attempts, breaker_threshold, judge_alone_after, park_rate_limit, on_park, dead_letter, backoff, breaker_backoff",
		"rowrelay.yaml:17:5: routes[0]: needs exactly one of topic, prefix and pattern",
		`rowrelay.yaml:17:33: routes[0].sink: there is no sink "wep": did you mean web?`,
		"rowrelay.yaml:18:5: routes[1]: needs exactly one of topic, prefix and pattern",
		`rowrelay.yaml:19:39: routes[2].source: there is no source "shops": did you mean shop?`,
		"rowrelay.yaml:20:5: routes[3]: is a duplicate of routes[2]: remove one of them",
		"rowrelay.yaml:21:15: routes[4].pattern: \"a(\" isn't a regular expression: error parsing regexp: missing closing ): `a(`",
		`rowrelay.yaml:23:11: admin.listen: "nowhere" isn't an address: write 127.0.0.1:8321, or 0.0.0.0:8321 to listen on all interfaces`,
		"rowrelay.yaml:24:1: lock: is not a setting here: did you mean log?",
	}
	compareLines(t, err, want)
}

func compareLines(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("missing: %s", want[i])
		case i >= len(want):
			t.Errorf("unexpected: %s", got[i])
		case got[i] != want[i]:
			t.Errorf("got  %s\nwant %s", got[i], want[i])
		}
	}
}

func TestOneProblem(t *testing.T) {
	t.Parallel()
	const source = "sources:\n  s: {database: 'sqlite:x.db'}\n"
	const sink = "sinks:\n  n: {type: discard}\n"
	for name, test := range map[string]struct{ text, want string }{
		"empty":              {"", "is empty"},
		"only a comment":     {"# nothing\n", "is empty"},
		"only null":          {"~\n", "needs settings below it, not nothing"},
		"a scalar":           {"hello\n", "1:1: needs settings below it, not a value"},
		"a list":             {"- a\n", "needs settings below it, not a list"},
		"not YAML":           {"sources: [a\n", "isn't valid YAML"},
		"tabs":               {"sources:\n\ts: 1\n", "2:1: isn't valid YAML"},
		"no sources":         {sink, "sources: is missing"},
		"no sinks":           {source, "sinks: is missing"},
		"sources is null":    {"sources:\n" + sink, "1:1: sources: needs settings below it, not nothing"},
		"sources is empty":   {"sources: {}\n" + sink, "sources: needs settings below it, but has none"},
		"a source is null":   {"sources:\n  s:\n" + sink, "sources.s: needs settings below it, not nothing"},
		"two documents":      {source + sink + "---\nlog: {}\n", "one document"},
		"an alias":           {source + "sinks:\n  n: &a {type: discard}\n", "anchors, aliases and tags aren't supported"},
		"a tag":              {source + "sinks:\n  n: {type: !!str discard}\n", "anchors, aliases and tags aren't supported"},
		"a merge key":        {source + "sinks:\n  n: {<<: {type: discard}}\n", "merge keys aren't supported"},
		"a key twice":        {source + sink + "admin: {listen: 1, listen: 2}\n", "5:20: admin.listen: is given twice"},
		"a name twice":       {source + "sinks:\n  n: {type: discard}\n  n: {type: discard}\n", "5:3: sinks.n: is given twice"},
		"a value missing":    {source + sink + "admin:\n  listen:\n", "admin.listen: needs a value, not nothing"},
		"a list for a value": {source + sink + "admin: {listen: [a]}\n", "5:17: admin.listen: needs a value, not a list"},
		"a value for a list": {source + sink + "routes: all\n", "routes: needs a list, not a value"},
		"routes is null":     {source + sink + "routes:\n", "routes: needs a list, not nothing"},
		"a topic twice": {"sources:\n  s: {database: 'sqlite:x.db', claim: rows, topics: [a, a]}\n" + sink,
			`sources.s.topics[1]: "a" is given twice`},
		"no routes for two sinks": {source + "sinks:\n  n: {type: discard}\n  m: {type: discard}\n",
			"routes: are needed, because there is more than one sink"},
		"a source without a route": {"sources:\n  s: {database: 'sqlite:x.db'}\n  t: {database: 'sqlite:y.db'}\n" + sink +
			"routes:\n  - {topic: a, sink: n, source: s}\n", "3:3: sources.t: has no route"},
		"a route without a sink":   {source + sink + "routes:\n  - topic: a\n", "6:5: routes[0]: needs either sink or sinks"},
		"both a sink and sinks":    {source + sink + "routes:\n  - {topic: a, sink: s, sinks: [s]}\n", "6:5: routes[0]: needs either sink or sinks"},
		"a sink of several":        {source + sink + "routes:\n  - {topic: a, sinks: [s, t]}\n", "there is no sink \"t\""},
		"no type":                  {source + "sinks:\n  n: {batch: 1}\n", "sinks.n: needs a type: discard, http"},
		"a missing setting":        {source + "sinks:\n  n: {type: http, port: 1}\n", "4:3: sinks.n.url: is required: Where to."},
		"a refused setting":        {source + "sinks:\n  n: {type: http, url: x, port: 9001}\n", "4:33: sinks.n.port: must be at most 9000"},
		"settings refused by Make": {source + "sinks:\n  n: {type: http, url: nowhere}\n", "4:3: sinks.n: sink kind http: nowhere is no place"},
		"two refused settings":     {source + "sinks:\n  n: {type: http, workers: 0, port: 9001}\n", "n.port: must be at most 9000"},
		"a null setting":           {source + "sinks:\n  n: {type: http, url: }\n", "4:19: sinks.n.url: needs a value"},
		"listening to SQLite": {"sources:\n  s: {database: 'sqlite:x.db', listen: on}\n" + sink,
			"2:40: sources.s.listen: can't be on: only postgres has notifications"},
		"backoff upside down":      {source + "sinks:\n  n: {type: discard, backoff: {min: 2s, max: 1s}}\n", "sinks.n.backoff: has a max below its min"},
		"a dead letter to nowhere": {source + "sinks:\n  n: {type: discard, dead_letter: {}}\n", "sinks.n.dead_letter: needs settings below it"},
		"a dead letter to both":    {source + "sinks:\n  n: {type: discard, dead_letter: {topic: t, sink: m}}\n", "4:22: sinks.n.dead_letter: needs either a topic or a sink"},
		"a dead letter to itself":  {source + "sinks:\n  n: {type: discard, dead_letter: {sink: n}}\n", "4:42: sinks.n.dead_letter.sink: is the sink itself"},
		"a dead letter to no sink": {source + "sinks:\n  n: {type: discard, dead_letter: {sink: m}}\n", `dead_letter.sink: there is no sink "m"`},
		"a dead letter without a route": {source + "sinks:\n  n: {type: discard, dead_letter: {topic: dead.n}}\nroutes:\n  - {prefix: deed, sink: n}\n  - {pattern: 'dead', sink: n}\n",
			`dead_letter.topic: matches no route of the source "s"`},
		"an invalid table": {"sources:\n  s: {database: 'sqlite:x.db', table: 'a b'}\n" + sink,
			`sources.s.table: "a b" isn't a table: the table's name must consist of`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, test.text)
			var problems *Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v\nwant %q in it", err, test.want)
			}
		})
	}
}

// SinksOf includes the sinks that receive dead letters, and those that receive dead
// letters of these sinks in turn.
func TestSinksOfDeadLetters(t *testing.T) {
	t.Parallel()
	c := mustParse(t, `
sources:
  s: {database: 'sqlite:x.db'}
sinks:
  last: {type: discard}
  more: {type: discard, dead_letter: {sink: last}}
  main: {type: discard, dead_letter: {sink: more}}
  side: {type: discard, dead_letter: {topic: dead.side}}
  none: {type: discard, dead_letter: {topic: nowhere}}
routes:
  - {topic: orders, sink: main}
  - {prefix: "dead.", sink: side}
`)
	var found []string
	for _, sink := range c.SinksOf("s") {
		found = append(found, sink.Name)
	}
	if want := []string{"last", "more", "main", "side"}; !slices.Equal(found, want) {
		t.Errorf("the sinks are %q, want %q", found, want)
	}
}

func TestLoadNamesAMissingFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rowrelay.yaml")
	if _, err := Load(file, kinds()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if err := os.WriteFile(file, []byte(smallest), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, kinds())
	if err != nil || len(c.Sources) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := Load(filepath.Dir(file), kinds()); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("got %v, want an error about the folder", err)
	}
}

func TestAFileIsReadUpToItsLimit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rowrelay.yaml")
	for size, wanted := range map[int]bool{maxFile: true, maxFile + 1: false} {
		content := smallest + "#" + strings.Repeat("x", size-len(smallest)-1)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file, kinds()); (err == nil) != wanted {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
