package outboxdb_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func Example_pgxBatch() {
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{Table: "shop.outbox"})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := &pgx.Batch{}
	batch.Queue("UPDATE orders SET paid = true WHERE id = $1", "order-42")
	err = writer.Write(context.Background(), outbox.PgxBatch(batch), outbox.Message{Topic: "orders.paid", Key: "order-42"})
	// Then: pool.SendBatch(ctx, batch).Close()
	fmt.Println(batch.Len(), "statements,", err)
	// Output: 2 statements, <nil>
}
