// Orders accepts orders over HTTP, and writes each order with its message in one
// transaction with bun. A separate relay delivers the messages.
package main

import (
	"context"
	"database/sql"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowrelay/rowrelay/examples/orders/shop"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func main() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	shop.Check(err)
	pool := bun.NewDB(db, pgdialect.New())
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
	shop.Check(err)
	// Both INSERTs commit, or neither does. The outbox gets the *sql.Tx inside bun's
	// transaction, because bun's own type formats statements itself.
	shop.Serve(func(ctx context.Context, order shop.Order) error {
		return pool.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
				return err
			}
			return writer.Write(ctx, tx.Tx, order.Message())
		})
	})
}
