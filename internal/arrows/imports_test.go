package arrows

import (
	"path"
	"slices"
	"strings"
)

const module = "github.com/rowrelay/rowrelay"

// Import is an import of a file that is not a test.
type Import struct {
	File string // slash-separated, from the module's root
	Path string // the import path
}

// folder returns the folder of the importing package, relative to the module's root.
func (i Import) folder() string { return path.Dir(i.File) }

// own returns the imported package's folder if the package belongs to this module.
func (i Import) own() (string, bool) {
	if i.Path == module {
		return ".", true
	}
	if !strings.HasPrefix(i.Path, module+"/") {
		return "", false
	}
	return i.Path[len(module)+1:], true
}

// foreign reports whether the imported package belongs to another module.
func (i Import) foreign() bool {
	_, own := i.own()
	first, _, _ := strings.Cut(i.Path, "/")
	return !own && strings.Contains(first, ".")
}

// arrow defines what the packages in some folders may import in addition to the standard library.
// Folders are patterns of path.Match.
type arrow struct {
	from    string
	to      []string // this module's packages
	modules bool     // other modules may be imported, too
}

// arrows has the rules; the first rule whose field from matches applies. The folders in a rule
// need not exist yet.
var arrows = []arrow{
	{from: ".", to: []string{"outbox", "outbox/dialect", "migrations", "relay", "relay/storage", "relay/sqlstore", "sinks", "sinks/inproc"}},
	{from: "outbox/dialect/bind"},
	{from: "outbox/dialect", to: []string{"outbox/dialect/bind"}},
	{from: "outbox", to: []string{"outbox/dialect", "outbox/internal/*"}},
	{from: "outbox/*", to: []string{"outbox", "outbox/dialect", "outbox/internal/*"}},
	{from: "sinks/settings", to: []string{"outbox"}},
	{from: "sinks", to: []string{"sinks/settings", "outbox"}},
	{from: "sinks/cloudevents", to: []string{"sinks", "sinks/settings", "outbox"}},
	{from: "sinks/oauth2", to: []string{"sinks/settings"}},
	{from: "sinks/*", to: []string{"sinks", "sinks/settings", "sinks/cloudevents", "sinks/oauth2", "outbox"}, modules: true},
	{from: "plugins/pluginv1", modules: true},
	{from: "plugins", to: []string{"plugins/pluginv1", "sinks", "sinks/settings", "outbox"}, modules: true},
	{from: "plugins/*/*", to: []string{"plugins", "sinks", "sinks/*", "outbox"}, modules: true}, // examples
	{from: "migrations", to: []string{"internal/backend", "internal/databases", "outbox/dialect"}, modules: true},
	{from: "relay/storage", to: []string{"outbox"}},
	{from: "relay", to: []string{"relay/storage", "sinks", "outbox"}},
	{from: "internal/backend", to: []string{"relay/storage", "outbox", "outbox/dialect"}},
	{from: "relay/sqlstore/*", to: []string{"internal/backend", "relay/storage", "outbox/dialect", "outbox/dialect/bind"}},
	{from: "internal/databases", to: []string{"internal/backend", "relay/sqlstore/*", "outbox/dialect"}},
	{from: "relay/sqlstore", to: []string{"internal/backend", "internal/databases", "relay/storage", "outbox", "outbox/dialect"}},
	{from: "relay/metrics", to: []string{"relay", "relay/storage", "sinks"}, modules: true},
	{from: "relay/operate", to: []string{"relay/storage", "sinks/settings"}},
	{from: "relay/admin", to: []string{"relay", "relay/operate", "relay/storage", "sinks", "sinks/settings", "outbox"}},
	{from: "relay/relaypgx", to: []string{"relay", "internal/backend", "outbox/dialect"}, modules: true},
	{from: "relay/*", to: []string{"relay", "relay/storage", "sinks", "outbox", "outbox/dialect"}, modules: true},
	{from: "internal/memstore", to: []string{"relay/storage", "outbox"}},
	{from: "rowrelaytest", to: []string{"internal/memstore", "relay", "relay/storage", "sinks/inproc", "outbox", "outbox/outboxtest"}},
	{from: "internal/adopt", to: []string{"outbox/dialect"}},
	{from: "internal/config", to: []string{"internal/backend", "internal/databases", "relay", "relay/storage", "sinks", "sinks/settings", "outbox/dialect"}, modules: true},
	{from: "internal/app", to: []string{"relay", "relay/*", "internal/config", "sinks", "outbox"}, modules: true},
	{from: "cmd/*", to: []string{"outbox", "outbox/*", "sinks", "sinks/*", "plugins", "plugins/*", "migrations",
		"relay", "relay/*", "internal/adopt", "internal/app", "internal/config", "internal/databases"}, modules: true},
}

// drivers has the modules of database drivers. For each it lists the packages that may import the
// module, in addition to commands and test helpers.
var drivers = map[string][]string{
	"github.com/jackc/pgx":             {"relay/relaypgx"},
	"github.com/lib/pq":                nil,
	"modernc.org/sqlite":               nil,
	"github.com/mattn/go-sqlite3":      nil,
	"github.com/ncruces/go-sqlite3":    nil,
	"github.com/go-sql-driver/mysql":   nil,
	"github.com/microsoft/go-mssqldb":  nil,
	"github.com/sijms/go-ora":          nil,
	"github.com/godror/godror":         nil,
	"github.com/tursodatabase/libsql":  nil,
	"github.com/ClickHouse/clickhouse": nil,
}

// homes has the libraries that only certain packages may import. For each it lists these packages.
// So a program that embeds relays gets no library that only the daemon or another part needs.
var homes = map[string][]string{
	"github.com/prometheus":      {"relay/metrics"},
	"github.com/pressly/goose":   {"migrations"},
	"github.com/goccy/go-yaml":   {"internal/config"},
	"github.com/spf13":           {"cmd/*"},
	"github.com/hashicorp":       {"plugins"},
	"go.opentelemetry.io":        {"relay/tracing", "cmd/*"},
	"google.golang.org/grpc":     {"plugins", "plugins/*"},
	"google.golang.org/protobuf": {"plugins", "plugins/*"},
}

// allows reports whether an arrow allows an import.
func (a arrow) allows(i Import) bool {
	if own, ok := i.own(); ok {
		return slices.ContainsFunc(a.to, func(pattern string) bool { return matches(pattern, own) })
	}
	return a.modules || !i.foreign()
}

func matches(pattern, folder string) bool {
	ok, _ := path.Match(pattern, folder)
	return ok
}

// testHelper reports whether only tests use the package in a folder.
func testHelper(folder string) bool {
	return strings.HasSuffix(folder, "test") || folder == "internal/testdb"
}

// within reports whether an import path is in a module, in any version.
func within(importPath, module string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/") || strings.HasPrefix(importPath, module+"-")
}
