//go:build oracle

package testdb

import _ "github.com/sijms/go-ora/v2" // driver "oracle"
