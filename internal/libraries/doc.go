// Package libraries shows, by tests against real servers, that messages are
// written in the transactions of the libraries that programs use on top of
// database/sql and pgx. It is a module of its own, so that nobody who uses
// rowrelay has these libraries among the dependencies.
package libraries
