package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/inbox"
)

// must panics on an error, to keep the examples short.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// newBilling creates a database with an account and an inbox.
func newBilling() *sql.DB {
	db := must(sql.Open("sqlite", "file:billing?mode=memory&cache=shared"))
	db.SetMaxOpenConns(1)
	must(must(migrations.NewInbox(db, dialect.SQLite(), "")).Up(context.Background())) // Up may be called repeatedly
	must(db.Exec("CREATE TABLE account (balance INTEGER)"))
	must(db.Exec("INSERT INTO account (balance) VALUES (100)"))
	return db
}

// The example is an endpoint for the HTTP sink. A duplicate is answered with 200 and changes
// nothing.
func Example_httpEndpoint() {
	db := newBilling()
	defer db.Close()
	in := must(inbox.New(dialect.SQLite(), "billing", inbox.Options{}))

	endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first, err := in.Do(r.Context(), db, r.Header.Get("Idempotency-Key"), func(tx *sql.Tx) error {
			_, err := tx.ExecContext(r.Context(), "UPDATE account SET balance = balance - 30")
			return err
		})
		switch {
		case errors.Is(err, inbox.ErrInvalid):
			http.Error(w, "the header Idempotency-Key is missing", http.StatusBadRequest) // the relay doesn't retry
		case err != nil:
			log.Print(err)
			http.Error(w, "try again", http.StatusInternalServerError) // the relay retries later
		default:
			fmt.Fprintln(w, "first:", first)
		}
	})

	for range 2 { // the relay died before it could settle the message, and another relay sent it again
		request := httptest.NewRequest(http.MethodPost, "/", nil)
		request.Header.Set("Idempotency-Key", "0197a3b4-0000-7abc-8def-0123456789ab")
		answer := httptest.NewRecorder()
		endpoint.ServeHTTP(answer, request)
		fmt.Print(answer.Code, " ", answer.Body)
	}
	var balance int
	if err := db.QueryRow("SELECT balance FROM account").Scan(&balance); err != nil {
		panic(err)
	}
	fmt.Println("balance:", balance)
	// Output:
	// 200 first: true
	// 200 first: false
	// balance: 70
}
