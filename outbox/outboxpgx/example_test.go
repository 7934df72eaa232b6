package outboxpgx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxpgx"
)

func ExampleWriter_Write() {
	writer, err := outboxpgx.NewWriter()
	if err != nil {
		fmt.Println(err)
		return
	}
	pay := func(ctx context.Context, pool *pgxpool.Pool, order string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET paid = true WHERE id = $1", order); err != nil {
				return err
			}
			return writer.Write(ctx, tx, outbox.Message{Topic: "orders.paid", Key: order})
		})
	}
	_ = pay // the application calls it
}

func ExampleWriter_Queue() {
	writer, err := outboxpgx.NewWriter(outbox.WithTable("shop.outbox"))
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := &pgx.Batch{}
	batch.Queue("UPDATE orders SET paid = true WHERE id = $1", "order-42")
	err = writer.Queue(batch, outbox.Message{Topic: "orders.paid", Key: "order-42"})
	// Then: pool.SendBatch(ctx, batch).Close()
	fmt.Println(batch.Len(), "statements,", err)
	// Output: 2 statements, <nil>
}
