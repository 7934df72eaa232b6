package outboxtest_test

import (
	"database/sql"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

// A test against a real database reads the table, here in a transaction that it
// rolls back.
func ExampleMessages() {
	testPay := func(t *testing.T, db *sql.DB, shop Shop) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := shop.Pay(t.Context(), tx, "order-42"); err != nil {
			t.Fatal(err)
		}
		outboxtest.Expect(t, outboxtest.Messages(t, tx, dialect.Postgres(), "outbox"),
			outbox.Message{Topic: "orders.paid", Key: "order-42"})
	}
	_ = testPay // testing calls it
}
