// Package e2e tests the promise end to end, with real processes, a real server, a real endpoint and
// real kills. By default the scenes are short. With -long they last as long as the promise states.
package e2e

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var long = flag.Bool("long", false, "let the scenes last as long as the promise states")

var messages = flag.Int("messages", 0, "the number of messages that each scene with killed relays writes, a multiple of 1600; 0 means that it writes few")

// pace is the time in which a scene writes its messages. It is long enough for relays to keep up, so
// that most messages are delivered while relays are killed.
func pace() time.Duration { return time.Duration(*messages) * time.Second / 4000 }

// lasting returns a scene's length: by default the argument short, and with -long the argument
// stated.
func lasting[T any](short, stated T) T {
	if *long {
		return stated
	}
	return short
}

var everywhere = flag.Bool("everywhere", false, "run each scene on all of its servers, not only on the first and one other")

// drawn returns the first of a scene's servers and a random one of the others. With -everywhere or
// -long it returns all of them.
func drawn[T any](servers ...T) []T {
	if *everywhere || *long || len(servers) < 3 {
		return servers
	}
	return []T{servers[0], servers[1+rand.IntN(len(servers)-1)]}
}

// binary is the path of the rowrelay command. It is built once for all tests.
var binary string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		return 0
	}
	dir, err := os.MkdirTemp("", "rowrelay-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	defer removePrepared()
	binary = filepath.Join(dir, "rowrelay")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/rowrelay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the command: %v\n%s", err, out)
		return 1
	}
	os.Unsetenv("GOGC") // make test sets GOGC for the tests; relays run with the default
	return m.Run()
}

// scene is an outbox table with a business table in the same database.
type scene struct {
	testdb.Database
	t         *testing.T
	writer    *outbox.Writer
	store     *sqlstore.Store
	processes []*process    // all processes that the scene has started
	topology  string        // how the servers are arranged, for the scene's results
	broker    string        // the broker's product and version, for the scene's results
	embeds    storage.Claim // the claim mode of the relay in the test's process, if there is one
	written   written

	clockJumps bool   // the times of marks are not usable, because the scene changes the database's clock
	showsEarly bool   // the database shows a transaction to others before it is on the disk
	unrecorded string // why -proof writes no history of the scene; empty if it writes one
}

// newScene creates a scene with empty tables on the target with this name.
func newScene(t *testing.T, target string) *scene {
	t.Helper()
	for _, candidate := range testdb.Targets() {
		if candidate.Name == target {
			return setUp(t, candidate.OpenOutbox(t))
		}
	}
	t.Fatalf("there is no target %s", target)
	return nil
}

func setUp(t *testing.T, db testdb.Database) *scene {
	t.Helper()
	d, err := dialect.ByName(db.Kind)
	check(t, err)
	schema, err := migrations.New(db.DB, d, migrations.Options{})
	check(t, err)
	_, err = schema.Up(t.Context())
	check(t, err)
	_, err = db.DB.ExecContext(t.Context(), "CREATE TABLE orders (customer INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (customer, number))")
	check(t, err)
	writer, err := outbox.NewWriter(d, outbox.Options{})
	check(t, err)
	store, err := sqlstore.Open(t.Context(), db.DB, d, sqlstore.Options{})
	check(t, err)
	s := &scene{Database: db, t: t, writer: writer, store: store, topology: "one server"}
	s.recorded()
	return s
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// order writes an order and its message in one transaction, which it commits or rolls back.
func (s *scene) order(ctx context.Context, customer, number int, commit bool) error {
	return s.orderTo(ctx, "orders", customer, number, commit)
}

func (s *scene) orderTo(ctx context.Context, topic string, customer, number int, commit bool) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	message := orderMessage(topic, customer, number)
	if err := s.writeMessage(ctx, tx, customer, number, message); err != nil || !commit {
		s.wrote(false, err, message)
		return err
	}
	err = tx.Commit()
	s.wrote(true, err, message)
	return err
}

// orders writes several orders with consecutive numbers in one transaction.
func (s *scene) orders(ctx context.Context, count int, customer func() int, number int, commit bool) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	rows, messages := make([]string, count), make([]outbox.Message, count)
	for n := range count {
		by := customer()
		rows[n], messages[n] = fmt.Sprintf("(%d, %d)", by, number+n), orderMessage("orders", by, number+n)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (customer, number) VALUES "+strings.Join(rows, ", ")); err != nil {
		return err
	}
	if err := s.writer.Write(ctx, tx, messages...); err != nil || !commit {
		s.wrote(false, err, messages...)
		return err
	}
	err = tx.Commit()
	s.wrote(true, err, messages...)
	return err
}

func (s *scene) write(ctx context.Context, tx *sql.Tx, topic string, customer, number int) error {
	return s.writeMessage(ctx, tx, customer, number, orderMessage(topic, customer, number))
}

func (s *scene) writeMessage(ctx context.Context, tx *sql.Tx, customer, number int, message outbox.Message) error {
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO orders (customer, number) VALUES (%d, %d)", customer, number)); err != nil {
		return err
	}
	return s.writer.Write(ctx, tx, message)
}

func orderMessage(topic string, customer, number int) outbox.Message {
	return outbox.Message{
		ID: outbox.NewID(), Topic: topic, Key: fmt.Sprint("customer-", customer), Payload: fmt.Appendf(nil, `{"customer":%d,"number":%d}`, customer, number),
	}
}

// committed counts the orders that exist.
func (s *scene) committed() (n int) {
	s.t.Helper()
	check(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT count(*) FROM orders").Scan(&n))
	return n
}

// status returns a status without absent gauges. On a slow machine it may have to be read repeatedly.
func (s *scene) status() (status storage.Status) {
	s.t.Helper()
	eventually(s.t, "the status is complete", func() bool {
		var err error
		status, err = s.store.Status(s.t.Context())
		check(s.t, err)
		return len(status.Absent) == 0
	})
	return status
}

// settled waits until no message is left that could be delivered.
func (s *scene) settled() {
	s.t.Helper()
	eventually(s.t, "all messages are delivered", func() bool { return isSettled(s.status()) })
}

// isSettled reports whether no message is left that could be delivered. Counts that are absent, because
// they could not be read in time, are 0.
func isSettled(status storage.Status) bool {
	counts := status.Counts
	return status.Has(storage.GaugeCounts) && counts[storage.StatePending]+counts[storage.StateClaimed]+counts[storage.StateRetry]+counts[storage.StateScheduled] == 0
}

func TestAbsentCountsSettleNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status storage.Status
		want   bool
	}{
		"all are delivered": {storage.Status{Counts: map[storage.State]int64{storage.StateDone: 3, storage.StateError: 1}}, true},
		"one is pending":    {storage.Status{Counts: map[storage.State]int64{storage.StateDone: 3, storage.StatePending: 1}}, false},
		"absent":            {storage.Status{Absent: []storage.Gauge{storage.GaugeCounts}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isSettled(test.status); got != test.want {
				t.Errorf("isSettled(%v) = %v", test.status, got)
			}
		})
	}
}

// patience is the longest time that a test waits, even on the slowest machine.
func patience() time.Duration { return lasting(10*time.Minute, 30*time.Minute) }

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !comesTrue(patience(), condition) {
		t.Fatalf("after %v this is still not true: %s", patience(), what)
	}
}

// process is a running rowrelay command.
type process struct {
	t       testing.TB
	name    string
	command *exec.Cmd
	log     *tail
	exited  chan struct{}
	err     error
}

// relay starts "rowrelay run" for the scene's table. A process that still runs at the end of the
// test is killed.
func (s *scene) relay(name, sink string, arguments ...string) *process {
	s.t.Helper()
	return s.start(name, append([]string{"run", "--database", s.URL, "--sink", sink}, arguments...)...)
}

func (s *scene) start(name string, arguments ...string) *process {
	s.t.Helper()
	return s.startAs(binary, name, arguments...)
}

// startAs is like start, but runs another program than the rowrelay command of this release.
func (s *scene) startAs(program, name string, arguments ...string) *process {
	s.t.Helper()
	p := &process{t: s.t, name: name, command: exec.Command(program, arguments...), log: &tail{}, exited: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	check(s.t, p.command.Start())
	s.processes = append(s.processes, p)
	go func() { p.err = p.command.Wait(); close(p.exited) }()
	s.t.Cleanup(func() {
		p.kill()
		if s.t.Failed() {
			text := p.log.String()
			s.t.Logf("output of %s:\n%s", name, text[max(0, len(text)-1<<16):])
		}
	})
	return p
}

// kill kills the process without warning.
func (p *process) kill() {
	if isOpen(p.exited) {
		fault(p.t, proof.RelayKilled, p.name)
	}
	p.command.Process.Signal(syscall.SIGKILL)
	<-p.exited
}

// stop signals the process to end, and waits until it has ended.
func (p *process) stop(t testing.TB) {
	t.Helper()
	p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience()):
		t.Fatalf("%s didn't stop", p.name)
	}
	if p.err != nil {
		t.Errorf("%s: %v\n%s", p.name, p.err, p.log)
	}
}

// resident returns the process's resident memory in MiB.
func (p *process) resident(t testing.TB) int { return p.memory(t, "VmRSS:") }

// memory returns a figure of the process's status in MiB. The name VmHWM: stands for the peak of
// the resident memory.
func (p *process) memory(t testing.TB, name string) (mib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	check(t, err)
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, name); ok {
			fmt.Sscan(kib, &mib)
		}
	}
	return mib / 1024
}

// tail keeps the end of a process's output.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	if len(l.text) > 1<<20 {
		l.text = append(l.text[:0], l.text[len(l.text)-1<<19:]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
