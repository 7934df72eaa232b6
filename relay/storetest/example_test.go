package storetest_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// table is a memstore table in the form that the suite requires: its stores share nothing else, and
// producers have transactions.
type table struct{ *memstore.DB }

func (t table) Store(testing.TB) storetest.Store { return t.DB.Store() }
func (t table) Begin(testing.TB) storetest.Tx    { return t.DB.Begin() }

// The example shows what the suite gets, and outlines what it does with it. A test passes the
// harness to Run.
func ExampleHarness() {
	harness := storetest.Harness{Open: func(testing.TB) storetest.Table { return table{memstore.New()} }}

	opened := harness.Open(nil)
	tx := opened.Begin(nil)
	tx.Insert(outbox.Message{Topic: "orders.paid"})
	tx.Commit()
	status, err := opened.Store(nil).Status(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("pending:", status.Counts[storage.StatePending])
	// Output:
	// pending: 1
}
