package hand

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
)

// texts are the statements of a loop for one kind of database.
type texts struct {
	read         string   // reads rows of a lane above an id, up to a limit
	readAll      string   // replaces `read` on SQLite, which has one writer and stores the rows of all lanes in the order of ids
	move, remove []string // move rows to the table of done rows, or delete them; have the placeholders {where} and {ids}
	mark         []string // marks leased rows; has the placeholder {ids}
	lease        []string // the first statement returns the rows; has the placeholders {count}, {name} and {ids}
}

func statements(dialect string, rows bool) texts {
	switch dialect {
	case "postgres":
		return postgres(rows)
	case "sqlite":
		return sqlite()
	default:
		return mysql()
	}
}

const done = "attempts + 1, crashes, available_at, last_error, "

// postgres returns the statements for PostgreSQL. The statements find a claimed row by a number
// that combines its id and its lane, because no index has only the id.
func postgres(rows bool) texts {
	which := "{where} AND id = ANY ('{{ids}}')"
	if rows {
		which = "(lane, id) IN (SELECT place % 64, place / 64 FROM unnest('{{ids}}'::bigint[]) AS place)"
	}
	return texts{
		read: "SELECT " + columns + " FROM outbox WHERE lane = $1 AND id > $2 ORDER BY lane, id LIMIT $3",
		move: []string{"WITH moved AS (DELETE FROM outbox WHERE " + which + " RETURNING *)" +
			" INSERT INTO outbox_done (" + kept + ", attempts, crashes, available_at, last_error, finished_at, receipt, relay)" +
			" SELECT " + kept + ", " + done + "now(), '0/123456', 'a' FROM moved"},
		remove: []string{"DELETE FROM outbox WHERE " + which},
		mark:   []string{"UPDATE outbox SET claimed_until = 'infinity' WHERE " + which},
		lease: []string{"UPDATE outbox SET claimed_by = '{name}', claim_token = '{name}', claimed_until = now() + interval '15 s'" +
			" WHERE (lane, id) IN (SELECT lane, id FROM outbox WHERE claimed_until IS NULL ORDER BY id LIMIT {count} FOR UPDATE SKIP LOCKED)" +
			" RETURNING id * 64 + lane, " + strings.TrimPrefix(columns, "id, ")},
	}
}

func mysql() texts {
	return texts{
		read: "SELECT " + columns + " FROM outbox FORCE INDEX (PRIMARY) WHERE lane = ? AND id > ? ORDER BY id LIMIT ?",
		move: []string{"INSERT INTO outbox_done (" + kept + ", attempts, crashes, available_at, last_error, finished_at, receipt, relay)" +
			" SELECT " + kept + ", " + done + "now(6), '0/123456', 'a' FROM outbox FORCE INDEX ({key}) WHERE {where} AND id IN ({ids})",
			"DELETE FROM outbox WHERE {where} AND id IN ({ids})"},
		remove: []string{"DELETE FROM outbox WHERE {where} AND id IN ({ids})"},
		mark:   []string{"UPDATE outbox FORCE INDEX (id) SET claimed_until = '9999-12-31' WHERE id IN ({ids})"},
		lease: []string{"SELECT " + columns + " FROM outbox FORCE INDEX (claim_id) WHERE claimed_until IS NULL ORDER BY id LIMIT {count} FOR UPDATE SKIP LOCKED",
			"UPDATE outbox FORCE INDEX (id) SET claimed_by = '{name}', claim_token = '{name}', claimed_until = utc_timestamp(6) + INTERVAL 15 SECOND WHERE id IN ({ids})"},
	}
}

func sqlite() texts {
	return texts{
		readAll: "SELECT " + columns + " FROM outbox WHERE id > ? ORDER BY id LIMIT ?",
		move: []string{"INSERT INTO outbox_done (" + kept + ", attempts, crashes, available_at, last_error, finished_at, receipt, relay)" +
			" SELECT " + kept + ", " + done + "strftime('%Y-%m-%d %H:%M:%f', 'now'), '0/123456', 'a' FROM outbox WHERE id IN ({ids})",
			"DELETE FROM outbox WHERE id IN ({ids})"},
		remove: []string{"DELETE FROM outbox WHERE id IN ({ids})"},
		lease: []string{"UPDATE outbox SET claimed_by = '{name}', claim_token = '{name}', claimed_until = strftime('%Y-%m-%d %H:%M:%f', 'now', '+15 seconds')" +
			" WHERE id IN (SELECT id FROM outbox WHERE claimed_until IS NULL ORDER BY id LIMIT {count}) RETURNING " + columns},
	}
}

// lease leases the oldest free rows to the worker, and returns their ids.
func (l loop) lease(ctx context.Context, conn *sql.Conn, name string) (ids []int64, err error) {
	tx, err := l.begin(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	named := strings.NewReplacer("{name}", name, "{count}", strconv.Itoa(l.Batch))
	for i, text := range l.sql.lease {
		text = named.Replace(text)
		if i == 0 {
			ids, err = read(ctx, tx, text)
		} else if len(ids) > 0 {
			_, err = tx.ExecContext(ctx, fill(text, "", ids))
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, tx.Commit()
}
