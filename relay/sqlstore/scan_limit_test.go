package sqlstore

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// On MySQL and MariaDB, a scan's statement has a time limit: the time until its context's deadline. The limit is
// rounded, so that few different statements exist.
func TestScanSendsItsTimeLimitToTheServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dialect dialect.Dialect
		takes   time.Duration // the time limit; 0: none
		want    string
	}{
		"MySQL":                   {dialect.MySQL(), 150 * time.Millisecond, "SELECT /*+ MAX_EXECUTION_TIME(150) */ t.id"},
		"MariaDB":                 {dialect.MariaDB(), 150 * time.Millisecond, "SET STATEMENT max_statement_time = 0.15 FOR\nSELECT t.id"},
		"rounded up to 10 s":      {dialect.MySQL(), 9990 * time.Millisecond, "MAX_EXECUTION_TIME(10000)"},
		"the shortest limit":      {dialect.MySQL(), time.Millisecond, "MAX_EXECUTION_TIME(50)"},
		"MySQL without a limit":   {dialect.MySQL(), 0, "SELECT t.id"},
		"PostgreSQL has no limit": {dialect.Postgres(), 150 * time.Millisecond, "SELECT t.id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				recorder := &backendtest.Recorder{}
				db := recorder.DB()
				defer func() { _ = db.Close() }()
				product, _, _ := databases.Of(test.dialect.Name())
				s := &Store{db: db, dialect: test.dialect, backend: product.New(db, test.dialect, backendtest.Table(t, "outbox"), nil)}
				s.capabilities = s.backend.Capabilities()
				ctx := t.Context()
				if test.takes > 0 {
					bounded, cancel := context.WithTimeout(ctx, test.takes)
					defer cancel()
					ctx = bounded
				}
				if _, _, err := s.Scan(ctx, []storage.Position{{Lane: 1, Until: 9}}, []string{"down"}, nil); err != nil {
					t.Fatal(err)
				}
				if got := recorder.Taken(); len(got) != 1 || !strings.Contains(got[0].SQL, test.want) {
					t.Errorf("the statements are %q, want one with %q", got, test.want)
				}
			})
		})
	}
}
