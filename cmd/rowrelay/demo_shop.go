package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

const (
	shopTills     = 4 // these tills sell concurrently
	shopCustomers = 3 // customers at each till
)

// order is the payload of the shop's messages.
type order struct {
	Customer string `json:"customer"`
	Number   int    `json:"number"` // counts the customer's orders, from 1
	Amount   int    `json:"amount"`
}

// shop sells at several tills concurrently. A customer uses only one till, so each of the
// customer's orders commits before the next one begins.
type shop struct {
	db     *sql.DB
	writer *outbox.Writer
	orders int
	pause  time.Duration // between two orders at a till

	committed, rolledBack atomic.Int64
}

func newShop(ctx context.Context, db *sql.DB, kind dialect.Dialect, orders int, lasts time.Duration) (*shop, error) {
	writer, err := outbox.NewWriter(kind, outbox.Options{})
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (customer TEXT NOT NULL, number INTEGER NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (customer, number))")
	if err != nil {
		return nil, fmt.Errorf("make the shop's table: %w", err)
	}
	return &shop{db: db, writer: writer, orders: orders, pause: lasts * shopTills / time.Duration(orders)}, nil
}

func (s *shop) counts() (committed, rolledBack int64) {
	return s.committed.Load(), s.rolledBack.Load()
}

// sell takes all orders, and calls the function wake after each commit.
func (s *shop) sell(ctx context.Context, wake func()) error {
	var tills sync.WaitGroup
	problems := make([]error, shopTills)
	for till := range shopTills {
		tills.Go(func() { problems[till] = s.sellAt(ctx, till, wake) })
	}
	tills.Wait()
	return errors.Join(problems...)
}

func (s *shop) sellAt(ctx context.Context, till int, wake func()) error {
	tick := time.NewTicker(max(s.pause, time.Microsecond))
	defer tick.Stop()
	numbers := map[string]int{}
	for i := till; i < s.orders; i += shopTills {
		customer := fmt.Sprintf("customer-%d-%d", till, i/shopTills%shopCustomers)
		o := order{Customer: customer, Number: numbers[customer] + 1, Amount: 1 + i*7%100}
		changedMind := i%4 == i/shopTills%4 // true for a quarter of the orders at each till
		if err := s.take(ctx, o, changedMind); err != nil {
			return fmt.Errorf("take order %d of %s: %w", o.Number, o.Customer, err)
		}
		if !changedMind {
			numbers[customer]++
			wake()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// take changes the shop's table and writes the message in one transaction, as any application
// would. If changedMind is true, it rolls the transaction back.
func (s *shop) take(ctx context.Context, o order, changedMind bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // has no effect after the commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (customer, number, amount) VALUES (?, ?, ?)", o.Customer, o.Number, o.Amount); err != nil {
		return err
	}
	if changedMind {
		o.Number = -o.Number // if this order arrives although it was rolled back, judge reports it
	}
	payload, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := s.writer.Write(ctx, tx, outbox.Message{Topic: "orders", Key: o.Customer, Payload: payload}); err != nil {
		return err
	}
	if changedMind {
		s.rolledBack.Add(1)
		return tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.committed.Add(1)
	return nil
}

// book returns the shop's own record: the number of orders of each customer.
func (s *shop) book(ctx context.Context) (map[string]int, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT customer, count(*) FROM orders GROUP BY customer")
	if err != nil {
		return nil, fmt.Errorf("read the shop's orders: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err also returns an error of Close
	book := map[string]int{}
	for rows.Next() {
		var customer string
		var count int
		if err := rows.Scan(&customer, &count); err != nil {
			return nil, err
		}
		book[customer] = count
	}
	return book, rows.Err()
}
