//go:build !gomysql

package testdb

const hasGoMySQL = false
