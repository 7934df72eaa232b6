// Orders takes orders over HTTP, and writes each with its message in one transaction
// of bun. A relay beside it delivers the messages.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

type order struct {
	ID    int64 `bun:",pk"`
	Total int64
}

type shop struct {
	pool   *bun.DB
	writer *outbox.Writer
}

// take writes both or neither. The handle for the message is the *sql.Tx inside bun's
// transaction, which formats statements itself.
func (s shop) take(ctx context.Context, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.pool.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&o).Exec(ctx); err != nil {
			return err
		}
		return s.writer.Write(ctx, tx.Tx, outbox.Message{Topic: "orders.taken", Key: fmt.Sprint("order-", o.ID), Payload: body})
	})
}

func (s shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
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
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	pool := bun.NewDB(db, pgdialect.New())
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
