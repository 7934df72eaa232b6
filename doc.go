// Package rowrelay is the root of a transactional outbox: an application writes
// messages into a table of its own SQL database, in the transaction of its
// business change, and a relay delivers them.
//
// There is nothing to import here. What an application needs:
//
//   - outbox writes messages, in the application's transactions;
//   - migrations makes the tables;
//   - relay, with relay/sqlstore, delivers them, inside the application; or the
//     command cmd/rowrelay does, beside it;
//   - sinks/inproc (functions), sinks/httpsink, sinks/file and sinks/stdout are
//     where they go, and package sinks says how to write another one.
package rowrelay
