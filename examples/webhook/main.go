// Webhook is an endpoint for the http sink, and checks the signature of each request. With
// an inbox, each message takes effect once, even if it arrives several times.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

type billing struct {
	db       *sql.DB
	received *inbox.Inbox
	signer   *webhooks.Webhook
}

func (b billing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := b.signer.Verify(body, r.Header); err != nil {
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	_, err = b.received.Do(r.Context(), b.db, r.Header.Get("Idempotency-Key"), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(r.Context(), "INSERT INTO invoices (order_key, body) VALUES ($1, $2)", r.Header.Get("Rowrelay-Key"), body)
		return err
	})
	switch {
	case errors.Is(err, inbox.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest) // every attempt would fail, so the relay parks the message
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable) // the relay retries the message
	default:
		w.WriteHeader(http.StatusNoContent) // also the answer to a duplicate, which took effect earlier
	}
}

func main() {
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	received, err := inbox.New(dialect.Postgres(), "billing", inbox.Options{})
	check(err)
	signer, err := webhooks.NewWebhook(os.Getenv("SIGNING_SECRET"))
	check(err)
	listener, err := net.Listen("tcp", os.Getenv("LISTEN"))
	check(err)
	fmt.Println("http://" + listener.Addr().String())
	http.Handle("POST /messages", billing{db, received, signer})
	check(http.Serve(listener, nil))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
