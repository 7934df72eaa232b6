// Orders accepts orders over HTTP, and writes each order with its message in one
// transaction with gorm. A separate relay delivers the messages.
package main

import (
	"context"
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/rowrelay/rowrelay/examples/orders/shop"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func main() {
	pool, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")))
	shop.Check(err)
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
	shop.Check(err)
	// Both INSERTs commit, or neither does. The outbox gets the database handle
	// inside gorm's transaction.
	shop.Serve(func(ctx context.Context, order shop.Order) error {
		return pool.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&order).Error; err != nil {
				return err
			}
			return writer.Write(ctx, tx.Statement.ConnPool, order.Message())
		})
	})
}
