package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/rowrelay/rowrelay/internal/app"
	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

// A daemon can run in another program. In this example the table is in memory; for a
// database, Open returns a store of package sqlstore.
func Example() {
	kinds, err := sinks.NewRegistry(discard.Kind())
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := config.Parse("rowrelay.yaml", []byte("sources: {shop: {database: 'sqlite:shop.db'}}\nsinks: {nowhere: {type: discard}}\n"), kinds)
	if err != nil {
		fmt.Println(err)
		return
	}
	table := memstore.New()
	table.Write(outbox.Message{Topic: "orders", Key: "42", Payload: []byte("paid")})
	daemon, err := app.New(c, app.Options{
		Open: func(context.Context, config.Source) (app.Table, error) {
			return app.Table{Store: table.Store(), Close: func() error { return nil }}, nil
		},
		Sinks:  kinds,
		Drain:  true, // leave it out for a daemon that runs until it is stopped
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := daemon.Run(context.Background(), nil); err != nil {
		fmt.Println(err)
		return
	}
	status, err := table.Store().Status(context.Background())
	fmt.Println("delivered:", status.Counts["done"], err)
	// Output:
	// delivered: 1 <nil>
}
