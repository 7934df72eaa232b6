package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// oracleVersions is goose's table on Oracle, for which goose itself knows no
// statements. A version is unique, as on the other databases.
type oracleVersions struct {
	database.StoreExtender
	dialect.Repeating
}

func newOracleVersions(d dialect.Repeating, table string) (database.Store, error) {
	store, err := database.NewStoreFromQuerier(table, versions{
		create: "CREATE TABLE %s (version_id NUMBER(19) NOT NULL PRIMARY KEY, is_applied NUMBER(1) NOT NULL," +
			" tstamp TIMESTAMP(6) DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL)",
		place: [2]string{":1", ":2"},
	})
	if err != nil {
		return nil, err
	}
	return oracleVersions{store.(database.StoreExtender), d}, nil
}

// CreateVersionTable may find a table that was left without a row: it is committed
// before goose inserts the first.
func (v oracleVersions) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	err := v.StoreExtender.CreateVersionTable(ctx, db)
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
	_, err := db.ExecContext(ctx, "INSERT INTO "+v.Tablename()+" (version_id, is_applied) VALUES (:1, 1)", req.Version)
	return err
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
