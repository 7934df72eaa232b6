package peers

import (
	"cmp"
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowrelay/rowrelay/bench/table"
)

const topic = "outbox"

// Watermill is github.com/ThreeDotsLabs/watermill with its SQL subscriber. It reads batches in a
// transaction, which stays open while the messages of a batch are delivered one by one. Only one
// consumer reads at a time. Messages arrive in the order of commits, and a failed message blocks
// all others.
type Watermill struct {
	// Delete selects the schema of a queue, in which acknowledged messages are deleted. The default
	// is the schema of a log, in which an offset advances and all rows stay.
	Delete bool
	// Forwarder selects Watermill's forwarder, which unpacks each message from an envelope. The
	// default is the subscriber that the forwarder uses.
	Forwarder bool
	Batch     int // the batch size; 0: the constant most
}

func (w Watermill) Name() string {
	name := "Watermill SQL"
	if w.Forwarder {
		name = "Watermill forwarder"
	}
	if w.Delete {
		name += ", queue"
	}
	return name
}

func (w Watermill) Keeps() bool { return !w.Delete }

func (w Watermill) Create(ctx context.Context, d *table.Database) error {
	pool, err := pgxpool.New(ctx, d.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	subscriber, err := w.subscriber(pool)
	if err != nil {
		return err
	}
	return errors.Join(subscriber.SubscribeInitialize(topic), subscriber.Close())
}

func (w Watermill) Insert() string {
	payload := "convert_to(repeat('x', $2::int), 'UTF8')"
	if w.Forwarder {
		payload = `convert_to(json_build_object('destination_topic', 'orders', 'uuid', gen_random_uuid(),
            'payload', translate(encode(` + payload + `, 'base64'), E'\n', ''), 'metadata', json_build_object())::text, 'UTF8')`
	}
	if w.Delete {
		return "INSERT INTO watermill_outbox (uuid, payload, metadata) SELECT gen_random_uuid(), " + payload + ", '{}' FROM generate_series(1, $1::int)"
	}
	return "INSERT INTO watermill_outbox (uuid, payload, metadata, transaction_id) SELECT gen_random_uuid(), " + payload +
		", '{}', pg_current_xact_id() FROM generate_series(1, $1::int)"
}

func (w Watermill) Pending() string {
	if w.Delete {
		return "SELECT EXISTS (SELECT 1 FROM watermill_outbox)"
	}
	return `SELECT COALESCE((SELECT (m.transaction_id, m."offset") > (o.last_processed_transaction_id, o.offset_acked)
FROM (SELECT transaction_id, "offset" FROM watermill_outbox ORDER BY 1 DESC, 2 DESC LIMIT 1) AS m
LEFT JOIN watermill_offsets_outbox AS o ON true), true)`
}

func (w Watermill) Start(ctx context.Context, d *table.Database, handle Handler) (stop func() error, err error) {
	pool, err := pgxpool.New(ctx, d.URL)
	if err != nil {
		return nil, err
	}
	run := w.subscribe
	if w.Forwarder {
		run = w.forward
	}
	end, err := run(ctx, pool, handle)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return func() error {
		defer pool.Close()
		return end()
	}, nil
}

func (w Watermill) subscriber(pool *pgxpool.Pool) (*watermillsql.Subscriber, error) {
	bytes := func(string) string { return "BYTEA" }
	config := watermillsql.SubscriberConfig{
		PollInterval:   tick,
		SchemaAdapter:  watermillsql.DefaultPostgreSQLSchema{GeneratePayloadType: bytes, SubscribeBatchSize: cmp.Or(w.Batch, most)},
		OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
	}
	if w.Delete {
		config.SchemaAdapter = watermillsql.PostgreSQLQueueSchema{GeneratePayloadType: bytes, SubscribeBatchSize: cmp.Or(w.Batch, most)}
		config.OffsetsAdapter = watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
	}
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(pool), config, watermill.NopLogger{})
}

// subscribe passes messages from the subscriber to the handler without a router.
func (w Watermill) subscribe(ctx context.Context, pool *pgxpool.Pool, handle Handler) (end func() error, err error) {
	subscriber, err := w.subscriber(pool)
	if err != nil {
		return nil, err
	}
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	go func() {
		for m := range messages {
			if handle(m.Context(), m.Payload) == nil {
				m.Ack()
			} else {
				m.Nack()
			}
		}
	}()
	return subscriber.Close, nil
}

func (w Watermill) forward(ctx context.Context, pool *pgxpool.Pool, handle Handler) (end func() error, err error) {
	subscriber, err := w.subscriber(pool)
	if err != nil {
		return nil, err
	}
	f, err := forwarder.NewForwarder(subscriber, watermillPublisher(handle), watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic})
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	return func() error { return errors.Join(f.Close(), <-ended, subscriber.Close()) }, nil
}

// watermillPublisher adapts the handler to the forwarder.
type watermillPublisher Handler

func (p watermillPublisher) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := p(m.Context(), m.Payload); err != nil {
			return err
		}
	}
	return nil
}

func (watermillPublisher) Close() error { return nil }
