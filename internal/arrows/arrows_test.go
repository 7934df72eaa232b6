package arrows

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheTreeKeepsItsArrows(t *testing.T) {
	t.Parallel()
	imports, err := Imports(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(imports, func(i Import) bool { return i.folder() == "outbox" }) {
		t.Error("no import of package outbox was found: is this the module's root?")
	}
	for _, violation := range Violations(imports) {
		t.Error(violation)
	}
}

func TestOnlyRunStartsGoroutines(t *testing.T) {
	t.Parallel()
	places, err := Goroutines(os.DirFS("../.."), "relay", "run.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range places {
		t.Errorf("%s: a goroutine of package relay is started outside run.go", place)
	}
}

const own = module + "/"

// Each rule is tested with imports that break it and with imports that don't.
func TestViolations(t *testing.T) {
	t.Parallel()
	const (
		arrow   = "arrows between packages"
		sink    = "no sink imports another"
		driver  = "database drivers"
		library = "stays with the packages"
		tests   = "import testing"
		helper  = "their helpers"
	)
	for _, test := range []struct {
		file, path string
		want       []string
	}{
		{"rowrelay.go", own + "relay/sqlstore", nil},
		{"rowrelay.go", own + "relay/relaypgx", []string{arrow}},
		{"rowrelay.go", own + "internal/config", []string{arrow}},
		{"sinks/sink.go", module, []string{arrow}},
		{"outbox/writer.go", "database/sql", nil},
		{"outbox/writer.go", own + "outbox/dialect", nil},
		{"outbox/writer.go", own + "relay", []string{arrow}},
		{"outbox/writer.go", "github.com/google/uuid", []string{arrow}},
		{"outbox/dialect/postgres.go", own + "outbox", []string{arrow}},
		{"outbox/dialect/postgres.go", "github.com/lib/pq", []string{arrow, driver}},
		{"outbox/inbox/inbox.go", own + "outbox", nil},
		{"outbox/inbox/inbox.go", "github.com/jackc/pgx/v5", []string{arrow, driver}},
		{"outbox/pgx.go", "github.com/jackc/pgx/v5", []string{arrow, driver}},
		{"outbox/outboxtest/check.go", "testing", nil},
		{"sinks/sink.go", own + "outbox", nil},
		{"sinks/sink.go", own + "relay", []string{arrow}},
		{"sinks/sink.go", own + "sinks/kafka", []string{arrow}},
		{"sinks/kafka/sink.go", "github.com/segmentio/kafka-go", nil},
		{"sinks/kafka/sink.go", own + "sinks/rabbitmq", []string{arrow, sink}},
		{"sinks/kafka/internal/wire/wire.go", own + "sinks/kafka", nil},
		{"sinks/kafka/internal/wire/wire.go", own + "sinks/rabbitmq", []string{sink}},
		{"sinks/kafka/sink.go", own + "sinks/sinktest", []string{arrow, helper}},
		{"sinks/kafka/sink.go", own + "relay", []string{arrow}},
		{"plugins/host.go", own + "sinks", nil},
		{"plugins/host.go", own + "relay", []string{arrow}},
		{"plugins/host.go", own + "plugins/pluginv1", nil},
		{"plugins/pluginv1/sink.pb.go", own + "sinks", []string{arrow}},
		{"plugins/examples/x/main.go", own + "plugins", nil},
		{"plugins/examples/x/main.go", own + "relay", []string{arrow}},
		{"migrations/run.go", "github.com/pressly/goose/v3", nil},
		{"migrations/run.go", own + "relay/sqlstore", []string{arrow}},
		{"relay/claim.go", own + "sinks", nil},
		{"relay/claim.go", own + "relay/sqlstore", []string{arrow}},
		{"relay/claim.go", own + "outbox/dialect", []string{arrow}},
		{"relay/claim.go", "go.uber.org/zap", []string{arrow}},
		{"relay/sqlstore/read.go", own + "outbox/dialect", nil},
		{"relay/sqlstore/read.go", own + "sinks/kafka", []string{arrow}},
		{"relay/sqlstore/read.go", "github.com/jackc/pgx/v5/stdlib", []string{arrow, driver}},
		{"relay/relaypgx/relaypgx.go", "github.com/jackc/pgx/v5", nil},
		{"relay/sqlstore/read.go", own + "internal/app", []string{arrow}},
		{"relay/relaypgx/relaypgx.go", own + "internal/config", []string{arrow}},
		{"internal/config/file.go", "github.com/goccy/go-yaml", nil},
		{"internal/config/file.go", own + "internal/app", []string{arrow}},
		{"relay/admin/admin.go", "github.com/goccy/go-yaml", []string{arrow, library}},
		{"sinks/kafka/kind.go", own + "internal/config", []string{arrow}},
		{"sinks/kafka/kind.go", "github.com/spf13/cobra", []string{library}},
		{"relay/metrics/metrics.go", "github.com/prometheus/client_golang/prometheus", nil},
		{"relay/admin/admin.go", "github.com/prometheus/client_golang/prometheus", []string{arrow, library}},
		{"relay/admin/admin.go", own + "relay/metrics", []string{arrow}},
		{"internal/app/app.go", own + "relay/metrics", nil},
		{"internal/app/app.go", own + "sinks/kafka", []string{arrow}},
		{"internal/app/app.go", "modernc.org/sqlite", []string{driver}},
		{"internal/app/app.go", "github.com/prometheus/client_golang/prometheus", []string{library}},
		{"internal/memstore/memstore.go", "testing", []string{tests}},
		{"internal/memstore/memstore.go", "testing/synctest", []string{tests}},
		{"relay/storetest/suite.go", "testing", nil},
		{"relay/storetest/suite.go", own + "internal/testdb", []string{arrow}},
		{"cmd/rowrelay/sinks.go", own + "sinks/kafka", nil},
		{"cmd/rowrelay/drivers_mysql.go", "github.com/go-sql-driver/mysql", nil},
		{"cmd/rowrelay/demo.go", own + "internal/testdb", []string{arrow, helper}},
		{"cmd/rowrelay/demo.go", "github.com/prometheus/client_golang/prometheus", []string{library}},
		{"internal/testdb/postgres.go", "github.com/lib/pq", nil},
		{"internal/shop/shop.go", "github.com/ncruces/go-sqlite3/driver", []string{driver}},
	} {
		t.Run(test.file+" to "+test.path, func(t *testing.T) {
			t.Parallel()
			got := Violations([]Import{{File: test.file, Path: test.path}})
			if len(got) != len(test.want) {
				t.Fatalf("violations %q, want those with %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) || !strings.Contains(got[i], test.file) {
					t.Errorf("violation %q, want one that names the file and has %q", got[i], want)
				}
			}
		})
	}
}

func TestImportsReadsEverythingButTests(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"outbox/a.go":          {Data: []byte("//go:build mysql\n\npackage outbox\n\nimport _ \"errors\"\n")},
		"outbox/a_test.go":     {Data: []byte("package outbox\n\nimport \"testing\"\n")},
		"outbox/testdata/a.go": {Data: []byte("package a\n\nimport \"testing\"\n")},
		".servers/a.go":        {Data: []byte("package a\n\nimport \"testing\"\n")},
		"outbox/go.mod":        {Data: []byte("module outbox\n")},
		"bench/go.mod":         {Data: []byte("module bench\n")},
		"bench/x/main.go":      {Data: []byte("package main\n\nimport \"testing\"\n")},
	}
	got, err := Imports(tree)
	if want := []Import{{File: "outbox/a.go", Path: "errors"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Imports = %v, %v; want %v", got, err, want)
	}
}

func TestGoroutinesAreFound(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"relay/run.go":       {Data: []byte("package relay\n\nfunc a() { go a() }\n")},
		"relay/claim.go":     {Data: []byte("package relay\n\nfunc b() { if true { go func() {}() } }\n")},
		"relay/send.go":      {Data: []byte("package relay\n\nfunc c(g group) {\n\tg.Go(c)\n\tg.Wait()\n}\n")},
		"relay/run_test.go":  {Data: []byte("package relay\n\nfunc d() { go d() }\n")},
		"relay/app/serve.go": {Data: []byte("package app\n\nfunc e() { go e() }\n")},
	}
	got, err := Goroutines(tree, "relay", "run.go")
	if want := []string{"relay/claim.go:3:22", "relay/send.go:4:2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("Goroutines = %v, %v; want %v", got, err, want)
	}
}
