package table

import (
	"context"
	"fmt"
)

// These are SQL expressions for the key and the lane of row n on PostgreSQL. The number n comes from
// generate_series.
const (
	filledKey  = "'customer-' || mod(n, 5000)"
	filledLane = "(hashtextextended(" + filledKey + ", 0) & 63)::smallint"
)

// Hold writes deferred rows on PostgreSQL in the given state, scheduled or error. They become due in
// an hour. All later messages get higher ids.
func (d *Database) Hold(ctx context.Context, state, topic string, rows int) error {
	return d.do(ctx,
		"SELECT setval(pg_get_serial_sequence('outbox', 'id'), nextval(pg_get_serial_sequence('outbox', 'id')) + "+fmt.Sprint(rows)+")",
		"INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, payload, priority, attempts, crashes, available_at, created_at)"+
			" SELECT last - n, "+filledLane+", '"+state+"', gen_random_uuid(), '"+topic+"', "+filledKey+", convert_to(repeat('x', 256), 'UTF8'), 0, 1, 0,"+
			" now() + interval '1 hour', now() FROM generate_series(1, "+fmt.Sprint(rows)+") AS n,"+
			" pg_sequence_last_value(pg_get_serial_sequence('outbox', 'id')::regclass) AS last",
		"VACUUM ANALYZE outbox_held")
}

// Due makes the deferred rows of a topic due now.
func (d *Database) Due(ctx context.Context, topic string) error {
	return d.do(ctx, "UPDATE outbox_held SET available_at = now() WHERE topic = '"+topic+"'", "VACUUM ANALYZE outbox_held")
}

// Finish writes done rows on PostgreSQL. Their times of delivery are spread evenly over the given
// number of past hours, and the latest rows have the highest ids.
func (d *Database) Finish(ctx context.Context, rows, payload, hours int) error {
	const chunk = 100_000
	var inserts []string
	for n := 0; n < rows; n += chunk {
		inserts = append(inserts, fmt.Sprintf("INSERT INTO outbox_done (id, lane, message_id, topic, message_key, payload, priority, attempts, crashes, created_at, finished_at, receipt, relay)"+
			" SELECT n, "+filledLane+", gen_random_uuid(), 'orders', "+filledKey+", payload, 0, 1, 0, at, at, '0/123456', 'a'"+
			" FROM convert_to(repeat('x', %[5]d), 'UTF8') AS payload, generate_series(%[1]d + 1, %[4]d) AS n,"+
			" LATERAL (SELECT now() - interval '%[3]d hours' * (%[2]d - n) / %[2]d AS at) AS finished", n, rows, hours, min(n+chunk, rows), payload))
	}
	if err := d.together(ctx, inserts); err != nil {
		return err
	}
	return d.do(ctx, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('outbox', 'id'), %d)", max(rows, 1)), "VACUUM ANALYZE outbox_done", "CHECKPOINT")
}

// Empty deletes all rows of a table.
func (d *Database) Empty(ctx context.Context, table string) error {
	return d.do(ctx, "TRUNCATE "+table)
}

func (d *Database) do(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60s…: %w", statement, err)
		}
	}
	return nil
}
