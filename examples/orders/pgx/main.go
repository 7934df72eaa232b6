// Orders accepts orders over HTTP, and writes each order with its message in one
// transaction with pgx. A separate relay delivers the messages.
package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowrelay/rowrelay/examples/orders/shop"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func main() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	shop.Check(err)
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
	shop.Check(err)
	// Both INSERTs commit, or neither does: if the order exists, its INSERT fails and the
	// message is rolled back.
	shop.Serve(func(ctx context.Context, order shop.Order) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", order.ID, order.Total); err != nil {
				return err
			}
			return writer.Write(ctx, outbox.Pgx(tx), order.Message())
		})
	})
}
