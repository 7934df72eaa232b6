package rowrelay_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/metrics"
	"github.com/rowrelay/rowrelay/sinks"
)

// A shop that writes messages and handles them itself.
func Example() {
	ctx, stop := context.WithCancel(context.Background()) // a program uses signal.NotifyContext instead
	dir := must(os.MkdirTemp("", "rowrelay-example-"))
	defer func() { check(os.RemoveAll(dir)) }()
	db := must(sql.Open("sqlite", rowrelay.SQLiteFile(filepath.Join(dir, "shop.db"))))
	defer db.Close()
	must(db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY)"))

	app := must(rowrelay.New(db, rowrelay.SQLite, rowrelay.Options{}))
	check(app.Migrate(ctx))
	app.Handle("orders.placed", func(ctx context.Context, m sinks.Message) error {
		fmt.Printf("%s %s: %s\n", m.Topic, m.Key, m.Payload)
		stop()
		return nil // an error would cause another attempt later
	})

	place := func(order string, accepted bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", order); err != nil {
			return err
		}
		if err := app.Write(ctx, tx, outbox.Message{Topic: "orders.placed", Key: order, Payload: []byte("a book")}); err != nil {
			return err
		}
		if !accepted {
			return errors.New("card declined")
		}
		return tx.Commit()
	}
	fmt.Println(place("order-1", false))
	fmt.Println(place("order-2", true))

	check(app.Run(ctx)) // until the context ends
	// Output:
	// card declined
	// <nil>
	// orders.placed order-2: a book
}

// A service that has a Prometheus registry, health checks and an HTTP server adds the
// metrics, the state and the operator's page of the relay to them.
func ExampleApp_Store() {
	ctx, stop := context.WithCancel(context.Background())
	db, dir := exampleFile()
	defer func() { check(errors.Join(db.Close(), os.RemoveAll(dir))) }()

	registry := prometheus.NewRegistry() // a service has its own here, or prometheus.DefaultRegisterer
	counted := metrics.New(metrics.Build{Version: "v1.2.3"})
	registry.MustRegister(counted)
	observer := counted.Source("shop")            // the value of the label source of the metrics
	watch := admin.NewWatch(observer, "handlers") // for the page; the further arguments are the names of the sinks
	app := must(rowrelay.New(db, rowrelay.SQLite, rowrelay.Options{
		Relay: relay.Options{Observer: watch, Logger: slog.New(slog.DiscardHandler)},
	}))
	check(app.Migrate(ctx))
	handled := make(chan struct{})
	app.Handle("orders.placed", func(context.Context, sinks.Message) error { close(handled); return nil })

	var running sync.WaitGroup
	running.Go(func() { check(app.Run(ctx)) })
	store := must(app.Store(ctx))                                            // the store that Run uses, too
	running.Go(func() { observer.Watch(ctx, watch.Counting(store.Status)) }) // counts the table every 15 seconds
	pages := admin.Handler(admin.Options{
		Sources: []admin.Source{{Name: "shop", Healthy: app.Healthy, StandbyReason: app.StandbyReason, Status: store.Status, Operator: store, Watch: watch}},
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		Logger:  slog.Default(),
	})
	defer pages.Close()

	check(app.Write(ctx, outbox.WithoutTransaction(db), outbox.Message{Topic: "orders.placed"}))
	app.Wake()
	<-handled
	for _, path := range []string{"/readyz", "/metrics"} {
		answer := httptest.NewRecorder()
		pages.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost"+path, nil))
		for line := range strings.Lines(answer.Body.String()) {
			if path == "/readyz" || strings.HasPrefix(line, "rowrelay_relay_standby") {
				fmt.Print(line)
			}
		}
	}
	stop()
	running.Wait()
	// Output:
	// shop: ok
	// rowrelay_relay_standby{source="shop"} 0
}

// exampleFile opens a new SQLite file in a directory of its own.
func exampleFile() (db *sql.DB, dir string) {
	dir = must(os.MkdirTemp("", "rowrelay-example-"))
	return must(sql.Open("sqlite", rowrelay.SQLiteFile(filepath.Join(dir, "shop.db")))), dir
}

// must and check keep the example short.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
