// Service is a complete service with a relay inside. It takes orders over HTTP, sends receipts with a handler, and
// announces shipped orders on Kafka. It has a pool of connections, a Prometheus registry, traces, a readiness check and
// the operator's page, and stops cleanly.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/metrics"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/tracing"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// config has the settings, which come from environment variables.
type config struct {
	database string   // the URL
	listen   string   // the address of the service
	admin    string   // the address of the operator's page, metrics and readiness; not public
	token    string   // allows changes on the operator's page; if empty, the page is read-only
	brokers  []string // of Kafka
	topic    string   // of Kafka
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, config{
		database: os.Getenv("DATABASE_URL"),
		listen:   cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8080"),
		admin:    cmp.Or(os.Getenv("ADMIN"), "127.0.0.1:8321"),
		token:    os.Getenv("ADMIN_TOKEN"),
		brokers:  strings.Split(cmp.Or(os.Getenv("KAFKA"), "127.0.0.1:9092"), ","),
		topic:    cmp.Or(os.Getenv("TOPIC"), string(ordersShipped)),
	})
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends. Then it accepts no more requests, and waits for running requests, handlers
// and sends.
func run(ctx context.Context, c config) error {
	flush, err := setUpTraces(ctx)
	if err != nil {
		return err
	}
	defer flush()
	pool, err := pgxpool.New(ctx, c.database) // for the service's own statements
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDB(*pool.Config().ConnConfig) // for the relay, which keeps several connections busy
	defer func() { _ = db.Close() }()
	db.SetMaxIdleConns(8)

	shipped, err := kafka.New(kafka.Options{Brokers: c.brokers, Topic: c.topic}) // the topic must exist, unless CreateTopics is set
	if err != nil {
		return err
	}
	listener, err := relaypgx.NewListener(c.database, relaypgx.ListenerOptions{Table: "outbox"})
	if err != nil {
		return err
	}
	counted := metrics.New(metrics.Build{Version: "v1.2.3"})
	prometheus.MustRegister(counted) // the registry that the service already has
	observer := counted.Source("shop")
	watch := admin.NewWatch(observer, "handlers", "kafka")
	app, err := rowrelay.New(db, rowrelay.Postgres, rowrelay.Options{
		Table:  "outbox", // the same name as in ListenerOptions
		Writer: outbox.Options{Headers: tracing.Headers, Notify: true},
		Store:  sqlstore.Options{Reader: relaypgx.Reader{}},
		Relay: relay.Options{
			Version:  "v1.2.3", // rowrelay status shows it
			Observer: watch,
			Tracer:   tracing.New(otel.GetTracerProvider()),
			Listener: listener,
			Sinks:    map[string]relay.SinkOptions{"kafka": {Sink: shipped}},
			Routes:   []relay.Route{{Topic: string(ordersShipped), Sink: "kafka"}},
		},
	})
	if err != nil {
		return err
	}
	if err := app.Migrate(ctx); err != nil { // or your migration tool: docs/migration-tools.md
		return err
	}
	rowrelay.Handle(app, ordersTaken, sendReceipt)

	table, err := app.Store(ctx)
	if err != nil {
		return err
	}
	pages := admin.Handler(admin.Options{
		Sources: []admin.Source{{Name: "shop", Healthy: app.Healthy, StandbyReason: app.StandbyReason,
			Status: watch.Counting(table.Status), Operator: table, Watch: watch}},
		Metrics: promhttp.Handler(), OperatorToken: c.token, Logger: slog.Default(),
	})
	defer pages.Close()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	failed := make(chan error, 4)
	start := func(part func(context.Context) error) {
		group.Go(func() {
			if err := part(ctx); err != nil {
				failed <- err
				stop() // also stops the other parts
			}
		})
	}
	start(app.Run)
	start(func(ctx context.Context) error { observer.Watch(ctx, watch.Counting(table.Status)); return nil })
	start(serve("operator", c.admin, pages))
	start(serve("service", c.listen, (&shop{pool: pool, writer: app}).routes()))
	group.Wait()
	close(failed)
	return <-failed // nil after a clean stop
}

// serve returns a function that serves until the context ends, and then waits for running
// requests.
func serve(name, address string, handler http.Handler) func(context.Context) error {
	return func(ctx context.Context) error {
		listening, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		fmt.Println(name, "http://"+listening.Addr().String())
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		stopped := make(chan error, 1)
		go func() {
			<-ctx.Done()
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
			defer cancel()
			stopped <- server.Shutdown(limited)
		}()
		if err := server.Serve(listening); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return <-stopped
	}
}

// setUpTraces exports traces if OpenTelemetry's variable for the endpoint is set. The returned function sends the last
// traces.
func setUpTraces(ctx context.Context) (flush func(), err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	return func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := provider.Shutdown(limited); err != nil {
			slog.Warn("the last traces could not be sent", "error", err)
		}
	}, nil
}
