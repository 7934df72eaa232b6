package examples

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	kafkasink "github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// application returns an empty database of PostgreSQL that belongs to a role of its own, with the role's URL. A program that
// connects as the tests' user would have the schema rowrelay as its default, because the user has the same name.
func application(t testing.TB) testdb.Database {
	t.Helper()
	i := slices.IndexFunc(testdb.Targets(), func(target testdb.Target) bool { return target.Name == "postgres18/pgx" })
	db := testdb.Targets()[i].Open(t)
	address, err := url.Parse(db.URL)
	check(t, err)
	role := "app_of_" + strings.TrimPrefix(address.Path, "/rowrelay_test_")
	execute(t, db, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'secret'; ALTER DATABASE %s OWNER TO %[1]s; ALTER SCHEMA public OWNER TO %[1]s", role, strings.TrimPrefix(address.Path, "/")))
	t.Cleanup(func() {
		for _, statement := range []string{"REASSIGN OWNED BY " + role + " TO CURRENT_USER", "DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := db.DB.ExecContext(context.Background(), statement); err != nil {
				t.Error(err)
			}
		}
	})
	address.User = url.UserPassword(role, "secret")
	db.URL = address.String()
	return db
}

// project returns the folder of a copy of an example. The copy has the migration that rowrelay migrate
// print writes for the example's migration tool.
func project(t testing.TB, example, tool, folder string) string {
	t.Helper()
	root := t.TempDir()
	check(t, os.CopyFS(root, os.DirFS(example)))
	m, err := migrations.New(nil, dialect.Postgres(), migrations.Options{Table: "rowrelay.outbox"})
	check(t, err)
	files, err := m.Files(tool, migrations.FileOptions{Inbox: "rowrelay.inbox", Folder: os.DirFS(filepath.Join(root, folder))})
	check(t, err)
	for _, file := range files {
		check(t, os.WriteFile(filepath.Join(root, folder, file.Name), []byte(file.Text), 0o600))
	}
	return root
}

// in runs a program in a project's folder to its end, and returns the program's
// output.
func in(t testing.TB, folder string, db testdb.Database, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = folder, append(os.Environ(), "DATABASE_URL="+db.URL)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", filepath.Base(name), args, err, out)
	}
	return string(out)
}

// deliverTwice relays the messages of rowrelay.outbox, each of them twice.
func deliverTwice(t testing.TB, db testdb.Database, sink sinks.Sink) {
	t.Helper()
	app, err := rowrelay.New(db.DB, rowrelay.Postgres, rowrelay.Options{Table: "rowrelay.outbox", Relay: relay.Options{
		Drain: true, Sinks: map[string]relay.SinkOptions{"sink": {Sink: again{sink}}}}})
	check(t, err)
	check(t, app.Run(t.Context()))
}

// Alembic creates the tables, and later finds nothing to drop. A session writes an order with its message. A consumer of
// RabbitMQ gets the message twice and writes one invoice for it.
func TestSQLAlchemy(t *testing.T) {
	t.Parallel()
	amqp := os.Getenv("ROWRELAY_TEST_RABBITMQ")
	if amqp == "" {
		unavailable(t, "ROWRELAY_TEST_RABBITMQ is not set")
	}
	db := application(t)
	folder := project(t, "sqlalchemy", "alembic", "migrations/versions")
	install(t, folder, "python3", "-m", "venv", "venv")
	python := filepath.Join(folder, "venv/bin/python")
	install(t, folder, python, "-m", "pip", "install", "--quiet", "-r", "requirements.txt")

	in(t, folder, db, python, "-m", "alembic", "upgrade", "head")
	if got := in(t, folder, db, python, "-m", "alembic", "check"); !strings.Contains(got, "No new upgrade operations detected") {
		t.Errorf("alembic check: %s", got)
	}
	in(t, folder, db, python, "tests.py")
	in(t, folder, db, python, "shop.py")

	sink, queue := queueFor(t, db, amqp)
	deliverTwice(t, db, sink)
	billing := exec.Command(python, "-u", "billing.py")
	billing.Dir = folder
	lines := start(t, billing, db, "AMQP_URL="+amqp, "QUEUE="+queue)
	if first, second := lines.next(t), lines.next(t); first != second {
		t.Errorf("the consumer received %q and %q, want one message twice", first, second)
	}
	want(t, db, "SELECT string_agg(total::text, ', ') FROM invoices", "7")
}

// queueFor returns a sink for RabbitMQ that declares a queue, and the queue's name.
func queueFor(t testing.TB, db testdb.Database, amqp string) (sinks.Sink, string) {
	t.Helper()
	broker, err := url.Parse(amqp)
	check(t, err)
	password, _ := broker.User.Password()
	queue := filepath.Base(db.URL[:strings.Index(db.URL, "?")])
	sink, err := rabbitmq.New(rabbitmq.Options{Hosts: []string{broker.Host}, VirtualHost: strings.TrimPrefix(broker.Path, "/"),
		Username: broker.User.Username(), Password: settings.Secret(password), RoutingKey: queue, Declare: &rabbitmq.Topology{Queue: queue, QueueType: "classic"}})
	check(t, err)
	return sink, queue
}

// drizzle-kit creates the application's tables and doesn't touch rowrelay's. Four libraries write an order with its message,
// and a server receives the message and writes one invoice for it. A consumer of RabbitMQ writes one invoice for each message,
// though it receives each twice.
func TestNode(t *testing.T) {
	t.Parallel()
	amqp := os.Getenv("ROWRELAY_TEST_RABBITMQ")
	if amqp == "" {
		unavailable(t, "ROWRELAY_TEST_RABBITMQ is not set")
	}
	db := application(t)
	folder := t.TempDir()
	check(t, os.CopyFS(folder, os.DirFS("orders/node")))
	install(t, folder, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	// Prisma downloads an engine for migrations unless a variable names one. Generating code needs
	// no engine, so any existing file will do.
	generate := exec.CommandContext(t.Context(), "npx", "prisma", "generate", "--schema", "schema.prisma")
	generate.Dir, generate.Env = folder, append(os.Environ(), "PRISMA_SCHEMA_ENGINE_BINARY="+filepath.Join(folder, "package.json"))
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m, err := migrations.New(nil, dialect.Postgres(), migrations.Options{Table: "rowrelay.outbox"})
	check(t, err)
	files, err := m.Files("golang-migrate", migrations.FileOptions{Inbox: "rowrelay.inbox"})
	check(t, err)
	role, _, _ := strings.Cut(strings.TrimPrefix(db.URL, "postgres://"), ":")
	execute(t, db, "SET ROLE "+role+";"+files[0].Text+"RESET ROLE")

	for _, want := range []string{"Changes applied", "No changes detected"} {
		if got := in(t, folder, db, "npx", "drizzle-kit", "push", "--force", "--verbose"); !strings.Contains(got, want) || strings.Contains(got, "DROP") {
			t.Errorf("drizzle-kit push printed %s, want %q", got, want)
		}
	}
	in(t, folder, db, "node", "--test")
	want(t, db, "SELECT count(*)::text FROM pg_tables WHERE schemaname = 'rowrelay'", "11")
	execute(t, db, "TRUNCATE orders, invoices, rowrelay.outbox, rowrelay.inbox")

	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of at least 24 bytes"))
	server := exec.Command("node", "orders.js")
	server.Dir = folder
	address := start(t, server, db, "SIGNING_SECRET="+secret).next(t)
	for order, want := range map[string]int{`{"ID": 42, "Total": 7}`: 201, `{"ID": 43, "Total": 8}`: 201} {
		if got := post(t, address+"/orders", order); got != want {
			t.Errorf("the answer to order %s is %d, want %d", order, got, want)
		}
	}
	if got := post(t, address+"/orders", `{"ID": 42, "Total": 9}`); got != 409 {
		t.Errorf("the answer to a repeated order is %d, want 409", got)
	}
	sink, err := httpsink.New(httpsink.Options{URL: address + "/messages", SigningSecret: settings.Secret(secret)})
	check(t, err)
	deliverTwice(t, db, sink)
	want(t, db, "SELECT string_agg(order_key || ' ' || total, ', ' ORDER BY order_key) FROM invoices", "order-42 7, order-43 8")
	want(t, db, "SELECT count(*)::text FROM rowrelay.outbox_held", "0")

	for order := range 3 {
		if got := post(t, address+"/orders", fmt.Sprintf(`{"ID": %d, "Total": 1}`, 44+order)); got != 201 {
			t.Errorf("the answer to order %d is %d, want 201", 44+order, got)
		}
	}
	toQueue, queue := queueFor(t, db, amqp)
	deliverTwice(t, db, toQueue)
	billing := exec.Command("node", "billing.js")
	billing.Dir = folder
	lines := start(t, billing, db, "AMQP_URL="+amqp, "QUEUE="+queue)
	for range 6 {
		lines.next(t)
	}
	want(t, db, "SELECT string_agg(order_key, ', ' ORDER BY order_key) FROM invoices WHERE total = 1", "order-44, order-45, order-46")
}

// Flyway creates the tables, a service of Spring Boot writes an order with its message, and the service's Kafka listener
// writes one invoice for the message. Maven runs the service's own tests first.
func TestSpring(t *testing.T) {
	t.Parallel()
	if !*withSpring {
		t.Skip("needs -spring, because Maven and the service take minutes on a busy machine")
	}
	broker := os.Getenv("ROWRELAY_TEST_KAFKA")
	if broker == "" {
		unavailable(t, "ROWRELAY_TEST_KAFKA is not set")
	}
	topic := createTopic(t, broker)
	db := application(t)
	folder := project(t, "orders/spring", "flyway", "src/main/resources/db/migration")
	address, err := url.Parse(db.URL)
	check(t, err)
	password, _ := address.User.Password()
	jdbc := fmt.Sprintf("JDBC_URL=jdbc:postgresql://%s%s?user=%s&password=%s", address.Host, address.Path, address.User.Username(), password)
	maven := exec.CommandContext(t.Context(), "mvn", "-q", "package")
	maven.Dir, maven.Env = folder, append(os.Environ(), jdbc)
	if out, err := maven.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	port := testdb.FreePort(t)
	lines := start(t, exec.Command("java", "-jar", filepath.Join(folder, "target/shop-1.jar")), db, jdbc, "KAFKA="+broker, "TOPIC="+topic, fmt.Sprint("PORT=", port))
	for !strings.Contains(lines.next(t), "Started Application") {
	}
	for _, order := range []string{`{"id": 42, "total": 7}`, `{"id": 43, "total": 8}`} {
		if got := post(t, fmt.Sprintf("http://127.0.0.1:%d/orders", port), order); got != 201 {
			t.Errorf("the answer to order %s is %d, want 201", order, got)
		}
	}
	sink, err := kafkasink.New(kafkasink.Options{Brokers: strings.Split(broker, ","), Topic: topic})
	check(t, err)
	deliverTwice(t, db, sink)
	want(t, db, "SELECT string_agg(order_key || ' ' || total, ', ' ORDER BY order_key) FROM invoices", "order-42 7, order-43 8")
}

var withSpring = flag.Bool("spring", false, "also run the example with Spring, which Maven builds")

// createTopic creates a Kafka topic with one partition, and returns its name.
func createTopic(t testing.TB, broker string) string {
	t.Helper()
	topic := fmt.Sprint("examples-", time.Now().UnixNano())
	client := kafka.Client{Addr: kafka.TCP(strings.Split(broker, ",")...), Timeout: 5 * time.Minute}
	_, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}})
	check(t, err)
	return topic
}
