package dialect

import (
	"errors"
	"fmt"
)

// tidb is a server that speaks MySQL's language and is another one inside: its
// rows lie on several machines, each of its servers may give out ids by itself,
// and nobody can ask it which transactions are open. So it is claimed by rows
// only. It has neither triggers nor expressions for defaults: the lane is a
// generated column, and the time of writing is kept as one.
type tidb struct{ mysql }

// TiDB is the dialect of TiDB 7.5 and later, by rows only.
func TiDB() Dialect { return tidb{mysql{flavour: flavourTiDB}} }

// NoLanes implements [RowsOnly].
func (tidb) NoLanes() string {
	return "TiDB gives out ids from several servers, and doesn't tell which transactions are open, so a relay by lanes could pass over a message that commits late"
}

// fitTiDB asks for sessions whose transactions wait for locks, and which see the
// time of writing in UTC. It goes on with the turn whatever SKIP LOCKED does,
// unless the trial shows that it skips.
func fitTiDB(name string, server Server) (Fit, error) {
	if mode := server.Facts["tidb_txn_mode"]; mode != "pessimistic" {
		return Fit{}, fmt.Errorf("tidb_txn_mode of this session is %q, in which nothing waits for a lock: set it to pessimistic, in the URL or in the server", mode)
	}
	zone := server.Facts["time_zone"]
	if zone == "SYSTEM" {
		zone = server.Facts["system_time_zone"]
	}
	if zone != "UTC" && zone != "+00:00" && zone != "Etc/UTC" {
		return Fit{}, errors.New("time_zone of this session isn't UTC, in which TiDB has the time at which a message was written: set it to '+00:00', in the URL or in the server")
	}
	return Fit{
		Dialect: tidb{mysql{flavourTiDB, server.Skips}}, Unordered: true,
		Notes: []Note{{Name: "server", OK: true, Detail: name + ", by rows only"}, mysqlSkipNote(server.Skips)},
	}, nil
}
