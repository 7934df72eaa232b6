package sqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// scripted is a driver that behaves like Oracle's: numbers are text, an empty text is NULL, a transaction
// accepts no isolation level, and parameters are bound by position. A query whose text contains a key of
// answers returns the rows of this key.
type scripted struct {
	answers map[string][][]driver.Value
	missing string           // a view that the user may not see
	breaks  map[string]error // for a key of answers, the error after the last row
	began   int
}

func (s *scripted) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *scripted) Driver() driver.Driver                        { return nil }
func (s *scripted) Prepare(string) (driver.Stmt, error)          { return nil, errors.ErrUnsupported }
func (s *scripted) Close() error                                 { return nil }
func (s *scripted) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (s *scripted) Commit() error                                { return nil }
func (s *scripted) Rollback() error                              { return nil }

func (s *scripted) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	if options.Isolation != 0 || options.ReadOnly {
		return nil, errors.New("only support default value for isolation")
	}
	s.began++
	return s, nil
}

func (s *scripted) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

func (s *scripted) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	if s.missing != "" && strings.Contains(statement, s.missing) {
		return nil, errors.New("ORA-00942: table or view does not exist")
	}
	for part, rows := range s.answers {
		if strings.Contains(statement, part) {
			return &scriptedRows{rows, cmp.Or(s.breaks[part], io.EOF)}, nil
		}
	}
	return nil, errors.New("the test has no answer for " + statement)
}

type scriptedRows struct {
	rows [][]driver.Value
	end  error
}

func (r *scriptedRows) Close() error { return nil }

func (r *scriptedRows) Columns() []string {
	if len(r.rows) == 0 {
		return nil
	}
	return make([]string, len(r.rows[0]))
}

func (r *scriptedRows) Next(into []driver.Value) error {
	if len(r.rows) == 0 {
		return r.end
	}
	copy(into, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

func scriptedOracle(version string) *scripted {
	const at = "2026-01-31 23:59:59.123456"
	return &scripted{answers: map[string][][]driver.Value{
		"product_component_version": {{"version", version}, {"nls_comp", "BINARY"}, {"nls_characterset", "AL32UTF8"}},
		"name = 'schema'":           {{strconv.Itoa(migrations.Version)}},
		"SELECT GREATEST":           {{"7"}},
		"v$database":                {{"number", "100"}, {"open", "90"}, {"server", "ORCL/PDB"}},
		"WHERE stamp":               {{"3", "8", nil, "1", nil, "0"}},
		"AS line": {
			{"7 0 0 0 ORCL/PDB", "0", "0", nil, nil, nil, nil, nil, nil, nil, nil, "0", "0", "0", nil, "0"},
			{nil, "7", "3", "0197a3b4-0000-7abc-8def-0123456789ab", "orders", nil, nil, nil, nil, nil, at, "0", "0", "0", at, "1"},
		},
	}}
}

func openScripted(t *testing.T, server *scripted) (*sqlstore.Store, error) {
	t.Helper()
	db := sql.OpenDB(server)
	t.Cleanup(func() { _ = db.Close() })
	return sqlstore.Open(t.Context(), db, dialect.Oracle(), sqlstore.Options{})
}

func TestOracleDriverValuesAreConverted(t *testing.T) {
	t.Parallel()
	server := scriptedOracle("19.0.0.0.0")
	store, err := openScripted(t, server)
	if err != nil {
		t.Fatal(err)
	}
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 3}}, Limit: 10, MaxBytes: 1 << 20})
	if err != nil || len(page.Rows) != 1 {
		t.Fatalf("Read = %+v, %v; want a row", page, err)
	}
	row := page.Rows[0]
	if row.Message.Key != "" || row.Message.Payload == nil || row.Message.Headers != nil || row.CreatedAt != time.Date(2026, 1, 31, 23, 59, 59, 123456000, time.UTC) || row.Message.ExpiresAt != row.CreatedAt {
		t.Errorf("the row is %+v, want no key, an empty payload, no headers, and its times in UTC", row)
	}
	grants, err := store.Acquire(t.Context(), "r", 1, time.Minute)
	if err != nil || len(grants) != 1 || grants[0].Fence != 8 || grants[0].Marks.Main != 0 {
		t.Errorf("Acquire = %+v, %v; want a lane without marks", grants, err)
	}
	if server.began == 0 {
		t.Error("lanes were acquired without a transaction")
	}
}

// A read fails if the driver has truncated a payload.
func TestOracleTruncatedPayloadIsAnError(t *testing.T) {
	t.Parallel()
	server := scriptedOracle("19.0.0.0.0")
	row := server.answers["AS line"][1]
	row[7], row[15] = []byte("half"), strconv.Itoa(1+backend.SizeOne*8)
	store, err := openScripted(t, server)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 3}}, Limit: 10, MaxBytes: 1 << 20}); err == nil || !strings.Contains(err.Error(), "4 of its payload's 8 bytes") {
		t.Errorf("Read = %v, want an error about the truncated payload", err)
	}
	row[15] = strconv.Itoa(1 + backend.SizeOne*4)
	if page, err := store.Read(t.Context(), storage.ReadRequest{Positions: []storage.Position{{Lane: 3}}, Limit: 10, MaxBytes: 1 << 20}); err != nil || string(page.Rows[0].Message.Payload) != "half" {
		t.Errorf("Read = %+v, %v; want the payload", page, err)
	}
}

// While handlers process all claimed rows, there is no row to extend. Extend then begins no transaction, because
// Oracle rejects a bulk fetch with a limit of 0 rows.
func TestOracleExtendWithoutRowsBeginsNoTransaction(t *testing.T) {
	t.Parallel()
	server := scriptedOracle("19.0.0.0.0")
	store, err := openScripted(t, server)
	if err != nil {
		t.Fatal(err)
	}
	began := server.began
	if still, err := store.Extend(t.Context(), "token", nil, time.Minute); err != nil || len(still) != 0 || server.began != began {
		t.Errorf("Extend = %v, %v, and %d transactions were begun; want none", still, err, server.began-began)
	}
}

func TestOracleReportsTheMissingRightToSeeTransactions(t *testing.T) {
	t.Parallel()
	server := scriptedOracle("21.3.0.0.0")
	server.missing = "gv$transaction"
	store, err := openScripted(t, server)
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range store.Findings {
		if !finding.OK && strings.Contains(finding.Hint, "GRANT SELECT ON sys.gv_$transaction") {
			return
		}
	}
	t.Errorf("the findings are %+v, want one whose hint names the GRANT", store.Findings)
}

func TestOldOracleIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := openScripted(t, scriptedOracle("12.1.0.2.0")); err == nil || !strings.Contains(err.Error(), "12.1.0.2.0") || !strings.Contains(err.Error(), "12.2") {
		t.Errorf("Open = %v, want an error that names the version and the required one", err)
	}
}
