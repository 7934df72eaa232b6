package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pressly/goose/v3/database"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// versions gives goose access to the table of applied steps. Versions are unique: if two processes
// apply a step at the same time, the second one fails and its transaction is rolled back. So a
// database that can roll back DDL needs no session lock, which would not work through a transaction
// pooler.
type versions struct {
	backend.Versions
	dialect dialect.Dialect
	table   string
}

var _ database.StoreExtender = versions{}

func (v versions) Tablename() string { return v.table }

// CreateVersionTable ignores an existing table on a database that commits each CREATE: an earlier
// attempt may have created the table and failed before goose inserted its first row.
func (v versions) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	_, err := db.ExecContext(ctx, v.Create)
	if repeating, ok := v.dialect.(dialect.Repeating); ok && repeating.Made(err) {
		return nil
	}
	return wrap(err, "create table %s", v.table)
}

func (v versions) TableExists(ctx context.Context, db database.DBTxConn) (exists bool, err error) {
	if v.Exists != "" {
		err := db.QueryRowContext(ctx, v.Exists).Scan(&exists)
		return exists, wrap(err, "look for table %s", v.table)
	}
	_, err = v.GetLatestVersion(ctx, db)
	if errors.Is(err, database.ErrVersionNotFound) || v.dialect.Missing(err) {
		return false, nil
	}
	return err == nil, err
}

func (v versions) Insert(ctx context.Context, db database.DBTxConn, request database.InsertRequest) error {
	_, err := db.ExecContext(ctx, "INSERT INTO "+v.table+" (version_id, is_applied) VALUES ("+v.Argument+", "+v.True+")", request.Version)
	return wrap(err, "record version %d in table %s", request.Version, v.table)
}

func (v versions) Delete(ctx context.Context, db database.DBTxConn, version int64) error {
	_, err := db.ExecContext(ctx, "DELETE FROM "+v.table+" WHERE version_id = "+v.Argument, version)
	return wrap(err, "delete version %d from table %s", version, v.table)
}

// GetMigration doesn't select the time, because not every driver can scan it into a time.Time.
func (v versions) GetMigration(ctx context.Context, db database.DBTxConn, version int64) (*database.GetMigrationResult, error) {
	var applied bool
	err := db.QueryRowContext(ctx, "SELECT is_applied FROM "+v.table+" WHERE version_id = "+v.Argument, version).Scan(&applied)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, database.ErrVersionNotFound
	}
	return &database.GetMigrationResult{IsApplied: applied}, wrap(err, "read version %d of table %s", version, v.table)
}

func (v versions) GetLatestVersion(ctx context.Context, db database.DBTxConn) (int64, error) {
	var version sql.NullInt64
	if err := db.QueryRowContext(ctx, "SELECT max(version_id) FROM "+v.table).Scan(&version); err != nil {
		return -1, wrap(err, "read the latest version of table %s", v.table)
	}
	if !version.Valid {
		return -1, database.ErrVersionNotFound
	}
	return version.Int64, nil
}

func (v versions) ListMigrations(ctx context.Context, db database.DBTxConn) (all []*database.ListMigrationsResult, err error) {
	rows, err := db.QueryContext(ctx, "SELECT version_id, is_applied FROM "+v.table+" ORDER BY version_id DESC")
	if err != nil {
		return nil, wrap(err, "list the versions of table %s", v.table)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var each database.ListMigrationsResult
		if err := rows.Scan(&each.Version, &each.IsApplied); err != nil {
			return nil, wrap(err, "list the versions of table %s", v.table)
		}
		all = append(all, &each)
	}
	return all, wrap(rows.Err(), "list the versions of table %s", v.table)
}

// wrap adds the formatted text to an error. It returns nil if the error is nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
