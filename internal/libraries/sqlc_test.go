package libraries

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// This is code that sqlc 1.30 generates for database/sql, and with sql_package: pgx/v5 for pgx:
// the interface DBTX, and the method WithTx, which accepts a transaction.

type DBTX interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...interface{}) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...interface{}) *sql.Row
}

func New(db DBTX) *Queries { return &Queries{db: db} }

type Queries struct{ db DBTX }

func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{db: tx} }

const takeOrder = `INSERT INTO orders (id) VALUES (1)`

func (q *Queries) TakeOrder(ctx context.Context) error {
	_, err := q.db.ExecContext(ctx, takeOrder)
	return err
}

type PgxDBTX interface {
	Exec(context.Context, string, ...interface{}) (pgconn.CommandTag, error)
	Query(context.Context, string, ...interface{}) (pgx.Rows, error)
	QueryRow(context.Context, string, ...interface{}) pgx.Row
}

func NewPgx(db PgxDBTX) *PgxQueries { return &PgxQueries{db: db} }

type PgxQueries struct{ db PgxDBTX }

func (q *PgxQueries) WithTx(tx pgx.Tx) *PgxQueries { return &PgxQueries{db: tx} }

func (q *PgxQueries) TakeOrder(ctx context.Context) error {
	_, err := q.db.Exec(ctx, takeOrder)
	return err
}
