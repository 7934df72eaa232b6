// Package libraries tests popular libraries on top of database/sql and pgx, on real servers.
// The tests write messages in the libraries' transactions. It is a separate module, so that
// users of rowrelay don't get these libraries as dependencies.
package libraries
