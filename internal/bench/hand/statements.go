package hand

import (
	"context"
	"database/sql"
	"fmt"
)

// texts are a loop's statements on one database.
type texts struct {
	read         string   // of a lane, after an id, at most so many
	move, remove []string // {where} and {ids}
	lease        []string
}

func statements(dialect string) texts {
	switch dialect {
	case "postgres":
		return postgres()
	case "sqlite":
		return sqlite()
	default:
		return mysql(dialect)
	}
}

const done = "attempts + 1, crashes, available_at, last_error, "

func postgres() texts {
	return texts{
		read: "SELECT " + columns + " FROM outbox WHERE lane = $1 AND id > $2 ORDER BY lane, id LIMIT $3",
		move: []string{"WITH moved AS (DELETE FROM outbox WHERE {where} AND id = ANY ('{{ids}}') RETURNING *)" +
			" INSERT INTO outbox_done (" + kept + ", attempts, crashes, available_at, last_error, finished_at, receipt, relay)" +
			" SELECT " + kept + ", " + done + "now(), '0/123456', 'a' FROM moved"},
		remove: []string{"DELETE FROM outbox WHERE {where} AND id = ANY ('{{ids}}')"},
		lease: []string{"UPDATE outbox SET claimed_by = $1, claim_token = $1, claimed_until = now() + interval '15 s'" +
			" WHERE (lane, id) IN (SELECT lane, id FROM outbox WHERE claimed_until IS NULL ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)" +
			" RETURNING " + columns},
	}
}

func mysql(dialect string) texts {
	t := texts{
		read: "SELECT " + columns + " FROM outbox FORCE INDEX (PRIMARY) WHERE lane = ? AND id > ? ORDER BY id LIMIT ?",
		move: []string{"INSERT INTO outbox_done (" + kept + ", attempts, crashes, available_at, last_error, finished_at, receipt, relay)" +
			" SELECT " + kept + ", " + done + "now(6), '0/123456', 'a' FROM outbox FORCE INDEX (PRIMARY) WHERE {where} AND id IN ({ids})",
			"DELETE FROM outbox WHERE {where} AND id IN ({ids})"},
		remove: []string{"DELETE FROM outbox WHERE {where} AND id IN ({ids})"},
	}
	return t
}

func sqlite() texts {
	return texts{
		read: "SELECT " + columns + " FROM outbox WHERE lane = ? AND id > ? ORDER BY id LIMIT ?",
		move: []string{"INSERT INTO outbox_done (" + kept + ", attempts, crashes, available_at, last_error, finished_at, receipt, relay)" +
			" SELECT " + kept + ", " + done + "strftime('%Y-%m-%d %H:%M:%f', 'now'), '0/123456', 'a' FROM outbox WHERE id IN ({ids})",
			"DELETE FROM outbox WHERE id IN ({ids})"},
		remove: []string{"DELETE FROM outbox WHERE id IN ({ids})"},
	}
}

func (l loop) lease(ctx context.Context, conn *sql.Conn, name string) ([]int64, error) {
	if len(l.sql.lease) != 1 {
		return nil, fmt.Errorf("there is no loop by rows on %s yet", l.Name)
	}
	return read(ctx, conn, l.sql.lease[0], name, l.Batch)
}
