// Queue is a pool of workers that request messages from a work queue. Any number of
// instances of this program may share the table. Messages are not ordered.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

var errNonsense = errors.New("nobody can draw this")

// draw is a placeholder for the actual work.
func draw(payload []byte) error {
	if strings.Contains(string(payload), "nonsense") {
		return errNonsense
	}
	return nil
}

func work(ctx context.Context, consumer *relay.Consumer) {
	for {
		jobs, err := consumer.Receive(ctx, 1)
		if ctx.Err() != nil {
			return
		}
		check(err)
		job := jobs[0]
		switch err := draw(job.Payload); {
		case errors.Is(err, errNonsense):
			check(job.Park(ctx, err.Error())) // an operator decides what to do with it
		case err != nil:
			check(job.Retry(ctx, err.Error())) // another attempt follows after a back-off
		default:
			check(job.Done(ctx, ""))
		}
		fmt.Println(job.Key)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	store, err := sqlstore.Open(ctx, db, dialect.Postgres(), sqlstore.Options{})
	check(err)
	consumer, err := relay.NewConsumer(store, relay.ConsumerOptions{Topics: []string{"pictures.draw"}, Lease: time.Minute})
	check(err)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { work(ctx, consumer) })
	}
	workers.Wait()
	check(consumer.Close(context.WithoutCancel(ctx)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
