// Package libraries tests against real servers that messages are written in the transactions of
// popular libraries on top of database/sql and pgx. It is a separate module, so that users of
// rowrelay don't get these libraries as dependencies.
package libraries
