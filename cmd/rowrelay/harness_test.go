package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/admin"
)

// patience is how long a test waits for an expected event.
const patience = 5 * time.Minute

// decade is the bound of backoffs that must not end within a test. It is this long because a relay draws each wait at random
// between zero and the bound.
const decade = 90_000 * time.Hour

// nobody is an address without a listener. The system never assigns the address's port to a client or a test.
const nobody = "127.0.0.1:9"

// onEveryVersion runs a test on an empty database of each kind and version, with the
// program's drivers.
func onEveryVersion(t *testing.T, test func(t *testing.T, db testdb.Database)) {
	t.Helper()
	on(t, test, "postgres15/pgx", "postgres18/pgx", "mysql/gosql", "mariadb1011/gosql", "mariadb105/gosql", "sqlite/modernc")
}

// onEachDatabase runs a test on an empty database of each kind, in one version.
func onEachDatabase(t *testing.T, test func(t *testing.T, db testdb.Database)) {
	t.Helper()
	on(t, test, "postgres18/pgx", "mariadb1011/gosql", "sqlite/modernc")
}

func on(t *testing.T, test func(t *testing.T, db testdb.Database), names ...string) {
	t.Helper()
	for _, target := range testdb.Targets() {
		if !slices.Contains(names, target.Name) {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			test(t, target.Open(t))
		})
	}
}

// onMigrated is like onEachDatabase, but the database has the tables.
func onMigrated(t *testing.T, test func(t *testing.T, db testdb.Database)) {
	t.Helper()
	onEachDatabase(t, func(t *testing.T, db testdb.Database) {
		mustRun(t, "migrate", "up", "--database", db.URL)
		test(t, db)
	})
}

// statusOf counts the messages of a database's table.
func statusOf(t *testing.T, db testdb.Database, flags ...string) (report admin.Report) {
	t.Helper()
	got := mustRun(t, append([]string{"status", "--json", "--database", db.URL}, flags...)...)
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// log collects the output of a daemon, and lets a test wait for a line.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed and replaced whenever a line arrives
}

func newLog() *log { return &log{more: make(chan struct{})} }

func (l *log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.text.Write(text)
}

func (l *log) read() (text string, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String(), l.more
}

// wait waits until the log matches the pattern, and returns the match of its group.
func (l *log) wait(t *testing.T, pattern string) string {
	t.Helper()
	limit := time.After(patience)
	for {
		text, more := l.read()
		if found := regexp.MustCompile(pattern).FindStringSubmatch(text); found != nil {
			return found[len(found)-1]
		}
		select {
		case <-more:
		case <-limit:
			t.Fatalf("no text matched %q in time; the log:\n%s", pattern, text)
		}
	}
}

// daemon is a command that runs concurrently with the test.
type daemon struct {
	log    *log
	stdout *log
	signal context.CancelFunc // sends the first signal
	second chan struct{}      // closed by a test to send the second signal
	done   chan struct{}
	code   int
}

// start starts a command, which ends when the test ends, or earlier.
func start(t *testing.T, args ...string) *daemon {
	t.Helper()
	stdout := newLog()
	d := startTo(t, stdout, args...)
	d.stdout = stdout
	return d
}

// startTo is like start, but writes stdout to an output of the test.
func startTo(t *testing.T, stdout io.Writer, args ...string) *daemon {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &daemon{log: newLog(), signal: cancel, second: make(chan struct{}), done: make(chan struct{})}
	p := program{stdin: strings.NewReader(""), stdout: stdout, stderr: d.log, abort: d.second}
	go func() {
		d.code = p.run(ctx, args)
		close(d.done)
	}()
	t.Cleanup(func() { cancel(); <-d.done })
	return d
}

// end waits for the end of the command, and returns its exit code and its log.
func (d *daemon) end(t *testing.T) (int, string) {
	t.Helper()
	select {
	case <-d.done:
	case <-time.After(patience):
		text, _ := d.log.read()
		t.Fatalf("the command has not ended in time; the log:\n%s", text)
	}
	text, _ := d.log.read()
	return d.code, text
}

func (d *daemon) stop(t *testing.T) (int, string) {
	t.Helper()
	d.signal()
	return d.end(t)
}

// request is a request that an endpoint has received.
type request struct {
	topic, key, id, body string
}

// web is an endpoint. It answers with the status that the test's function returns, and stores its requests.
type web struct {
	*httptest.Server
	answer   func(request) int
	arrived  chan request // requests that were answered with 200
	requests chan request // all requests
}

func newWeb(t *testing.T, answer func(request) int) *web {
	t.Helper()
	w := &web{answer: answer, arrived: make(chan request, 100_000), requests: make(chan request, 100_000)}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

func always(code int) func(request) int { return func(request) int { return code } }

func (w *web) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(in.Body)
	r := request{in.Header.Get("Rowrelay-Topic"), in.Header.Get("Rowrelay-Key"), in.Header.Get("Idempotency-Key"), body.String()}
	w.requests <- r
	code := w.answer(r)
	if code == http.StatusOK {
		w.arrived <- r
	}
	out.WriteHeader(code)
}

func (w *web) next(t *testing.T, from <-chan request) request {
	t.Helper()
	select {
	case r := <-from:
		return r
	case <-time.After(patience):
		t.Fatal("the endpoint received no request in time")
		return request{}
	}
}

// jsonLines returns n lines for enqueue. The messages use the keys in turn, and
// their payloads count the messages of each key from 1.
func jsonLines(topic string, n, keys int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"topic":%q,"key":"key-%d","payload":{"n":%d}}`+"\n", topic, i%keys, i/keys+1)
	}
	return lines.String()
}

// inOrder checks that the payloads of each key are 1, 2, 3 and so on, up to the same number for all keys.
func inOrder(t *testing.T, got []request, n, keys int) {
	t.Helper()
	last, ids := map[string]int{}, map[string]bool{}
	for _, r := range got {
		var body struct{ N int }
		if err := json.Unmarshal([]byte(r.body), &body); err != nil || body.N != last[r.key]+1 {
			t.Errorf("%s: got %s after %d (%v)", r.key, r.body, last[r.key], err)
		}
		last[r.key] = body.N
		ids[r.id] = true
	}
	if len(got) != n || len(ids) != n || len(last) != keys {
		t.Errorf("got %d messages with %d ids and %d keys, want %d with %d keys", len(got), len(ids), len(last), n, keys)
	}
}

func drain(from <-chan request) (all []request) {
	for {
		select {
		case r := <-from:
			all = append(all, r)
		default:
			return all
		}
	}
}

// eventually waits for a condition that another process makes true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); !condition(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not seen within two minutes: %s", what)
		}
	}
}
