package peers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/rowrelay/rowrelay/bench/table"
)

// River is github.com/riverqueue/river, a queue of jobs. An UPDATE leases jobs, many goroutines
// work on them, and batches of them are marked as done in place. River keeps no order.
type River struct {
	// Delete deletes done jobs immediately with the client's own call. By default River deletes
	// them every 30 s.
	Delete  bool
	Workers int // defaults to 1,000
}

func (r River) Name() string {
	if r.Delete {
		return "River, JobDeleteMany"
	}
	return "River"
}

func (r River) Keeps() bool { return !r.Delete }

func (River) Create(ctx context.Context, d *table.Database) error {
	pool, err := pgxpool.New(ctx, d.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: silent()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (River) Insert() string {
	return `INSERT INTO river_job (args, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags)
SELECT jsonb_build_object('payload', repeat('x', $2::int)), 'message', 25, '{}', 1, 'default', now(), 'available', '{}'
FROM generate_series(1, $1::int)`
}

func (r River) Pending() string {
	if r.Delete {
		return "SELECT EXISTS (SELECT 1 FROM river_job)"
	}
	return "SELECT EXISTS (SELECT 1 FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'pending'))"
}

// Start runs River with the intervals and the number of workers of River's own benchmark.
func (r River) Start(ctx context.Context, d *table.Database, handle Handler) (stop func() error, err error) {
	pool, err := pgxpool.New(ctx, d.URL)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), r.config(handle))
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	ended := r.deleting(ctx, client)
	return func() error {
		defer pool.Close()
		return errors.Join(client.Stop(context.WithoutCancel(ctx)), ended())
	}, nil
}

func (r River) config(handle Handler) *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: handle})
	return &river.Config{
		FetchCooldown: 2 * tick, FetchPollInterval: 2 * tick, JobTimeout: -1, Logger: silent(),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cmp.Or(r.Workers, 1000)}},
		Workers: workers,
	}
}

// deleting deletes done jobs until the returned function is called.
func (r River) deleting(ctx context.Context, client *river.Client[pgx.Tx]) (ended func() error) {
	if !r.Delete {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- deleteDone(ctx, client) }()
	return func() error {
		cancel()
		return <-failed
	}
}

func deleteDone(ctx context.Context, client *river.Client[pgx.Tx]) error {
	done := river.NewJobDeleteManyParams().States(rivertype.JobStateCompleted).First(10_000)
	for ctx.Err() == nil {
		result, err := client.JobDeleteMany(ctx, done)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			return err
		case len(result.Jobs) == 0:
			_ = pause(ctx, 5*tick)
		}
	}
	return nil
}

type riverArgs struct {
	Payload string `json:"payload"`
}

func (riverArgs) Kind() string { return "message" }

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle Handler
}

func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverArgs]) error {
	return w.handle(ctx, []byte(job.Args.Payload))
}

func silent() *slog.Logger { return slog.New(slog.DiscardHandler) }
