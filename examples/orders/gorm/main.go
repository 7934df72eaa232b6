// Orders takes orders over HTTP, and writes each with its message in one transaction
// of gorm. A relay beside it delivers the messages.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

type order struct{ ID, Total int64 }

type shop struct {
	pool   *gorm.DB
	writer *outbox.Writer
}

// take writes both or neither. The handle for the message is the transaction's own.
func (s shop) take(ctx context.Context, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.pool.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		return s.writer.Write(ctx, tx.Statement.ConnPool, outbox.Message{Topic: "orders.taken", Key: fmt.Sprint("order-", o.ID), Payload: body})
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
	pool, err := gorm.Open(postgres.Open(os.Getenv("DATABASE_URL")))
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
