package dialect

import (
	"hash/crc32"
	"slices"
	"strings"
)

// mysql is the dialect of MySQL and of those that descend from it.
type mysql struct {
	flavour flavour

	// skipLocked: a locking select can pass over rows that others have locked.
	// Without it, who takes lanes or rows waits for those who do the same.
	skipLocked bool
}

type flavour string

const (
	flavourMySQL   flavour = "mysql"
	flavourMariaDB flavour = "mariadb"
	flavourTiDB    flavour = "tidb"
)

// MySQL is the dialect of MySQL 8.0.13 and later. A store or a migration finds
// out by itself that a server is TiDB.
func MySQL() Dialect { return mysql{flavourMySQL, true} }

// MariaDB is the dialect of MariaDB 10.5 and later. A store finds out by itself
// whether the server can pass over locked rows, which it can from 10.6 on.
func MariaDB() Dialect { return mysql{flavourMariaDB, true} }

// SkipsLocked says whether a locking select of the dialect's server can pass over rows
// that others have locked.
func SkipsLocked(d Dialect) bool {
	skipping, ok := d.(interface{ skips() bool })
	return ok && skipping.skips()
}

func (d mysql) skips() bool { return d.skipLocked }

// Name returns "mysql", "mariadb" or "tidb".
func (d mysql) Name() string { return string(d.flavour) }

func (d mysql) isMariaDB() bool { return d.flavour == flavourMariaDB }

// LockKeys locks rows, which two keys may share, in their order. Any producer can
// compute the same numbers, the highest ten bits of the checksum, so they must not change.
func (mysql) LockKeys(table Table, keys []string) []Query {
	if len(keys) == 0 {
		return nil
	}
	slots := make([]int64, len(keys))
	for i, key := range keys {
		slots[i] = int64(crc32.ChecksumIEEE([]byte(key)) >> 22)
	}
	slices.Sort(slots)
	return []Query{mysqlQuery("SELECT slot FROM " + table.Backquoted().KeyLocks() + " FORCE INDEX (PRIMARY) WHERE slot IN " +
		mysqlList(slices.Compact(slots)) + " ORDER BY slot FOR UPDATE")}
}

// Notify returns nothing: there is no such thing.
func (mysql) Notify(Table) []Query { return nil }

func (mysql) Written(table Table) Query {
	return mysqlQuery("SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers," +
		" CAST(available_at AS CHAR), priority FROM " + table.Backquoted().Messages() + " ORDER BY id")
}

func mysqlQuery(sql string, args ...any) Query {
	return Query{SQL: strings.TrimSpace(sql), Args: args}
}
