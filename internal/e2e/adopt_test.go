package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

// Tables of other systems are adopted, and given back, while their writers work. Relays and the
// command itself are killed meanwhile. Each row is relayed once, or is left to the old system.
func TestAdoptedTablesOfOtherSystems(t *testing.T) {
	t.Parallel()
	for _, system := range schemas() {
		for _, target := range append([]string{"postgres15/pgx"}, anyOf(system.targets)...) {
			for _, way := range anyOf(system.ways(target)) {
				name := fmt.Sprint(system.name, "/", target, "/", way)
				if system.deletes {
					name += "/deleting"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					newAdopted(t, target, system, way).liveThrough()
				})
			}
		}
	}
}

// anyOf returns one of the targets, and all of them with -everywhere or -long.
func anyOf(targets []string) []string {
	if *everywhere || *long {
		return targets
	}
	return targets[rand.IntN(len(targets)):][:1]
}

// file returns the name of the file with the schema's SQL. MariaDB uses MySQL's file if it has no other.
func (s schema) file(kind string) string {
	name := filepath.Join("../adopt/testdata/schemas", s.name, kind+".sql")
	if _, err := os.Stat(name); err != nil && kind == testdb.MariaDB {
		return s.file(testdb.MySQL)
	}
	return name
}

func (s schema) ways(target string) []string {
	if s.noView || !strings.HasPrefix(target, "postgres") {
		return []string{"trigger"}
	}
	return []string{"trigger", "view"}
}

// adopted is a database with a table of another system, its writers, and relays.
type adopted struct {
	*scene
	schema
	way     string
	outbox  string // rowrelay's table
	owner   string // the URL for the owner of both tables, who runs adopt and the relays
	writers [4]*writer
}

const customersPerWriter = 5

// newAdopted returns a new database of the target.
func newAdopted(t *testing.T, target string, system schema, way string) *adopted {
	t.Helper()
	for _, candidate := range testdb.Targets() {
		if candidate.Name == target {
			return createAdopted(t, candidate.Open(t), system, way)
		}
	}
	t.Fatalf("there is no target %s", target)
	return nil
}

// createAdopted creates the tables and the users in an empty database.
func createAdopted(t *testing.T, db testdb.Database, system schema, way string) *adopted {
	t.Helper()
	a := &adopted{scene: &scene{Database: db, t: t}, schema: system, way: way, outbox: "outbox", owner: db.URL}
	if strings.HasPrefix(system.table, "outbox") { // the name is taken
		a.outbox = "rowrelay_outbox"
	}
	a.createOwner()
	text, err := os.ReadFile(system.file(db.Kind))
	check(t, err)
	owner := a.open(a.owner)
	for statement := range strings.SplitSeq(string(text), ";\n") {
		if strings.TrimSpace(statement) != "" {
			a.do(owner, statement)
		}
	}
	a.must("migrate", "up", "--database", a.owner, "--table", a.outbox)
	d, err := dialect.ByName(db.Kind)
	check(t, err)
	a.store, err = sqlstore.Open(t.Context(), db.DB, d, sqlstore.Options{Table: a.outbox})
	check(t, err)
	url := a.createWriter(owner)
	for i := range a.writers {
		w := &writer{application: application{kind: db.Kind, clock: time.Date(2026, 10, 1+i, 0, 0, 0, 0, time.UTC), last: map[int]int{}}, number: i, adopted: a}
		w.db = a.open(url)
		if i%2 == 1 && db.Kind != testdb.SQLite {
			w.db = a.openPrepared(url)
		}
		w.db.SetMaxOpenConns(1)
		a.writers[i] = w
	}
	return a
}

func (a *adopted) do(db *sql.DB, statement string) {
	a.t.Helper()
	if _, err := db.ExecContext(a.t.Context(), statement); err != nil {
		a.t.Fatalf("%s: %v", statement, err)
	}
}

// open opens a pool for a URL.
func (a *adopted) open(address string) *sql.DB { return a.openWith(address, true) }

// openPrepared opens a pool whose statements are prepared on the server also by MySQL's driver.
func (a *adopted) openPrepared(address string) *sql.DB { return a.openWith(address, false) }

func (a *adopted) openWith(address string, interpolated bool) *sql.DB {
	a.t.Helper()
	dsn := a.DSN
	switch a.Kind {
	case testdb.Postgres:
		dsn = address
	case testdb.MySQL, testdb.MariaDB:
		config, err := mysql.ParseDSN(a.DSN)
		check(a.t, err)
		parsed, err := url.Parse(address)
		check(a.t, err)
		config.User, config.InterpolateParams = parsed.User.Username(), interpolated
		config.Passwd, _ = parsed.User.Password()
		dsn = config.FormatDSN()
	}
	db, err := sql.Open(a.Driver, dsn)
	check(a.t, err)
	a.t.Cleanup(func() { _ = db.Close() })
	return db
}

// createUser creates a user, and returns its name and the database's URL for it.
func (a *adopted) createUser(kind string) (name, address string) {
	a.t.Helper()
	name = "rowrelay_" + kind + "_" + strings.ToLower(newUUID()[24:])
	create, drop := "CREATE ROLE "+name+" LOGIN PASSWORD '"+secret+"'", "DROP OWNED BY "+name+" CASCADE; DROP ROLE "+name
	if a.Kind != testdb.Postgres {
		create, drop = "CREATE USER "+name+" IDENTIFIED BY '"+secret+"'", "DROP USER "+name
	}
	a.do(a.DB, create)
	a.t.Cleanup(func() {
		for statement := range strings.SplitSeq(drop, "; ") {
			a.cleanUp(statement)
		}
	})
	parsed, err := url.Parse(a.URL)
	check(a.t, err)
	parsed.User = url.UserPassword(name, secret)
	return name, parsed.String()
}

// cleanUp executes a statement, and repeats it after a deadlock with the session of a process that was killed.
func (a *adopted) cleanUp(statement string) {
	d, err := dialect.ByName(a.Kind)
	check(a.t, err)
	for {
		_, err := a.DB.ExecContext(context.Background(), statement)
		if err == nil {
			return
		}
		if !d.Busy(err) {
			a.t.Errorf("%s: %v", statement, err)
			return
		}
	}
}

// database returns the database's name.
func (a *adopted) database() string {
	parsed, err := url.Parse(a.URL)
	check(a.t, err)
	return strings.TrimPrefix(parsed.Path, "/")
}

// createOwner creates the user who owns all tables and is no administrator of the server.
func (a *adopted) createOwner() {
	if a.Kind == testdb.SQLite {
		return
	}
	name, address := a.createUser("owner")
	a.owner = address
	if a.Kind == testdb.Postgres {
		a.do(a.DB, "ALTER DATABASE "+a.database()+" OWNER TO "+name)
		a.do(a.DB, "ALTER SCHEMA public OWNER TO "+name)
		a.t.Cleanup(func() { // gives the database back to the administrator, so that the user can be dropped
			a.cleanUp("REASSIGN OWNED BY " + name + " TO CURRENT_USER")
		})
		return
	}
	a.do(a.DB, "GRANT ALL ON "+a.database()+".* TO "+name)
	a.do(a.DB, "GRANT PROCESS ON *.* TO "+name)
	if a.Kind == testdb.MySQL { // the owner needs this to create a trigger while the server writes a binary log
		a.do(a.DB, "GRANT SUPER ON *.* TO "+name)
	}
}

// createWriter creates the writers' user, who has rights on the system's tables only.
func (a *adopted) createWriter(owner *sql.DB) (address string) {
	if a.Kind == testdb.SQLite {
		return a.URL
	}
	name, address := a.createUser("writer")
	if a.Kind != testdb.Postgres {
		for _, table := range append(a.also, a.on(a.Kind)) {
			a.do(a.DB, fmt.Sprintf("GRANT %s ON %s.`%s` TO %s", a.rights, a.database(), table, name))
		}
		if a.sequence != "" && a.Kind == testdb.MariaDB {
			a.do(a.DB, fmt.Sprintf("GRANT SELECT, INSERT ON %s.`%s` TO %s", a.database(), a.sequence, name))
		}
		return address
	}
	for _, table := range append(a.also, a.on(a.Kind)) {
		schema, table, found := strings.Cut(table, ".")
		if !found {
			schema, table = "public", schema
		} else {
			a.do(owner, "GRANT USAGE ON SCHEMA "+schema+" TO "+name)
		}
		a.do(owner, fmt.Sprintf(`GRANT %s ON "%s"."%s" TO %s`, a.rights, schema, table, name))
	}
	if a.sequence != "" {
		a.do(owner, fmt.Sprintf(`GRANT USAGE ON SEQUENCE "%s" TO %s`, a.sequence, name))
	}
	return address
}

// must runs the command to its end.
func (a *adopted) must(arguments ...string) string {
	a.t.Helper()
	p := a.start(strings.Join(arguments[:2], " "), arguments...)
	<-p.exited
	if p.err != nil {
		a.t.Fatalf("rowrelay %s: %v\n%s", strings.Join(arguments, " "), p.err, p.log)
	}
	return p.log.String()
}

// adopt returns the arguments of the command with the system's mapping.
func (a *adopted) adopt(more ...string) []string {
	arguments := append([]string{"adopt", "--database", a.owner, "--table", a.outbox, "--from", a.on(a.Kind), "--yes"}, a.flags()...)
	return append(arguments, more...)
}

func (a *adopted) flags() []string {
	if a.mapping == nil {
		return nil
	}
	return a.mapping(a.Kind).arguments()
}

// adopting returns the arguments that adopt the table.
func (a *adopted) adopting() []string {
	if a.way == "view" {
		return a.adopt("--view")
	}
	return a.adopt()
}

// writer is one of the system's processes.
type writer struct {
	application
	*adopted
	number int
	db     *sql.DB

	mu         sync.Mutex
	committed  []message
	committing []message       // the messages of a COMMIT that hasn't been answered
	took       []time.Duration // the duration of each transaction
	done       atomic.Int64    // the number of transactions
}

// transaction writes some rows, of which a fifth is rolled back.
func (w *writer) transaction(ctx context.Context) error {
	err := w.tryTransaction(ctx)
	for w.repeats && err != nil && strings.Contains(err.Error(), "Error 1213") {
		err = w.tryTransaction(ctx)
	}
	return err
}

func (w *writer) tryTransaction(ctx context.Context) error {
	next := map[int]int{}
	var orders []order
	for range 1 + rand.IntN(3) {
		customer := w.number*customersPerWriter + rand.IntN(customersPerWriter)
		if next[customer] == 0 {
			next[customer] = w.last[customer]
		} else if w.distinct {
			continue
		}
		next[customer]++
		orders = append(orders, order{customer, next[customer]})
	}
	commit, began := rand.IntN(5) > 0, time.Now()
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	writing := &writing{application: &w.application, ctx: ctx, tx: tx}
	messages := w.schema.write(writing, orders)
	if writing.err != nil || !commit {
		return writing.err
	}
	w.mu.Lock()
	w.committing = messages
	w.mu.Unlock()
	err = tx.Commit()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.committing = nil
	if err != nil {
		return err
	}
	for customer, number := range next {
		w.last[customer] = number
	}
	w.committed, w.took = append(w.committed, messages...), append(w.took, time.Since(began))
	return nil
}

// work lets all writers write until the returned function is called.
func (a *adopted) work() (stop func()) {
	stopped, working := make(chan struct{}), sync.WaitGroup{}
	for _, w := range a.writers {
		working.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for isOpen(stopped) {
				if err := w.transaction(a.t.Context()); err != nil {
					a.t.Errorf("writer %d: %v", w.number, err)
					return
				}
				w.done.Add(1)
				<-pace.C
			}
		})
	}
	return sync.OnceFunc(func() { close(stopped); working.Wait() })
}

// soFar returns what the writers have committed, and how long their transactions took since the last call.
func (a *adopted) soFar() (committed []message, took []time.Duration) {
	for _, w := range a.writers {
		w.mu.Lock()
		committed, took = append(committed, w.committed...), append(took, w.took...)
		w.took = nil
		w.mu.Unlock()
	}
	return committed, took
}

// maybeSoFar returns what the writers may have committed. This includes the messages of a COMMIT without an answer.
func (a *adopted) maybeSoFar() (committed []message) {
	for _, w := range a.writers {
		w.mu.Lock()
		committed = slices.Concat(committed, w.committed, w.committing)
		w.mu.Unlock()
	}
	return committed
}

// writersDo waits until each writer has ended this many more transactions.
func (a *adopted) writersDo(count int) {
	a.t.Helper()
	for _, w := range a.writers {
		until := w.done.Load() + int64(count)
		eventually(a.t, "the writers write", func() bool { return w.done.Load() >= until || a.t.Failed() })
	}
	if a.t.Failed() {
		a.t.FailNow()
	}
}

// insists starts the command, kills it after 20 ms, and repeats this with twice the time until the command ends without a kill. It
// calls `between` after each kill. After a kill the command may also fail with the text `done`, unless `done` is empty.
func (a *adopted) insists(arguments []string, done string, between func()) (kills int) {
	a.t.Helper()
	for after := 20 * time.Millisecond; ; after *= 2 {
		p := a.start(fmt.Sprint(arguments[0], " ", kills), arguments...)
		select {
		case <-p.exited:
			if p.err != nil && (kills == 0 || done == "" || !strings.Contains(p.log.String(), done)) {
				a.t.Fatalf("rowrelay %s: %v\n%s", strings.Join(arguments, " "), p.err, p.log)
			}
			return kills
		case <-time.After(after):
			p.kill()
			kills++
			between()
		}
	}
}

// liveThrough adopts the table and gives it back while the writers work, and checks what has become of each row.
func (a *adopted) liveThrough() {
	t := a.t
	before := a.dump()
	for _, w := range a.writers { // the backlog
		for range 20 {
			check(t, w.transaction(t.Context()))
		}
	}
	sent := a.sendSome()
	e, relays := newOrderEndpoint(t), &pairOfRelays{}
	relays.start(a, e)
	stop := a.work()
	defer stop()
	each := lasting(15, 300) // transactions of each writer between two steps

	a.writersDo(each)
	_, plain := a.soFar()
	adoptKills := a.insists(a.adopting(), "", relays.killOne)
	adoptedAt := a.maybeSoFar()
	relays.killOne()
	a.writersDo(each)
	_, forwarded := a.soFar()
	status := a.must(a.adopt("--status")...)
	undoing, _ := a.soFar()
	undoKills := a.insists(a.adopt("--undo"), "is not adopted, so there is nothing to undo", func() {})
	undone := a.maybeSoFar()
	a.writersDo(each / 2)
	stop()
	if t.Failed() {
		return
	}
	if now := a.dump(); now != before {
		t.Errorf("the schema isn't as before:\n%s", difference(before, now))
	}
	all, _ := a.soFar()
	a.settled()
	t.Logf("%d rows, of which the other system sent %d; adopt was killed %d times, --undo %d times; transactions took %v before and %v after (p50, p99)\n%s",
		len(all), len(sent), adoptKills, undoKills, latencies(plain), latencies(forwarded), status)
	relayed := a.judgeOutbox(all)
	a.judgeArrivals(e, relayed, slices.Concat(relays.kills, a.lostLeases()))
	a.judgeRest(phases{setOf(sent), setOf(adoptedAt), setOf(undoing), setOf(undone)}, all, relayed)
}

// newOrderEndpoint returns an endpoint that finds the order in a payload of any format.
func newOrderEndpoint(t *testing.T) *endpoint {
	e := newEndpoint(t)
	e.read = func(body []byte, into *arrival) error {
		o, ok := orderOf(string(body))
		if !ok {
			return fmt.Errorf("%q is not the payload of an order", body)
		}
		into.customer, into.number = o.customer, o.number
		return nil
	}
	return e
}

// pairOfRelays has two relays, of which one is killed and restarted at most twice.
type pairOfRelays struct {
	scene   *adopted
	sink    string
	relays  [2]*process
	started int
	kills   []*kill
}

func (p *pairOfRelays) start(a *adopted, e *endpoint) {
	p.scene, p.sink = a, e.URL
	p.startOne(0)
	p.startOne(1)
}

func (p *pairOfRelays) startOne(i int) {
	p.started++
	path := fmt.Sprint("/relay-", p.started)
	p.relays[i] = p.scene.start(path, "run", "--database", p.scene.owner, "--table", p.scene.outbox, "--sink", p.sink+path,
		"--lease", "2s", "--batch", fmt.Sprint(killedBatch), "--workers", "2")
}

func (p *pairOfRelays) killOne() {
	if len(p.kills) == 2 {
		return
	}
	i := rand.IntN(2)
	p.kills = append(p.kills, &kill{from: p.relays[i].name, at: time.Now()})
	p.relays[i].kill()
	p.startOne(i)
}

// phases has the orders that were committed before each step of a scene. The sets adopted and undone also have the orders of a COMMIT
// that was not answered yet, because such an order may count as committed later.
type phases struct{ sent, adopted, undoing, undone map[order]bool }

func setOf(messages []message) map[order]bool {
	set := map[order]bool{}
	for _, m := range messages {
		set[m.order] = true
	}
	return set
}

// judgeRest checks that each row was either forwarded or is left to the other system.
func (a *adopted) judgeRest(at phases, all []message, relayed map[order]message) {
	a.t.Helper()
	waits, marked := a.waits()
	wrong := faults{}
	defer wrong.report(a.t)
	for _, m := range all {
		_, forwarded := relayed[m.order]
		waiting := waits[m.order]
		phase, right := "", true
		switch {
		case at.sent[m.order]:
			phase, right = "sent by the other system", !forwarded && !(waiting && marked)
		case a.onlyNew && at.adopted[m.order]: // sent by the other system, which works until adopt has ended
		case at.undoing[m.order]:
			phase, right = "written before --undo", forwarded && !(waiting && marked)
		case at.undone[m.order]:
			phase, right = "written while --undo ran", !marked || forwarded != waiting
		default:
			phase, right = "written after --undo", !forwarded && (waiting || !marked)
		}
		if !right {
			wrong.add(phase+"; forwarded: %t, waiting: %t: %v", forwarded, waiting, m.order)
		}
	}
}

// waits returns the orders of the rows that the other system would send, and whether the table shows it.
func (a *adopted) waits() (waits map[order]bool, marked bool) {
	m := a.schema.waiting
	if m == "" || m == "true" && a.way == "trigger" && (a.Kind == testdb.MySQL || a.Kind == testdb.MariaDB) { // triggers can't delete rows
		return nil, false
	}
	table := `"` + strings.ReplaceAll(a.on(a.Kind), ".", `"."`) + `"`
	if a.Kind == testdb.MySQL || a.Kind == testdb.MariaDB {
		table, m = "`"+a.on(a.Kind)+"`", strings.ReplaceAll(m, `"`, "")
	}
	waits = map[order]bool{}
	for line := range strings.Lines(a.list("SELECT * FROM " + table + " WHERE " + m)) {
		if o, ok := orderOf(line); ok {
			waits[o] = true
		}
	}
	return waits, true
}

// faults has the problems that a check has found, by the formats of their messages.
type faults map[string][]string

func (f faults) add(format string, values ...any) {
	f[format] = append(f[format], fmt.Sprintf(format, values...))
}

// report reports the number and the first three faults of each kind.
func (f faults) report(t testing.TB) {
	t.Helper()
	for _, list := range f {
		t.Errorf("%d times, such as:\n%s", len(list), strings.Join(list[:min(3, len(list))], "\n"))
	}
}

// sendSome lets the system's own relay send a part of the backlog: the oldest rows of each customer.
func (a *adopted) sendSome() (sent []message) {
	all, _ := a.soFar()
	if a.publish == nil {
		return nil
	}
	for _, m := range all {
		if m.number <= 5 {
			sent = append(sent, m)
		}
	}
	tx, err := a.open(a.owner).BeginTx(a.t.Context(), nil)
	check(a.t, err)
	w := &writing{application: &application{kind: a.Kind, clock: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)}, ctx: a.t.Context(), tx: tx}
	a.publish(w, sent)
	check(a.t, w.err)
	check(a.t, tx.Commit())
	return sent
}

// judgeOutbox checks all messages of the outbox: each belongs to a committed row, each row has at most one, and the messages of a key
// are in the order of the commits. It returns the messages by their orders.
func (a *adopted) judgeOutbox(committed []message) map[order]message {
	a.t.Helper()
	want := map[order]message{}
	for _, m := range committed {
		want[m.order] = m
	}
	rows, err := a.DB.QueryContext(a.t.Context(), "SELECT state, message_id, topic, message_key, payload, payload_text, headers FROM "+a.outbox+"_messages ORDER BY id")
	check(a.t, err)
	defer rows.Close()
	relayed, last, wrong := map[order]message{}, map[int]int{}, faults{}
	defer wrong.report(a.t)
	for rows.Next() {
		var state string
		var id, topic, key, text, headers sql.NullString
		var payload []byte
		check(a.t, rows.Scan(&state, &id, &topic, &key, &payload, &text, &headers))
		got := message{id: id.String, topic: topic.String, key: key.String, payload: string(payload) + text.String}
		o, ok := orderOf(got.payload)
		if !ok {
			wrong.add("the payload %q is not that of an order", got.payload)
			continue
		}
		m, ok := want[o]
		_, again := relayed[o]
		switch {
		case !ok:
			wrong.add("%v was forwarded, but not committed", o)
		case again:
			wrong.add("%v was forwarded twice", o)
		case o.number <= last[o.customer]:
			wrong.add("%v was forwarded after %d", o, last[o.customer])
		case state != "done":
			wrong.add("%v is %s", o, state)
		case got.topic != m.topic || got.key != m.key || m.id != "" && !strings.EqualFold(got.id, m.id) || !sameText(got.payload, m.payload) || !sameHeaders(headers.String, m.headers):
			wrong.add("%v was forwarded as %+v with headers %s, want %+v", o, got, headers.String, m)
		}
		got.order = o
		relayed[o], last[o.customer] = got, o.number
	}
	check(a.t, rows.Err())
	return relayed
}

// sameText compares payloads. The databases format JSON anew.
func sameText(got, want string) bool {
	var g, w any
	if json.Unmarshal([]byte(got), &g) == nil && json.Unmarshal([]byte(want), &w) == nil {
		return reflect.DeepEqual(g, w)
	}
	return got == want
}

func sameHeaders(got string, want map[string]string) bool {
	headers := map[string]string{}
	if got != "" && json.Unmarshal([]byte(got), &headers) != nil {
		return false
	}
	return len(headers) == 0 && len(want) == 0 || reflect.DeepEqual(headers, want)
}

// judgeArrivals checks that the endpoint has got the messages of the outbox, in the order of each key.
func (a *adopted) judgeArrivals(e *endpoint, relayed map[order]message, kills []*kill) {
	a.t.Helper()
	arrivals := e.received()
	v := judge(a.t, arrivals)
	if v.distinct != len(relayed) {
		a.t.Errorf("%d messages of %d arrived", v.distinct, len(relayed))
	}
	judgeDuplicates(a.t, v.duplicates, kills)
}

// catalog returns what PostgreSQL's catalog has about the tables, views, triggers and functions, and the rights on them.
func (a *adopted) catalog() string {
	a.t.Helper()
	const schemas = "NOT IN ('pg_catalog', 'information_schema', 'pg_toast')"
	return a.list("SELECT c.oid::regclass::text, c.relkind::text, c.relacl::text, pg_get_viewdef(c.oid) FROM pg_class c WHERE relnamespace::regnamespace::text "+schemas+" ORDER BY 1") +
		a.list("SELECT attrelid::regclass::text, attname::text, format_type(atttypid, atttypmod), attnotnull::text FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE attnum > 0 AND relnamespace::regnamespace::text "+schemas+" ORDER BY 1, attnum") +
		a.list("SELECT conrelid::regclass::text, conname::text, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace::regnamespace::text "+schemas+" ORDER BY 1, 2") +
		a.list("SELECT tgrelid::regclass::text, tgenabled::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 3") +
		a.list("SELECT oid::regprocedure::text, proacl::text, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace::regnamespace::text "+schemas+" ORDER BY 1")
}

// dump returns the definitions of all tables and other objects, and the rights on them.
func (a *adopted) dump() string {
	a.t.Helper()
	switch a.Kind {
	case testdb.Postgres:
		program := filepath.Join(filepath.Dir(wordsOf(a.t, "postgres15")[0]), "pg_dump")
		if _, err := os.Stat(program); err != nil { // the server was installed without the pg_dump of its version
			return a.catalog()
		}
		out, err := exec.Command(program, "--schema-only", a.URL).Output()
		check(a.t, err)
		return regexp.MustCompile(`(?m)^\\(un)?restrict .*$`).ReplaceAllString(string(out), "") // a new random word each time
	case testdb.SQLite:
		return a.list("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
	}
	text := a.list("SHOW TRIGGERS") + a.list("SELECT routine_name, routine_definition FROM information_schema.routines WHERE routine_schema = database() ORDER BY 1") +
		a.list("SELECT table_name, view_definition FROM information_schema.views WHERE table_schema = database() ORDER BY 1") +
		a.list("SELECT grantee, table_name, privilege_type FROM information_schema.table_privileges WHERE table_schema = database() ORDER BY 1, 2, 3")
	for table := range strings.Lines(a.list("SELECT table_name FROM information_schema.tables WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY 1")) {
		text += a.list("SHOW CREATE TABLE `" + strings.TrimSpace(table) + "`")
	}
	return regexp.MustCompile(` AUTO_INCREMENT=\d+`).ReplaceAllString(text, "")
}

// list returns the rows of a query as text, a line for each.
func (a *adopted) list(query string) string {
	a.t.Helper()
	rows, err := a.DB.QueryContext(a.t.Context(), query)
	check(a.t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	check(a.t, err)
	var b strings.Builder
	for rows.Next() {
		texts, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range texts {
			into[i] = &texts[i]
		}
		check(a.t, rows.Scan(into...))
		for i, text := range texts {
			if i > 0 {
				b.WriteString(" | ")
			}
			b.WriteString(text.String)
		}
		b.WriteString("\n")
	}
	check(a.t, rows.Err())
	return b.String()
}

// difference returns the lines that only one of two texts has.
func difference(before, after string) string {
	var b strings.Builder
	for _, side := range []struct{ sign, of, other string }{{"- ", before, after}, {"+ ", after, before}} {
		for line := range strings.Lines(side.of) {
			if !strings.Contains(side.other, line) {
				b.WriteString(side.sign + line)
			}
		}
	}
	return b.String()
}

// latencies returns the p50 and the p99 as text.
func latencies(took []time.Duration) string {
	slices.Sort(took)
	return fmt.Sprintf("%v %v", took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond))
}
