// Package shop has the common parts of the orders programs. All of them accept orders over
// HTTP; they differ in how they write an order and its message in one transaction.
package shop

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/rowrelay/rowrelay/outbox"
)

// Order is an order of a customer.
type Order struct{ ID, Total int64 }

// Message returns the message that announces an order. Messages about the same order are
// delivered in the order in which they were written.
func (o Order) Message() outbox.Message {
	body, err := json.Marshal(o)
	Check(err)
	return outbox.Message{Topic: "orders.taken", Key: fmt.Sprint("order-", o.ID), Payload: body}
}

// Serve accepts orders at the address in the environment variable LISTEN. The function take
// writes both an order and its message, or neither.
func Serve(take func(context.Context, Order) error) {
	http.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		var order Order
		if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := take(r.Context(), order); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	listener, err := net.Listen("tcp", os.Getenv("LISTEN"))
	Check(err)
	fmt.Println("http://" + listener.Addr().String())
	Check(http.Serve(listener, nil))
}

// Check ends the program if err is not nil.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
