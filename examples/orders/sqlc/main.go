// Orders takes orders over HTTP, and writes each with its message in one transaction,
// by the code that sqlc makes of query.sql. A relay beside it delivers the messages.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rowrelay/rowrelay/examples/orders/sqlc/db"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

type shop struct {
	pool   *pgxpool.Pool
	writer *outbox.Writer
}

// take writes both or neither: an order that is there already fails the INSERT, and
// its message is never seen by anybody.
func (s shop) take(ctx context.Context, o db.Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := db.New(tx).TakeOrder(ctx, db.TakeOrderParams(o)); err != nil {
			return err
		}
		return s.writer.Write(ctx, outbox.Pgx(tx), outbox.Message{Topic: "orders.taken", Key: fmt.Sprint("order-", o.ID), Payload: body})
	})
}

func (s shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o db.Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.take(r.Context(), o); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func main() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	check(err)
	writer, err := outbox.NewWriter(dialect.Postgres(), outbox.Options{})
	check(err)
	listener, err := net.Listen("tcp", os.Getenv("LISTEN"))
	check(err)
	fmt.Println("http://" + listener.Addr().String())
	http.Handle("POST /orders", shop{pool, writer})
	check(http.Serve(listener, nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
