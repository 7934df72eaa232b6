package sqlstore

import (
	"database/sql"
	"fmt"
)

// wasteful is how many connections a pool may close, as too many were idle, until
// the operator is told.
const wasteful = 100

// poolWatch tells once if connections are closed that are needed again at once, as
// by database/sql's default they are: of a relay's all but two, whenever they are
// idle. To connect costs more than all else that a relay does.
type poolWatch struct {
	begun, told bool
	before      int64
}

func (w *poolWatch) warning(db *sql.DB) string {
	closed := db.Stats().MaxIdleClosed
	if !w.begun {
		w.begun, w.before = true, closed
	}
	if w.told || closed-w.before < wasteful {
		return ""
	}
	w.told = true
	return fmt.Sprintf("the pool has closed %d connections because they were idle, and opens them again; keep them with db.SetMaxIdleConns(%d)", closed-w.before, idleConnections)
}

// idleConnections are as many as a relay uses at the same time, and some more.
const idleConnections = 8
