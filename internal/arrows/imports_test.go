package arrows

import (
	"path"
	"slices"
	"strings"
)

const module = "github.com/rowrelay/rowrelay"

// Import is one import of a file that is not a test's.
type Import struct {
	File string // slash-separated, from the module's root
	Path string // as the file has it
}

// folder is the package that imports, from the module's root.
func (i Import) folder() string { return path.Dir(i.File) }

// own returns the imported package's folder if it is one of this module.
func (i Import) own() (string, bool) {
	if i.Path == module {
		return ".", true
	}
	if !strings.HasPrefix(i.Path, module+"/") {
		return "", false
	}
	return i.Path[len(module)+1:], true
}

// foreign says whether the import is of another module.
func (i Import) foreign() bool {
	_, own := i.own()
	first, _, _ := strings.Cut(i.Path, "/")
	return !own && strings.Contains(first, ".")
}

// arrow says what the packages in some folders may import besides the standard
// library. Folders are patterns as path.Match has them.
type arrow struct {
	from    string
	to      []string // this module's packages
	modules bool     // other modules, too
}

// arrows: the first one whose from matches holds. The name of a folder that
// isn't there yet may stand here.
var arrows = []arrow{
	{from: ".", to: []string{"outbox", "outbox/dialect", "migrations", "relay", "relay/storage", "relay/sqlstore", "sinks", "sinks/inproc"}},
	{from: "outbox/dialect/bind"},
	{from: "outbox/dialect", to: []string{"outbox/dialect/bind"}},
	{from: "outbox", to: []string{"outbox/dialect", "outbox/internal/*"}},
	{from: "outbox/*", to: []string{"outbox", "outbox/dialect", "outbox/internal/*"}},
	{from: "sinks/settings", to: []string{"outbox"}},
	{from: "sinks", to: []string{"sinks/settings", "outbox"}},
	{from: "sinks/cloudevents", to: []string{"sinks", "sinks/settings", "outbox"}},
	{from: "sinks/*", to: []string{"sinks", "sinks/settings", "sinks/cloudevents", "outbox"}, modules: true},
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
	{from: "relay/admin", to: []string{"relay", "relay/operate", "relay/storage", "sinks", "sinks/settings"}},
	{from: "relay/relaypgx", to: []string{"relay", "internal/backend", "outbox/dialect"}, modules: true},
	{from: "relay/*", to: []string{"relay", "relay/storage", "sinks", "outbox", "outbox/dialect"}, modules: true},
	{from: "internal/memstore", to: []string{"relay/storage", "outbox"}},
	{from: "rowrelaytest", to: []string{"internal/memstore", "relay", "relay/storage", "sinks/inproc", "outbox", "outbox/outboxtest"}},
	{from: "internal/config", to: []string{"internal/backend", "internal/databases", "relay", "relay/storage", "sinks", "sinks/settings", "outbox/dialect"}, modules: true},
	{from: "internal/app", to: []string{"relay", "relay/*", "internal/config", "sinks", "outbox"}, modules: true},
	{from: "cmd/*", to: []string{"outbox", "outbox/*", "sinks", "sinks/*", "plugins", "plugins/*", "migrations",
		"relay", "relay/*", "internal/app", "internal/config", "internal/databases"}, modules: true},
}

// drivers are the modules that speak to a database, and the packages besides
// commands and the tests' helpers that may import them.
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

// homes are libraries that some packages are there for, and those packages: what a
// program embeds brings no library along that only the daemon, or one part of us,
// needs.
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

// allows says whether an arrow lets its packages import this.
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

// testHelper says whether a package is there for tests only.
func testHelper(folder string) bool {
	return strings.HasSuffix(folder, "test") || folder == "internal/testdb"
}

// within says whether an import path is a module or lies in it, in any version.
func within(importPath, module string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/") || strings.HasPrefix(importPath, module+"-")
}
