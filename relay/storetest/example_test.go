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

// table is a memstore table with the methods that the suite requires.
type table struct{ *memstore.DB }

func (t table) Store(testing.TB) storetest.Store { return t.DB.Store() }
func (t table) Begin(testing.TB) storetest.Tx    { return t.DB.Begin() }

// A test passes a harness to Run. The example opens a table as a check does, writes a message and
// reads the status.
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
