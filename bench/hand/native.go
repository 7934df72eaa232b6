package hand

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// readNative is like read, but uses pgx.
func readNative(ctx context.Context, conn *pgx.Conn, text string, args ...any) (ids []int64, err error) {
	rows, err := conn.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var m nativeMessage
	for rows.Next() {
		m.payload = nil
		if err := rows.Scan(&m.id, &m.uuid, &m.topic, &m.key, &m.payload, &m.headers, &m.attempts, &m.created); err != nil {
			return nil, err
		}
		ids = append(ids, m.id)
	}
	return ids, rows.Err()
}

type nativeMessage struct {
	id           int64
	uuid, topic  string
	key, headers *string
	payload      []byte
	attempts     int
	created      time.Time
}
