package peers

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/oagudo/outbox"

	"github.com/rowrelay/rowrelay/bench/table"
)

// Oagudo is github.com/oagudo/outbox: one reader without a claim, which publishes messages one by
// one and deletes them in batches. A second reader would deliver every message again. A failed
// message loses its position, and is deleted after its last attempt.
type Oagudo struct{ Batch int } // the number of messages of a read and of a delete; 0: the constant most

func (Oagudo) Name() string { return "oagudo/outbox" }

func (Oagudo) Keeps() bool { return false }

func (Oagudo) Create(ctx context.Context, d *table.Database) error {
	return execAll(ctx, d, `CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    scheduled_at TIMESTAMP WITH TIME ZONE NOT NULL,
    metadata BYTEA,
    payload BYTEA NOT NULL,
    times_attempted INTEGER NOT NULL);
CREATE INDEX idx_outbox_created_at ON outbox (created_at);
CREATE INDEX idx_outbox_scheduled_at ON outbox (scheduled_at)`)
}

func (Oagudo) Insert() string {
	return `INSERT INTO outbox (id, created_at, scheduled_at, payload, times_attempted)
SELECT gen_random_uuid(), clock_timestamp(), now(), convert_to(repeat('x', $2::int), 'UTF8'), 0 FROM generate_series(1, $1::int)`
}

func (Oagudo) Pending() string { return "SELECT EXISTS (SELECT 1 FROM outbox)" }

// Start runs the reader with the shortest interval, so that each read follows the previous one
// immediately.
func (o Oagudo) Start(ctx context.Context, d *table.Database, handle Handler) (stop func() error, err error) {
	pool, err := pgxpool.New(ctx, d.URL)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDBFromPool(pool)
	batch := cmp.Or(o.Batch, most)
	reader := outbox.NewReader(outbox.NewDBContext(db, outbox.SQLDialectPostgres), publisher(handle),
		outbox.WithInterval(tick), outbox.WithReadBatchSize(batch), outbox.WithDeleteBatchSize(batch))
	reader.Start()
	return func() error {
		defer pool.Close()
		defer db.Close()
		return reader.Stop(context.WithoutCancel(ctx))
	}, nil
}

// publisher adapts the handler to the reader.
type publisher Handler

func (p publisher) Publish(ctx context.Context, message *outbox.Message) error {
	return p(ctx, message.Payload)
}
