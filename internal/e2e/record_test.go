package e2e

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

var proofFolder = flag.String("proof", "", "the folder to which each judged scene writes its history, and a line of results.jsonl")

// record has what happened in a test, for the histories of its scenes.
type record struct {
	began time.Time

	mu     sync.Mutex
	faults []proof.Event
	scenes []*scene
	judged int
}

// records has the record of each test. Without -proof it is empty.
var records = struct {
	sync.Mutex
	of map[testing.TB]*record
}{of: map[testing.TB]*record{}}

// recordOf returns the test's record, or nil without -proof.
func recordOf(t testing.TB) *record {
	if *proofFolder == "" {
		return nil
	}
	records.Lock()
	defer records.Unlock()
	r := records.of[t]
	if r == nil {
		r = &record{began: time.Now()}
		records.of[t] = r
	}
	return r
}

func (r *record) since(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.Sub(r.began).Microseconds()) / 1e6
}

// fault records a fault of one of the kinds in package proof. The relay is the name of the process
// that it hit, or empty if it may have hit all of them.
func fault(t testing.TB, kind, relay string) {
	r := recordOf(t)
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, proof.Event{Event: proof.Fault, At: r.since(time.Now()), Kind: kind, Relay: relay})
}

// written has the messages that a scene's writers wrote, and the lanes' owners that a query found.
type written struct {
	mu     sync.Mutex
	events []proof.Event
	lanes  []*proof.Event
}

// recorded starts to record a new scene.
func (s *scene) recorded() {
	r := recordOf(s.t)
	if r == nil {
		return
	}
	r.mu.Lock()
	r.scenes = append(r.scenes, s)
	r.mu.Unlock()
	done, watching := make(chan struct{}), sync.WaitGroup{}
	db := s.DB // a scene may replace it
	watching.Go(func() { s.watchLanes(r, db, done) })
	s.t.Cleanup(func() { close(done); watching.Wait() })
}

// wrote records that a transaction with these messages has ended.
func (s *scene) wrote(committed bool, err error, messages ...outbox.Message) {
	r := recordOf(s.t)
	if r == nil {
		return
	}
	outcome := proof.RolledBack
	switch {
	case err != nil && committed:
		outcome = proof.Unknown
	case committed:
		outcome = proof.Committed
	}
	s.written.mu.Lock()
	defer s.written.mu.Unlock()
	at := r.since(time.Now())
	for _, m := range messages {
		s.written.events = append(s.written.events, proof.Event{Event: proof.Wrote, At: at, ID: m.ID, Key: m.Key, Number: numberOf(m.Payload), Outcome: outcome})
	}
}

func numberOf(payload []byte) int {
	var order struct{ Number int }
	_ = json.Unmarshal(payload, &order)
	return order.Number
}

// watchLanes records each lane's owners. Of each lease it records the first and the last view: the
// first with the time after its query, and the last with the time before its query. So the relay had
// the lane at both times, and in between.
func (s *scene) watchLanes(r *record, db *sql.DB, done <-chan struct{}) {
	type lease struct {
		first proof.Event
		last  *proof.Event // nil: there was only one view
	}
	leases := map[int]*lease{}
	for isOpen(done) {
		before := r.since(time.Now())
		views, err := lanesNow(db)
		after := r.since(time.Now())
		if err != nil {
			views = nil // the server may be down
		}
		s.written.mu.Lock()
		for _, view := range views {
			known := leases[*view.Lane]
			if known != nil && known.first.Fence == view.Fence && known.first.Relay == view.Relay {
				view.At = before
				if known.last == nil {
					s.written.lanes = append(s.written.lanes, &view)
					known.last = &view
				}
				known.last.At = before
				continue
			}
			view.At = after
			s.written.lanes = append(s.written.lanes, &view)
			leases[*view.Lane] = &lease{first: view}
		}
		s.written.mu.Unlock()
		select {
		case <-done:
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func lanesNow(db *sql.DB) (views []proof.Event, err error) {
	rows, err := db.Query("SELECT lane, fence, COALESCE(owner, '') FROM outbox_lanes")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		view := proof.Event{Event: proof.Lane, Lane: new(int)}
		if err := rows.Scan(view.Lane, &view.Fence, &view.Relay); err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, rows.Err()
}

// keep writes the history of the scene whose messages arrived, and its result.
func keep(t testing.TB, arrivals []arrival, ordered bool) {
	t.Helper()
	r := recordOf(t)
	if r == nil || len(arrivals) == 0 {
		return
	}
	s := r.sceneOf(arrivals)
	switch {
	case s == nil:
		t.Log("no history is written: no scene has written these messages")
		return
	case s.unrecorded != "":
		t.Log("no history is written: " + s.unrecorded)
		return
	}
	r.mu.Lock()
	r.judged++
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("/ ,:'", c) {
			return '_'
		}
		return c
	}, fmt.Sprintf("%s-%d-%d.jsonl.gz", strings.TrimPrefix(t.Name(), "Test"), r.began.Unix(), r.judged))
	r.mu.Unlock()
	h := s.history(r, arrivals, ordered)
	check(t, os.MkdirAll(*proofFolder, 0o755))
	check(t, h.Write(filepath.Join(*proofFolder, name)))
	verdict, err := proof.Check(h)
	check(t, err)
	result := proof.Result{Header: h.Header, Verdict: verdict, File: name}
	check(t, result.Append(filepath.Join(*proofFolder, "results.jsonl")))
	t.Logf("%s: %+v", name, result.Verdict)
}

// sceneOf returns the test's scene that wrote these messages.
func (r *record) sceneOf(arrivals []arrival) *scene {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.scenes) == 1 {
		return r.scenes[0]
	}
	for _, s := range r.scenes {
		s.written.mu.Lock()
		found := slices.ContainsFunc(s.written.events, func(e proof.Event) bool { return e.ID == arrivals[0].id })
		s.written.mu.Unlock()
		if found {
			return s
		}
	}
	return nil
}

func (s *scene) history(r *record, arrivals []arrival, ordered bool) *proof.History {
	s.t.Helper()
	h := &proof.History{Header: proof.Header{
		History: 1, Scene: s.t.Name(), Server: s.server(), Topology: s.topology, Sink: arrivals[0].sink, Broker: s.broker, Claim: s.claim(), Ordered: ordered,
		Exact: strings.HasSuffix(arrivals[0].sink, "idempotent"), Unsettled: s.unsettled(), Commit: described(), Command: command(s.t), Began: r.began.UTC(),
	}}
	s.written.mu.Lock()
	h.Events = slices.Clone(s.written.events)
	for _, view := range s.written.lanes {
		h.Events = append(h.Events, *view)
	}
	s.written.mu.Unlock()
	r.mu.Lock()
	h.Events = append(h.Events, r.faults...)
	r.mu.Unlock()
	h.Events = append(h.Events, s.logged(r)...)
	for _, a := range arrivals {
		h.Events = append(h.Events, proof.Event{Event: proof.Arrived, At: r.since(a.at), ID: a.id, Key: fmt.Sprint("customer-", a.customer), Number: a.number, Relay: a.from})
	}
	h.Events = append(h.Events, s.rows(r)...)
	h.Events = append(h.Events, s.undone(h.Events)...)
	return h
}

// logged returns the symptoms in the relays' logs.
func (s *scene) logged(r *record) (symptoms []proof.Event) {
	for _, p := range s.processes {
		for line := range strings.Lines(p.log.String()) {
			kind := ""
			switch {
			case strings.Contains(line, "the leases were not renewed in time"):
				kind = proof.LeaseLost
			case strings.Contains(line, "reason=unknown"), strings.Contains(line, "reason=timeout"):
				kind = proof.AnswerLost
			default:
				continue
			}
			when, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			if at, err := time.Parse(time.RFC3339Nano, when); err == nil {
				symptoms = append(symptoms, proof.Event{Event: proof.Symptom, At: r.since(at), Kind: kind, Relay: p.name})
			}
		}
	}
	return symptoms
}

// rows returns what the table contains at the end.
func (s *scene) rows(r *record) (all []proof.Event) {
	s.t.Helper()
	rows, err := s.DB.QueryContext(context.Background(), `SELECT message_id, COALESCE(message_key, ''), payload, payload_text, state, attempts, COALESCE(last_error, ''), lane,
		finished_at, COALESCE(relay, '') FROM outbox_messages`)
	check(s.t, err)
	defer rows.Close()
	for rows.Next() {
		e, bytes, text, finished := proof.Event{Event: proof.Row, Lane: new(int)}, []byte(nil), []byte(nil), any(nil)
		check(s.t, rows.Scan(&e.ID, &e.Key, &bytes, &text, &e.State, &e.Attempts, &e.Reason, e.Lane, &finished, &e.Relay))
		e.Number = numberOf(slices.Concat(bytes, text))
		e.Reason, _, _ = strings.Cut(e.Reason, ":")
		if e.State == "done" {
			e.Attempts-- // the delivery
		}
		if !s.clockJumps {
			e.At = r.since(timeOf(finished))
		}
		all = append(all, e)
	}
	check(s.t, rows.Err())
	return all
}

// timeOf reads a database's time, which SQLite keeps as text.
func timeOf(value any) time.Time {
	switch value := value.(type) {
	case time.Time:
		return value
	case []byte:
		return timeOf(string(value))
	case string:
		for _, layout := range []string{time.DateTime, "2006-01-02T15:04:05Z07:00"} {
			if at, err := time.Parse(layout, value); err == nil {
				return at
			}
		}
	}
	return time.Time{}
}

// undone returns the messages whose business rows the database has lost: the committed messages and, if the database shows
// transactions early, those that arrived although their commit failed.
func (s *scene) undone(events []proof.Event) (all []proof.Event) {
	s.t.Helper()
	rows, err := s.DB.QueryContext(context.Background(), "SELECT customer, number FROM orders")
	check(s.t, err)
	defer rows.Close()
	type order struct {
		key    string
		number int
	}
	kept := map[order]bool{}
	for rows.Next() {
		var customer, number int
		check(s.t, rows.Scan(&customer, &number))
		kept[order{fmt.Sprint("customer-", customer), number}] = true
	}
	check(s.t, rows.Err())
	arrived := map[string]bool{}
	for _, e := range events {
		if e.Event == proof.Arrived {
			arrived[e.ID] = true
		}
	}
	for _, e := range events {
		isShown := e.Outcome == proof.Committed || s.showsEarly && e.Outcome == proof.Unknown && arrived[e.ID]
		if e.Event == proof.Wrote && isShown && !kept[order{e.Key, e.Number}] {
			all = append(all, proof.Event{Event: proof.Undone, ID: e.ID, Key: e.Key, Number: e.Number})
		}
	}
	return all
}

// server returns the database's product and version.
func (s *scene) server() string {
	s.t.Helper()
	product, query := map[string]string{testdb.Postgres: "PostgreSQL", testdb.MySQL: "MySQL", testdb.MariaDB: "MariaDB", testdb.SQLite: "SQLite"}[s.Kind],
		map[string]string{testdb.Postgres: "SHOW server_version", testdb.SQLite: "SELECT sqlite_version()"}[s.Kind]
	var version string
	check(s.t, s.DB.QueryRowContext(context.Background(), cmp.Or(query, "SELECT version()")).Scan(&version))
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "5.5.5-"), "-")
	version, _, _ = strings.Cut(version, " ")
	return product + " " + version
}

// claim returns how the scene's relays claim messages.
func (s *scene) claim() string {
	if s.embeds != "" {
		return string(s.embeds)
	}
	for _, p := range s.processes {
		if p.option("--claim") == "rows" {
			return "rows"
		}
	}
	return "lanes"
}

// unsettled returns the most messages that a relay may have sent and not settled, or 0 if relays of
// the scene have different limits.
func (s *scene) unsettled() (most int) {
	for _, p := range s.processes {
		var batch int
		if fmt.Sscan(p.option("--batch"), &batch); batch == 0 || p.option("--workers") != "2" {
			return 0
		}
		most = max(most, mostUnsettled(batch))
	}
	return most
}

// option returns the value of an option in the process's command.
func (p *process) option(name string) string {
	if i := slices.Index(p.command.Args, name); i >= 0 && i+1 < len(p.command.Args) {
		return p.command.Args[i+1]
	}
	return ""
}

// described returns the last commit that changed what the scenes test, as git describe does: the
// command and the packages that it consists of, without scenes and pages.
var described = sync.OnceValue(func() string {
	git := func(arguments ...string) string {
		out, err := exec.Command("git", append(append([]string{"-C", "../.."}, arguments...), "--", "*.go", "*.sql", "go.mod", ":(exclude)*_test.go",
			":(exclude)internal/e2e", ":(exclude)internal/proof")...).Output()
		if err != nil {
			return "unknown"
		}
		return strings.TrimSpace(string(out))
	}
	commit := git("log", "-1", "--format=%(describe:tags,abbrev=12)%x20%h", "--abbrev=12")
	commit = strings.Fields(commit)[0] // its hash, if no tag leads to it
	if git("status", "--porcelain") != "" {
		commit += "-dirty"
	}
	return commit
})

// command returns the command that repeats the test.
func command(t testing.TB) string {
	all := "go test ./internal/e2e -run '^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$' -proof FOLDER"
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") && f.Name != "proof" {
			value := f.Value.String()
			if filepath.IsAbs(value) { // a program in a temporary folder
				value = filepath.Join("FOLDER", filepath.Base(value))
			}
			all += fmt.Sprintf(" -%s=%s", f.Name, value)
		}
	})
	return all
}
