package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// oracleVersions is goose's table on Oracle, for which goose itself knows no
// statements. A version is unique, as on the other databases.
type oracleVersions struct {
	dialect.Repeating
	table string
}

var _ database.StoreExtender = oracleVersions{}

func (v oracleVersions) Tablename() string { return v.table }

// CreateVersionTable may find a table that was left without a row: it is committed
// before goose inserts the first.
func (v oracleVersions) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE "+v.table+" (version_id NUMBER(19) NOT NULL PRIMARY KEY, is_applied NUMBER(1) NOT NULL,"+
		" tstamp TIMESTAMP(6) DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL)")
	if v.Made(err) {
		return nil
	}
	return err
}

// TableExists asks the table itself: how the catalog has its name depends on how
// it is written. One without a row is still to be made.
func (v oracleVersions) TableExists(ctx context.Context, db database.DBTxConn) (bool, error) {
	_, err := v.GetLatestVersion(ctx, db)
	if errors.Is(err, database.ErrVersionNotFound) || v.Gone(err) {
		return false, nil
	}
	return err == nil, err
}

// Insert has a number where goose's own have a truth value, which Oracle's tables
// don't know before 23.
func (v oracleVersions) Insert(ctx context.Context, db database.DBTxConn, req database.InsertRequest) error {
	_, err := db.ExecContext(ctx, "INSERT INTO "+v.table+" (version_id, is_applied) VALUES (:1, 1)", req.Version)
	return err
}

func (v oracleVersions) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	_, err := db.ExecContext(ctx, "DELETE FROM "+v.table+" WHERE version_id = :1", version)
	return err
}

func (v oracleVersions) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	var at time.Time
	var applied bool
	err := db.QueryRowContext(ctx, "SELECT tstamp, is_applied FROM "+v.table+" WHERE version_id = :1", version).Scan(&at, &applied)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, database.ErrVersionNotFound
	}
	if err != nil {
		return nil, err
	}
	return &database.GetMigrationResult{Timestamp: at, IsApplied: applied}, nil
}

func (v oracleVersions) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	var version sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT MAX(version_id) FROM "+v.table).Scan(&version); err != nil {
		return 0, err
	}
	if !version.Valid {
		return 0, database.ErrVersionNotFound
	}
	return version.Int64, nil
}

func (v oracleVersions) ListMigrations(ctx context.Context, db database.DBTxConn) (all []*database.ListMigrationsResult, err error) {
	rows, err := db.QueryContext(ctx, "SELECT version_id, is_applied FROM "+v.table+" ORDER BY version_id DESC")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one database.ListMigrationsResult
		if err := rows.Scan(&one.Version, &one.IsApplied); err != nil {
			return nil, err
		}
		all = append(all, &one)
	}
	return all, rows.Err()
}

// What goose's files have around a statement with semicolons in it.
const (
	statementBegin = "-- +goose StatementBegin"
	statementEnd   = "-- +goose StatementEnd"
)

// repeated are the steps as goose runs them where a statement must have no
// semicolon at its end, which goose's own parser leaves there, and where a step
// may find what it makes.
func (m *Migrations) repeated(done dialect.Repeating) []*goose.Migration {
	all := make([]*goose.Migration, len(m.steps))
	for i, step := range m.steps {
		up, down := split(step.sql)
		all[i] = goose.NewGoMigration(step.version,
			&goose.GoFunc{RunTx: runStatements(up, done.Made)},
			&goose.GoFunc{RunTx: runStatements(down, done.Gone)})
	}
	return all
}

func runStatements(script string, done func(error) bool) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		for _, statement := range statements(script) {
			if _, err := tx.ExecContext(ctx, statement); err != nil && !done(err) {
				first, _, _ := strings.Cut(statement, "\n")
				return fmt.Errorf("%s …: %w", first, err)
			}
		}
		return nil
	}
}

// statements takes a script to pieces: without comments of whole lines, and
// without the semicolon after a statement; a block that is marked keeps its own.
func statements(script string) (found []string) {
	var lines []string
	block := false
	end := func() {
		if len(lines) > 0 {
			found = append(found, strings.Join(lines, "\n"))
		}
		lines = nil
	}
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, " \t\r\n")
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == statementBegin:
			block = true
		case trimmed == statementEnd:
			block = false
			end()
		case trimmed == "" || strings.HasPrefix(trimmed, "--"):
		case !block && strings.HasSuffix(line, ";"):
			lines = append(lines, strings.TrimSuffix(line, ";"))
			end()
		default:
			lines = append(lines, line)
		}
	}
	end()
	return found
}
