package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

type order struct{ ID, Total int64 }

func (o order) key() string { return fmt.Sprint("order-", o.ID) }

// The topics, with the type of their payloads.
const (
	ordersTaken   outbox.Topic[order] = "orders.taken"   // the handler sends a receipt
	ordersShipped outbox.Topic[order] = "orders.shipped" // goes to Kafka
)

// writer is the part of the App that the shop needs. A test can pass an outboxtest.Recorder.
type writer interface {
	Write(ctx context.Context, tx outbox.Execer, messages ...outbox.Message) error
}

type shop struct {
	pool   *pgxpool.Pool
	writer writer
}

func (s *shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.post("INSERT INTO orders (id, total) VALUES ($1, $2)", ordersTaken))
	mux.HandleFunc("POST /shipments", s.post("UPDATE orders SET shipped = true WHERE id = $1 AND total = $2", ordersShipped))
	return mux
}

// post returns a handler that runs a statement for an order, and announces the order in the same transaction.
func (s *shop) post(statement string, topic outbox.Topic[order]) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, span := otel.Tracer("shop").Start(r.Context(), r.URL.Path)
		defer span.End()
		var o order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			done, err := tx.Exec(ctx, statement, o.ID, o.Total)
			if err == nil && done.RowsAffected() == 0 {
				err = fmt.Errorf("there is no order %d", o.ID)
			}
			if err != nil {
				return err
			}
			return s.writer.Write(ctx, outbox.Pgx(tx), topic.Message(o.key(), o))
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
}

// sendReceipt handles the messages of ordersTaken. A message may arrive twice, so a real mailer must ignore ids that it has seen.
func sendReceipt(_ context.Context, o order, m sinks.Message) error {
	if o.Total < 0 {
		return inproc.Permanent(fmt.Errorf("order %d has a negative total", o.ID)) // parked immediately
	}
	fmt.Println("receipt", m.Key, o.Total)
	return nil // after an error, the message is tried again later
}
