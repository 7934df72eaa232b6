package sqlstore

import (
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/internal/backendtest"
	"github.com/rowrelay/rowrelay/internal/databases"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A settle reads attempt logs only for failed rows that may have one, in one statement. It changes none of the given settlements,
// because the caller writes them again if the settle fails.
func TestSettleReadsLogsOnlyOfRowsThatMayHaveOne(t *testing.T) {
	t.Parallel()
	const message = "0197a3b4-0000-7abc-8def-0123456789ab"
	attempt := func(number int64) storage.Attempt {
		return storage.Attempt{At: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), Relay: "r", Answer: "no", DurationMS: number}
	}
	failed := storage.Settlement{ID: 5, MessageID: message, Lane: 3, State: storage.StateRetry, Failed: []storage.Attempt{attempt(2)}}
	done, deferred, claimed, silent := failed, failed, failed, failed
	done.State, done.Failed = storage.StateDone, nil
	deferred.Deferred = true
	claimed.Token = "t"
	silent.Deferred, silent.Failed = true, nil
	for name, test := range map[string]struct {
		settlements []storage.Settlement
		reads       int
		logged      int // the number of attempts to write for the first settlement
	}{
		"delivered":                             {[]storage.Settlement{done, done}, 0, 0},
		"the first failure":                     {[]storage.Settlement{failed, done}, 0, 1},
		"another failure":                       {[]storage.Settlement{deferred, done, failed}, 1, 2},
		"a claimed row":                         {[]storage.Settlement{claimed}, 1, 2},
		"a retry without a new attempt":         {[]storage.Settlement{silent}, 0, 0},
		"failures, and one with no new attempt": {[]storage.Settlement{silent, deferred}, 1, 0},
	} {
		for _, d := range []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(), dialect.SQLite(), dialect.SQLServer(), dialect.Oracle()} {
			recorder := &backendtest.Recorder{Answer: func(string) [][]driver.Value {
				return [][]driver.Value{{int64(5), int64(3), message, "", storage.AttemptLog{attempt(1)}.Text()}}
			}}
			db := recorder.DB()
			product, _, _ := databases.Of(d.Name())
			s := &Store{db: db, dialect: d, backend: product.New(db, d, backendtest.Table(t, "outbox"), nil)}
			logged, err := s.withLogs(t.Context(), test.settlements)
			if err != nil {
				t.Fatal(err)
			}
			var reads []backend.Query
			for _, query := range recorder.Taken() {
				if strings.Contains(query.SQL, "attempt_log") {
					reads = append(reads, query)
				}
			}
			if len(reads) != test.reads || len(logged) != len(test.settlements) || len(logged[0].Failed) != test.logged {
				t.Errorf("%s on %s: %d statements and the log %+v, want %d statements and %d attempts", name, d.Name(), len(reads), logged[0].Failed, test.reads, test.logged)
			}
			if test.logged == 2 && (logged[0].Failed[0].DurationMS != 1 || len(test.settlements[0].Failed) != 1) {
				t.Errorf("%s on %s: the log is %+v and the given settlement has %+v, want the old attempt first and the settlement unchanged", name, d.Name(), logged[0].Failed, test.settlements[0].Failed)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
