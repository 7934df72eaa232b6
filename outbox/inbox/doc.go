// Package inbox makes a consumer idempotent: a duplicate of a message has no
// second effect. Messages are delivered at least once, as with any broker, and a
// duplicate has the same id as the first delivery. The inbox is one table in the
// consumer's own database, with the ids of the messages that the consumer has
// received. The consumer writes a message's id in the transaction that applies the
// message's effect, so that either both are committed or neither is:
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
//		return err // nil for a duplicate: its effect is already committed, acknowledge it
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET …"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// [Inbox.Do] is shorter. Acknowledge a message only after the commit. After an
// error don't acknowledge it, so that it is delivered again.
//
// # The id
//
//   - An HTTP endpoint reads the id from the header Idempotency-Key. It also answers
//     duplicates with 2xx.
//   - A Kafka consumer reads it from the record's header rowrelay-message-id, and
//     commits its offset after the transaction. If a rebalance gives the same
//     record to another consumer of the group, [Inbox.Once] in that consumer waits
//     until the first consumer's transaction ends.
//   - A RabbitMQ consumer reads it from the property message_id, and acks after
//     the commit.
//   - A consumer of CloudEvents reads it from the attribute id.
//
// Any other text works as an id if all deliveries of a message carry the same text,
// and no other message carries it. Ids are case-sensitive.
//
// # When no inbox is needed
//
//   - If repeating the effect is harmless, for instance if it only replaces a state
//     that has a lower version. "The last message wins" is not enough: a
//     duplicate may arrive after later messages of its key.
//   - If the relay and the consumer share a database: sinks/inproc can run a handler
//     inside the transaction that marks its message as delivered.
//   - If the effect is outside the database, such as an email or a payment: no table
//     can ensure that it happens only once. If the other system recognises
//     duplicates by an id, pass the message's id to that system.
//
// # The window
//
// An id is kept for the window, 7 days by default. After that, [Inbox.Clean] deletes the
// id, and a duplicate that arrives later is applied again. So the window must be
// longer than the longest time between the first and the last delivery of a
// message, which is the sum of
//
//   - the duration of the relay's attempts: less than an hour by default, with 20 attempts and
//     waits of at most 5 minutes, plus the time that the attempts take;
//   - the longest outage of the sink, of the relays or of their database: if the
//     sink's answer to a message was lost, the message is sent again after the outage;
//   - the time within which an operator requeues a parked message, if it was parked
//     after attempts whose outcome is unknown. After this time, the operator must
//     discard the message;
//   - the time within which a system between the relay and the consumer can deliver
//     a message again. Examples are the retention of a Kafka topic, if a group can be
//     reset to the topic's beginning, the age of the oldest message in a queue, and
//     the duration of a gateway's retries.
//
// Each id takes about 200 bytes, including its index entries. At 100 messages a second,
// the table has 60 million ids after 7 days.
//
// # The table
//
// "rowrelay migrate up --inbox --database URL" creates the table. A program can create
// it with migrations.NewInbox and the method Up. "rowrelay migrate print --inbox"
// prints the SQL for other tools. The default name is inbox, and one table serves any number of
// consumers. A consumer needs the right to INSERT, and for Clean also SELECT and
// DELETE; on SQL Server it always needs SELECT. When a consumer is retired, delete
// its ids: DELETE FROM inbox WHERE consumer = '…'.
//
// Consumers in other languages use the same table: they insert a row with
// consumer and message_id. If the INSERT affects no row (ON CONFLICT DO NOTHING), or violates the
// primary key, the message is a duplicate.
//
// The package imports only the standard library and packages of its own module. With pgx,
// without database/sql, pass the result of outbox.Pgx to Once.
package inbox
