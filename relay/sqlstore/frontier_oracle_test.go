package sqlstore_test

import (
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// readFor reads repeatedly until the span has passed, and returns the last safe id.
func readFor(t *testing.T, store *sqlstore.Store, span time.Duration) int64 {
	t.Helper()
	var page storage.Page
	for start := time.Now(); time.Since(start) < span; time.Sleep(100 * time.Millisecond) {
		var err error
		if page, err = store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 3}}, Limit: 10, MaxBytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	return page.SafeID
}

// If reading the list of open transactions fails before its end, the store doesn't use the rows that it has
// read, even if it would repeat other statements after this error.
func TestOracleIncompleteListIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := scriptedOracle("19.0.0.0.0")
		store, err := openScripted(t, server)
		if err != nil {
			t.Fatal(err)
		}
		server.answers["v$database"] = [][]driver.Value{{"number", "100"}}
		server.breaks = map[string]error{"v$database": errors.New("ORA-00060: deadlock detected while waiting for resource")}
		if safeID := readFor(t, store, 5*time.Second); safeID != 0 {
			t.Errorf("the safe id is %d after incomplete lists, want 0", safeID)
		}
		server.breaks = nil
		if safeID := readFor(t, store, 10*time.Second); safeID != 7 {
			t.Errorf("the safe id is %d after complete lists, want 7", safeID)
		}
	})
}
