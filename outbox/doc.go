// Package outbox writes messages to a table in the application's own database,
// in the same transaction as the change that they announce. A relay reads the
// table and delivers the messages to their sinks. This is safe where "commit,
// then publish" is not:
//
//   - A message is delivered if and only if its transaction commits.
//   - A message is delivered at least once. A duplicate has the same ID.
//   - Messages with the same Key are delivered one after the other, in the
//     order in which they were inserted. See [Options] (KeyLocks) if several writers
//     use a key concurrently. Messages without a Key have no order.
//   - [Writer.Cancel] cancels a message until five seconds before its AvailableAt.
//   - A Writer can refuse a message that was already written: see [Options] (Duplicates).
//   - A broker that is down neither delays the transaction nor makes it fail.
//
// Create the tables once, with "rowrelay migrate up --database URL" or package
// migrations. Then:
//
//	import (
//		"github.com/rowrelay/rowrelay/outbox"
//		"github.com/rowrelay/rowrelay/outbox/dialect"
//	)
//
//	// Once, at the start of the program.
//	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{}) // or dialect.SQLite()
//
//	// In each transaction, with any database/sql driver.
//	tx, err := db.BeginTx(ctx, nil)
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback() // does nothing after the commit
//	if _, err := tx.ExecContext(ctx, "UPDATE orders SET …"); err != nil {
//		return err
//	}
//	err = writer.Write(ctx, tx, outbox.Message{
//		Topic:   "orders.paid",
//		Key:     "order-42",
//		Payload: []byte(`{"order": 42}`),
//	})
//	if err != nil {
//		return err
//	}
//	return tx.Commit()
//
// The relay that delivers the message is the command "rowrelay run", or package
// relay inside the program. Use [Pgx] for pgx without database/sql, and package
// outboxtest in tests. Other languages write with a plain INSERT into the same
// table: see README.md in this folder.
//
// The package imports only the standard library, and its module requires no
// other module, so go get adds only the module's own lines to go.sum.
package outbox
