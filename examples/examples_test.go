package examples

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	kafkasink "github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Each orders service writes an order and its message, or neither.
func TestOrders(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]func(testing.TB) *exec.Cmd{
		"pgx":  program("orders/pgx"),
		"gorm": program("orders/gorm"),
		"bun":  program("orders/bun"),
		"sqlc": program("orders/sqlc"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := shop(t)
			lines := start(t, command(t), db)
			address := lines.next(t)
			for order, want := range map[string]int{`{"ID": 42, "Total": 7}`: 201, `{"ID": 43, "Total": 8}`: 201} {
				if got := post(t, address+"/orders", order); got != want {
					t.Errorf("the answer to order %s is %d, want %d", order, got, want)
				}
			}
			if got := post(t, address+"/orders", `{"ID": 42, "Total": 9}`); got != 409 {
				t.Errorf("the answer to a repeated order is %d, want 409", got)
			}
			want(t, db, "SELECT string_agg(id || ' ' || total, ', ' ORDER BY id) FROM orders", "42 7, 43 8")
			want(t, db, "SELECT string_agg(topic || ' ' || message_key, ', ' ORDER BY message_key) FROM outbox", "orders.taken order-42, orders.taken order-43")
			want(t, db, "SELECT string_agg(coalesce(payload_text, convert_from(payload, 'UTF8'))::json ->> 'Total', ', ' ORDER BY message_key) FROM outbox", "7, 8")
		})
	}
}

// Statements that libraries of other languages send, copied by hand, run against the real tables.
func TestStatements(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("orders/*/statements.sql")
	check(t, err)
	if len(files) == 0 {
		t.Fatal("no statements found")
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			db := shop(t)
			execute(t, db, read(t, file))
			want(t, db, "SELECT string_agg(id || ' ' || total, ', ') FROM orders", "42 7")
			want(t, db, "SELECT topic || ' ' || message_key || ' ' || (payload_text::json ->> 'Total') FROM outbox", "orders.taken order-42 7")
		})
	}
}

// A message that arrives again has no second effect, and a request without a signature has
// no effect.
func TestWebhook(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of at least 24 bytes"))
	db := shop(t)
	invoices(t, db)
	address := start(t, program("webhook")(t), db, "SIGNING_SECRET="+secret).next(t) + "/messages"
	sink, err := httpsink.New(httpsink.Options{URL: address, SigningSecret: settings.Secret(secret)})
	check(t, err)
	relayAll(t, db, sink, 2, func() { sendAgain(t, sink) })
	if got := post(t, address, "{}"); got != 401 {
		t.Errorf("without a signature the answer is %d, want 401", got)
	}
	want(t, db, "SELECT string_agg(order_key || ' ' || convert_from(body, 'UTF8'), ', ' ORDER BY order_key) FROM invoices", "order-1 one, order-2 two")
}

// A Django migration creates the outbox, so that the database of Django's own tests has it too. One view
// writes an order with its message. Another view receives the message from a relay and handles it once.
func TestDjango(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]rowrelay.Database{"postgres15/pgx": rowrelay.Postgres, "sqlite/modernc": rowrelay.SQLite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(testdb.Targets(), func(target testdb.Target) bool { return target.Name == name })
			db := testdb.Targets()[i].Open(t)
			folder, python := django(t, db.DB, kind)
			manage := func(arguments ...string) *exec.Cmd {
				command := exec.CommandContext(t.Context(), python, append([]string{"-u", "manage.py"}, arguments...)...)
				command.Dir, command.Env = folder, append(os.Environ(), "DATABASE_URL="+db.URL)
				return command
			}
			for _, arguments := range [][]string{{"makemigrations", "--check"}, {"migrate"}, {"test", "--noinput"}} {
				if out, err := manage(arguments...).CombinedOutput(); err != nil {
					t.Fatalf("manage.py %q: %v\n%s", arguments, err, out)
				}
			}
			secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of at least 24 bytes"))
			lines := start(t, manage("runserver", "--noreload", "127.0.0.1:0"), db, "SIGNING_SECRET="+secret)
			address, found := "", false
			for !found {
				address, found = strings.CutPrefix(lines.next(t), "Starting development server at ")
			}
			if got := post(t, address+"orders", `{"Total": 7}`); got != 201 {
				t.Errorf("the answer to the order is %d, want 201", got)
			}
			execute(t, db, "INSERT INTO outbox (message_id, topic, message_key, payload_text) VALUES ('"+firstID+"', 'orders.taken', 'order-1', '{\"total\": 1}')")
			sink, err := httpsink.New(httpsink.Options{URL: address + "messages", SigningSecret: settings.Secret(secret)})
			check(t, err)
			app, err := rowrelay.New(db.DB, kind, rowrelay.Options{Relay: relay.Options{Drain: true, Sinks: map[string]relay.SinkOptions{"django": {Sink: again{sink}}}}})
			check(t, err)
			check(t, app.Run(t.Context()))
			var invoices, parked int
			check(t, db.DB.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM orders_invoice), (SELECT count(*) FROM outbox_held)").Scan(&invoices, &parked))
			if invoices != 2 || parked != 0 {
				t.Errorf("%d invoices and %d parked messages, want 2 and 0", invoices, parked)
			}
		})
	}
}

// again is a sink that gets each batch twice, as if a relay had died before it marked the messages
// as delivered.
type again struct{ sinks.Sink }

func (s again) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	s.Sink.Send(ctx, batch)
	return s.Sink.Send(ctx, batch)
}

func TestKafka(t *testing.T) {
	t.Parallel()
	broker := os.Getenv("ROWRELAY_TEST_KAFKA")
	if broker == "" {
		unavailable(t, "ROWRELAY_TEST_KAFKA is not set")
	}
	topic := createTopic(t, broker)
	db := shop(t)
	invoices(t, db)
	sink, err := kafkasink.New(kafkasink.Options{Brokers: strings.Split(broker, ","), Topic: topic})
	check(t, err)
	relayAll(t, db, sink, 2, func() { sendAgain(t, sink) })
	lines := start(t, program("kafka")(t), db, "KAFKA="+broker, "TOPIC="+topic)
	for _, want := range []string{"order-1 first=true", "order-2 first=true", "order-1 first=false"} {
		if got := lines.next(t); got != want {
			t.Errorf("the program printed %q, want %q", got, want)
		}
	}
	want(t, db, "SELECT count(*)::text FROM invoices", "2")
}

// The service writes orders with messages about them. Its handler gets one topic, and Kafka the other. The service has
// metrics, readiness and the admin page, and SIGTERM stops it cleanly.
func TestService(t *testing.T) {
	t.Parallel()
	broker := os.Getenv("ROWRELAY_TEST_KAFKA")
	if broker == "" {
		unavailable(t, "ROWRELAY_TEST_KAFKA is not set")
	}
	topic := createTopic(t, broker)
	db := shop(t)
	execute(t, db, "ALTER TABLE orders ADD COLUMN shipped boolean NOT NULL DEFAULT false")
	service := program("service")(t)
	lines := start(t, service, db, "KAFKA="+broker, "TOPIC="+topic, "ADMIN=127.0.0.1:0")
	addresses := map[string]string{}
	for range 2 {
		name, address, _ := strings.Cut(lines.next(t), " ")
		addresses[name] = address
	}
	for _, call := range []struct {
		path string
		want int
	}{{"/orders", 201}, {"/orders", 409}, {"/shipments", 201}} {
		if got := post(t, addresses["service"]+call.path, `{"ID": 42, "Total": 7}`); got != call.want {
			t.Errorf("%s: the answer is %d, want %d", call.path, got, call.want)
		}
	}
	if got := lines.next(t); got != "receipt order-42 7" {
		t.Errorf("the program printed %q", got)
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: strings.Split(broker, ","), Topic: topic})
	record, err := reader.ReadMessage(t.Context())
	check(t, errors.Join(err, reader.Close()))
	if string(record.Key) != "order-42" {
		t.Errorf("the record's key is %q", record.Key)
	}
	want(t, db, "SELECT string_agg(topic, ', ' ORDER BY id) FROM outbox_done", "orders.taken, orders.shipped")
	for path, text := range map[string]string{"/readyz": "shop: ok", "/metrics": `rowrelay_delivered_total{sink="kafka",source="shop"} 1`, "/": "<!doctype html>"} {
		if got := get(t, addresses["operator"]+path); !strings.Contains(strings.ToLower(got), strings.ToLower(text)) {
			t.Errorf("%s: %.500s, want %q", path, got, text)
		}
	}
	check(t, service.Process.Signal(syscall.SIGTERM))
	for range lines { // until the program closes its output
	}
	if err := service.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func get(t testing.TB, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
	check(t, err)
	answer, err := http.DefaultClient.Do(request)
	check(t, err)
	text, err := io.ReadAll(answer.Body)
	check(t, errors.Join(err, answer.Body.Close()))
	return string(text)
}

func TestQueue(t *testing.T) {
	t.Parallel()
	db := shop(t)
	lines := start(t, program("queue")(t), db)
	execute(t, db, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('pictures.draw', 'a', 'a tree'), ('pictures.draw', 'b', 'nonsense'), ('other', 'c', '')")
	got := []string{lines.next(t), lines.next(t)}
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the program worked on %q", got)
	}
	want(t, db, "SELECT string_agg(message_key || ' ' || state, ', ' ORDER BY message_key) FROM outbox_messages", "a done, b error, c pending")
}

// The file handmade/move.sql has the output of rowrelay adopt --print. With UPDATE_GOLDEN=1 the test
// writes the file.
func TestTheHandmadeTableIsAdopted(t *testing.T) {
	t.Parallel()
	db := shop(t)
	execute(t, db, read(t, "handmade/before.sql"))
	a, err := adopt.Open(t.Context(), db.DB, dialect.Postgres(), "outbox", "events")
	check(t, err)
	script, err := a.Script()
	check(t, err)
	if script += "\n"; os.Getenv("UPDATE_GOLDEN") == "1" {
		check(t, os.WriteFile("handmade/move.sql", []byte(script), 0o644))
	}
	if read(t, "handmade/move.sql") != script {
		t.Errorf("handmade/move.sql is stale: run this test with UPDATE_GOLDEN=1; it should be\n%s", script)
	}
}

// The messages that wait in the old table, and those that old programs write to it during the move, are
// delivered once and in order.
func TestMovingFromAHandmadeTable(t *testing.T) {
	t.Parallel()
	db := shop(t)
	execute(t, db, read(t, "handmade/before.sql"))
	execute(t, db, read(t, "handmade/move.sql"))
	execute(t, db, "INSERT INTO events (kind, aggregate_id, body) VALUES ('orders.paid', 'order-1', '{\"n\": 4}')")
	want(t, db, "SELECT string_agg(message_key || ' ' || (payload_text::json ->> 'n'), ', ' ORDER BY id) FROM outbox", "order-1 2, order-2 3, order-1 4")
	want(t, db, "SELECT count(*)::text FROM events WHERE sent_at IS NULL", "0")
}

// Messages are forwarded once, even if an old program repeats its INSERT or uses another database
// role.
func TestMovingForwardsWhatIsWritten(t *testing.T) {
	t.Parallel()
	db := shop(t)
	execute(t, db, read(t, "handmade/before.sql"))
	execute(t, db, read(t, "handmade/move.sql"))
	execute(t, db, "ALTER TABLE events ADD COLUMN request text UNIQUE; DELETE FROM outbox")
	var name string
	check(t, db.DB.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name))
	role := "writer_of_" + name
	execute(t, db, "CREATE ROLE "+role+"; GRANT SELECT, INSERT ON events TO "+role)
	t.Cleanup(func() {
		if _, err := db.DB.ExecContext(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		execute(t, db, "SET ROLE "+role+"; INSERT INTO events (kind, aggregate_id, body, request) VALUES ('orders.paid', 'order-1', '{}', 'once') ON CONFLICT DO NOTHING; RESET ROLE")
	}
	want(t, db, "SELECT count(*)::text FROM outbox", "1")
	want(t, db, "SELECT count(*)::text FROM events WHERE sent_at IS NULL", "0")
}

func shop(t testing.TB) testdb.Database {
	t.Helper()
	i := slices.IndexFunc(testdb.Targets(), func(target testdb.Target) bool { return target.Name == "postgres15/pgx" })
	db := testdb.Targets()[i].OpenOutbox(t)
	execute(t, db, read(t, "orders/schema.sql"))
	return db
}

func invoices(t testing.TB, db testdb.Database) {
	t.Helper()
	m, err := migrations.NewInbox(db.DB, dialect.Postgres(), "inbox")
	check(t, err)
	_, err = m.Up(t.Context())
	check(t, err)
	execute(t, db, "CREATE TABLE invoices (order_key text, body bytea)")
	execute(t, db, "INSERT INTO outbox (message_id, topic, message_key, payload_text) VALUES ('"+firstID+"', 'orders.taken', 'order-1', 'one')")
	execute(t, db, "INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders.taken', 'order-2', 'two')")
}

const firstID = "019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60"

// relayAll runs a relay until the given number of messages is delivered. It calls the parameter `then` before it
// closes the sink.
func relayAll(t testing.TB, db testdb.Database, sink sinks.Sink, messages int, then func()) {
	t.Helper()
	app, err := rowrelay.New(db.DB, rowrelay.Postgres, rowrelay.Options{Relay: relay.Options{Sinks: map[string]relay.SinkOptions{"sink": {Sink: sink}}}})
	check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- app.Run(ctx) }()
	want(t, db, "SELECT count(*)::text FROM outbox_done", fmt.Sprint(messages))
	then()
	stop()
	check(t, <-stopped)
}

// sendAgain sends messages again, like a relay that died before it marked them as
// delivered.
func sendAgain(t testing.TB, sink sinks.Sink) {
	t.Helper()
	m := sinks.Message{Message: outbox.Message{ID: firstID, Topic: "orders.taken", Key: "order-1", Payload: []byte("one")}, Attempt: 1}
	if got := sink.Send(t.Context(), []sinks.Message{m}); got[0].Result != sinks.Delivered {
		t.Errorf("the outcome of the second send is %v", got[0])
	}
}

// want waits until a query returns the answer.
func want(t testing.TB, db testdb.Database, query, answer string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		check(t, db.DB.QueryRowContext(t.Context(), "SELECT coalesce(("+query+"), '')").Scan(&got))
		if got == answer {
			return
		}
		execute(t, db, "SELECT pg_sleep(0.02)")
	}
	t.Errorf("%s is %q, want %q", query, got, answer)
}

func program(folder string) func(testing.TB) *exec.Cmd {
	return func(t testing.TB) *exec.Cmd {
		t.Helper()
		binary := filepath.Join(t.TempDir(), "program")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", binary, "./"+folder).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return exec.Command(binary)
	}
}

// django is a copy of the Django project with the outbox migration from rowrelay migrate print, and the Python
// interpreter that runs it.
func django(t testing.TB, db *sql.DB, kind rowrelay.Database) (folder, python string) {
	t.Helper()
	d, err := dialect.ByName(string(kind))
	check(t, err)
	folder = t.TempDir()
	check(t, os.CopyFS(folder, os.DirFS("django")))
	m, err := migrations.New(db, d, migrations.Options{})
	check(t, err)
	outbox, err := os.Create(filepath.Join(folder, "orders/migrations/outbox.sql"))
	check(t, err)
	check(t, m.Print(outbox))
	check(t, outbox.Close())
	install(t, folder, "python3", "-m", "venv", "venv")
	python = filepath.Join(folder, "venv/bin/python")
	install(t, folder, python, "-m", "pip", "install", "--quiet", "-r", "requirements.txt")
	return folder, python
}

func install(t testing.TB, folder, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		unavailable(t, fmt.Sprintf("%s %q: %v\n%s", name, args, err, out))
	}
}

func unavailable(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// output is the output of a program.
type output chan string

func start(t testing.TB, command *exec.Cmd, db testdb.Database, environment ...string) output {
	t.Helper()
	command.Env = append(append(os.Environ(), "DATABASE_URL="+db.URL, "LISTEN=127.0.0.1:0"), environment...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	check(t, err)
	check(t, command.Start())
	lines := make(output, 100)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	return lines
}

func (lines output) next(t testing.TB) string {
	t.Helper()
	select {
	case line, open := <-lines:
		if !open {
			t.Fatal("the program has ended")
		}
		return line
	case <-time.After(5 * time.Minute):
		t.Fatal("the program has printed nothing")
	}
	return ""
}

func post(t testing.TB, address, body string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", address, strings.NewReader(body))
	check(t, err)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	check(t, err)
	check(t, answer.Body.Close())
	return answer.StatusCode
}

func execute(t testing.TB, db testdb.Database, statements string) {
	t.Helper()
	_, err := db.DB.ExecContext(t.Context(), statements)
	check(t, err)
}

func read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	check(t, err)
	return string(text)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
