// Package outbox writes messages to a table of the application's own database,
// in the transaction that makes the change they tell of. A relay moves them
// from there to where they belong. That is safe where "commit, then publish"
// is not:
//
//   - A message is delivered if and only if its transaction commits.
//   - It is delivered at least once; a duplicate bears the same ID.
//   - Messages with the same Key are delivered one after the other, in the
//     order in which they were inserted. See [Options] (KeyLocks) for writers that
//     run at the same time. Without a Key there is no order.
//   - A message with an AvailableAt can be taken back before its time by [Writer.Cancel],
//     and by choice none is written twice: see [Options] (Duplicates).
//   - A broker that is down neither delays nor fails the transaction.
//
// Create the tables once, with "rowrelay migrate up --database URL" or the
// package migrations. Then:
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
// A relay delivers it: "rowrelay run", or the package relay inside the program.
// For pgx without database/sql there is [Pgx], for tests the package
// outboxtest. Other languages write with a plain INSERT into the same
// table: see README.md in this folder.
//
// The package needs nothing but the standard library, and its module requires no
// other: go get adds no line to go.sum but its own.
package outbox
