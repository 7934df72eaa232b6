package debezium

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/bench/table"
)

// Connect is Debezium's connector with the outbox event router, on a standalone worker of Kafka Connect. Batches,
// queues and buffers are larger than their defaults, and offsets are written every second, as the documentation of
// Debezium and Kafka recommends for throughput. The connector skips operations that don't occur in an outbox.
type Connect struct {
	Database *table.Database
	Kafka    Kafka
	Words    []string // the command that starts a worker

	folder string // folder for the worker's files and offsets
	rest   string // address of the worker's REST interface
}

var _ Side = (*Connect)(nil)

func (c *Connect) Prepare(ctx context.Context) (err error) {
	if c.folder, err = os.MkdirTemp("", "rowrelay-bench-connect"); err != nil {
		return err
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.rest = "http://" + port.Addr().String()
	return errors.Join(port.Close(), do(ctx, c.Database, `CREATE TABLE outbox (id uuid NOT NULL PRIMARY KEY DEFAULT gen_random_uuid(),
		aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL DEFAULT 'event', payload text)`))
}

func (*Connect) Insert() string {
	return "INSERT INTO outbox (aggregatetype, aggregateid, payload) VALUES ($1, $2, $3)"
}

func (*Connect) Fill(selected string) string {
	return "INSERT INTO outbox (aggregatetype, aggregateid, payload) " + selected
}

func (c *Connect) Start(_ context.Context, quick bool) (*Process, error) {
	worker, connector := c.settings(quick)
	files := []string{filepath.Join(c.folder, "worker.properties"), filepath.Join(c.folder, "connector.properties")}
	for i, properties := range []map[string]string{worker, connector} {
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
		}
		if err := os.WriteFile(files[i], []byte(text.String()), 0o600); err != nil {
			return nil, err
		}
	}
	temporary := "-Djava.io.tmpdir=" + c.folder // a killed worker leaves libraries in its temporary folder
	return start("connect", slices.Concat(c.Words[:1], []string{temporary}, c.Words[1:], files)...)
}

func (c *Connect) settings(quick bool) (worker, connector map[string]string) {
	linger, poll := "5", "10" // milliseconds
	if quick {
		linger, poll = "0", "1"
	}
	worker = map[string]string{
		"bootstrap.servers":                              string(c.Kafka),
		"listeners":                                      c.rest,
		"plugin.discovery":                               "service_load",
		"key.converter":                                  "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":                                "org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename":                   filepath.Join(c.folder, "offsets"),
		"offset.flush.interval.ms":                       "1000",
		"producer.batch.size":                            "262144",
		"producer.linger.ms":                             linger,
		"producer.buffer.memory":                         "67108864",
		"producer.enable.idempotence":                    "true",
		"producer.acks":                                  "all",
		"producer.max.in.flight.requests.per.connection": "5",
	}
	address, err := url.Parse(c.Database.URL)
	if err != nil {
		panic("the URL of a database that is already open is malformed")
	}
	password, _ := address.User.Password()
	connector = map[string]string{
		"name":                        "outbox",
		"connector.class":             "io.debezium.connector.postgresql.PostgresConnector",
		"plugin.name":                 "pgoutput",
		"database.hostname":           address.Hostname(),
		"database.port":               address.Port(),
		"database.user":               address.User.Username(),
		"database.password":           password,
		"database.dbname":             c.slot(),
		"slot.name":                   c.slot(),
		"topic.prefix":                "bench",
		"table.include.list":          "public.outbox",
		"publication.autocreate.mode": "filtered",
		"max.batch.size":              "8192",
		"max.queue.size":              "32768",
		"poll.interval.ms":            poll,
		"skipped.operations":          "u,d,t",
		"transforms":                  "outbox",
		"transforms.outbox.type":      "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": "${routedByValue}",
	}
	return worker, connector
}

// slot returns the slot's name. It contains the database's name, because slots belong to the whole
// server.
func (c *Connect) slot() string {
	address, err := url.Parse(c.Database.URL)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(address.Path, "/")
}

// Ready waits until the connector streams changes from its slot.
func (c *Connect) Ready(ctx context.Context, p *Process) error {
	return until(ctx, "Debezium streams", p, func() (ready bool, err error) {
		err = c.Database.DB.QueryRowContext(ctx, `SELECT count(*) > 0 FROM pg_replication_slots AS s JOIN pg_stat_replication AS r ON r.pid = s.active_pid
			WHERE s.slot_name = $1 AND r.state = 'streaming'`, c.slot()).Scan(&ready)
		return ready, err
	})
}

// Pause stops the connector. The worker keeps running.
func (c *Connect) Pause(ctx context.Context) error {
	if err := c.put(ctx, "stop"); err != nil {
		return err
	}
	return c.quiet(ctx)
}

func (c *Connect) Resume(ctx context.Context) error { return c.put(ctx, "resume") }

// quiet waits until no process streams from the slot.
func (c *Connect) quiet(ctx context.Context) error {
	return until(ctx, "Debezium has left its slot", nil, func() (quiet bool, err error) {
		err = c.Database.DB.QueryRowContext(ctx, "SELECT count(*) = 0 FROM pg_replication_slots WHERE slot_name = $1 AND active", c.slot()).Scan(&quiet)
		return quiet, err
	})
}

func (c *Connect) put(ctx context.Context, what string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, c.rest+"/connectors/outbox/"+what, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode >= 300 {
		err = fmt.Errorf("Kafka Connect, %s: %s %s", what, answer.Status, text)
	}
	return errors.Join(err, answer.Body.Close())
}

func (c *Connect) Held(ctx context.Context) (held int64, err error) {
	err = c.Database.DB.QueryRowContext(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots WHERE slot_name = $1", c.slot()).Scan(&held)
	return held, err
}

// Close drops the slot.
func (c *Connect) Close(ctx context.Context) error {
	err := c.quiet(ctx)
	if err == nil {
		err = do(ctx, c.Database, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"+c.slot()+"'")
	}
	return errors.Join(err, os.RemoveAll(c.folder))
}
