// Package inbox makes a consumer idempotent: a message that comes again has no
// second effect. Delivery is at least once, here as with any broker, and each
// duplicate bears the id of the first. The inbox is one table in the consumer's
// own database with the ids of what it has received. An id is written in the
// transaction of the message's effect, so both are there or neither:
//
//	in, err := inbox.New(dialect.Postgres(), "billing", inbox.Options{}) // once, at the start
//
//	tx, err := db.BeginTx(ctx, nil) // for each message
//	if err != nil {
//		return err
//	}
//	defer tx.Rollback() // does nothing after the commit
//	first, err := in.Once(ctx, tx, messageID)
//	if err != nil || !first {
//		return err // nil: a duplicate; its effect is there, acknowledge it
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET …"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// or, shorter, [Inbox.Do]. Acknowledge a message only after the commit, and don't
// after an error: it then comes again.
//
// # The id
//
//   - An HTTP endpoint finds it in the header Idempotency-Key, and answers 2xx to
//     a duplicate, too. See the example.
//   - A consumer of Kafka finds it in the record's header rowrelay-message-id, and
//     commits its offset after the transaction. One that has left its group to
//     another is no danger: who comes second waits for who came first.
//   - A consumer of RabbitMQ finds it in the property message_id, and acks after
//     the commit.
//   - A CloudEvent has it as its id.
//
// Any other text will do as well that is the same for a duplicate, and for no
// other message. Letter case counts.
//
// # When to do without
//
//   - If the effect can be repeated anyway, such as setting a state together with
//     a version that only grows. Beware of "whatever came last": a duplicate may
//     come after later messages of its key.
//   - If relay and consumer share a database: sinks/inproc has a handler inside
//     the transaction that marks its message.
//   - If the effect is elsewhere, as a mail or a payment is. No table makes that
//     happen once. Hand the id on, if the other side recognises it.
//
// # The window
//
// An id is kept for a window, 7 days by default, and then deleted by
// [Inbox.Clean]; until that is called it stays. A duplicate that comes later has
// its effect again. So the window has to be longer than the longest time between
// a message's first arrival and its last, which is the sum of
//
//   - the relay's attempts: less than an hour by default, with 20 attempts whose
//     waits are 5 minutes at most, and the time that each of them takes;
//   - the longest outage of the sink, of the relays or of their database: a
//     message whose answer was lost waits it out, and is sent again;
//   - the time in which an operator requeues a parked message, if it was parked
//     after attempts whose outcome is unknown; discard it after that;
//   - whatever lies between relay and consumer and sends again: the retention of a
//     Kafka topic, if a group can be set back to its beginning; the age of the
//     oldest message in a queue; a gateway's retries.
//
// An id takes about 200 bytes with its indexes. At 100 messages a second 7 days
// are 60 million ids.
//
// # The table
//
// "rowrelay migrate up --inbox --database URL" makes it, migrations.NewInbox does
// so from a program, and "rowrelay migrate print --inbox" prints the SQL for other
// tools. It is called inbox unless you say otherwise, and serves any number of
// consumers. A consumer needs the right to INSERT, and for Clean to SELECT and
// DELETE; on SQL Server it always needs SELECT. The ids of a consumer that is
// no more stay until somebody deletes them: DELETE FROM inbox WHERE consumer = '…'.
//
// Consumers in other languages use the same table: insert consumer and
// message_id, and where that affects no row (ON CONFLICT DO NOTHING), or fails by
// the primary key, it is a duplicate.
//
// The package needs nothing but the standard library. With pgx, without
// database/sql, give Once the transaction as outbox.Pgx makes it.
package inbox
