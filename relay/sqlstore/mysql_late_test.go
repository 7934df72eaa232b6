package sqlstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// eachMySQL runs a check on a new table of each MySQL and MariaDB server, with one driver.
func eachMySQL(t *testing.T, check func(*testing.T, mysqlTable)) {
	t.Helper()
	t.Parallel()
	servers := map[string]bool{}
	for _, target := range mysqlTargets() {
		server := target.Name[:len(target.Name)-len("/gosql")]
		if servers[server] || target.Name != server+"/gosql" {
			continue
		}
		servers[server] = true
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			check(t, mysqlTable{open(t, target)})
		})
	}
}

// observer reads all lanes repeatedly, and checks the new rows of each page against the safe ids of earlier
// pages and the page's LateAfter.
type observer struct {
	testing.TB
	store           *sqlstore.Store
	seen            map[int64]bool
	highest, safeID int64
}

func newObserver(t testing.TB, store *sqlstore.Store) *observer {
	return &observer{TB: t, store: store, seen: map[int64]bool{}}
}

func (o *observer) look() storage.Page {
	o.Helper()
	positions := make([]storage.Position, storage.Lanes)
	for lane := range positions {
		positions[lane].Lane = lane
	}
	page, err := o.store.Read(o.Context(), storage.ReadRequest{Positions: positions, Limit: 100_000, MaxBytes: 1 << 30})
	if err != nil {
		o.Fatal(err)
	}
	for _, row := range page.Rows {
		switch id := row.ID; {
		case o.seen[id]:
		case id <= o.safeID:
			o.Errorf("row %d appeared at or below the safe id %d", id, o.safeID)
		case id <= o.highest && (page.LateAfter < 0 || page.LateAfter >= id):
			o.Errorf("row %d appeared below row %d, but the page's LateAfter is %d", id, o.highest, page.LateAfter)
		}
	}
	for _, row := range page.Rows {
		o.seen[row.ID] = true
		o.highest = max(o.highest, row.ID)
	}
	o.safeID = max(o.safeID, page.SafeID)
	return page
}

// lookFor reads until the span has passed. It requires that the safe id stays lower than the argument `below`, unless this is 0.
func (o *observer) lookFor(span time.Duration, below int64) {
	o.Helper()
	for start := time.Now(); time.Since(start) < span; time.Sleep(20 * time.Millisecond) {
		if page := o.look(); below != 0 && page.SafeID >= below {
			o.Fatalf("the safe id is %d, but row %d isn't committed", page.SafeID, below)
		}
	}
}

// lookUntil reads until the safe id has reached the id.
func (o *observer) lookUntil(id int64) {
	o.Helper()
	eventually(o, "the safe id reaches the id of a row below which no transaction is open", func() bool { return o.look().SafeID >= id })
}

func insertOne(t testing.TB, m mysqlTable, key string) int64 {
	t.Helper()
	tx := m.Begin(t)
	id := tx.Insert(outbox.Message{Topic: "t", Key: key})
	tx.Commit()
	return id
}

const settling = 1500 * time.Millisecond // longer than the second during which lists may lack a new transaction

// A transaction stays open while many later ids are assigned. LateAfter rises above the transaction's row,
// so that relays don't scan all later ids. After the commit the row is read.
func TestMySQLRowsOfALongTransactionAreRead(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		o := newObserver(t, m.open(t))
		slow := m.Begin(t)
		late := slow.Insert(outbox.Message{Topic: "late", Key: "A"})
		o.look()
		exec(t, m.DB, "INSERT INTO outbox (id, topic) VALUES (200000, 'as if there had been many')")
		o.lookFor(settling, late)
		eventually(t, "LateAfter rises above the open transaction's row", func() bool {
			insertOne(t, m, "")
			return o.look().LateAfter > late
		})
		slow.Commit()
		third := insertOne(t, m, "A")
		o.look()
		if !o.seen[late] {
			t.Errorf("row %d was committed but not read", late)
		}
		o.lookUntil(third)
	})
}

// A transaction that begins with a read gets its number only when it writes, after its row got an id. The
// safe id stays below this row until the commit.
func TestMySQLRowsOfATransactionThatReadsFirstAreRead(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		o := newObserver(t, m.open(t))
		tx, err := m.DB.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		slow := mysqlProducer{&producer{t, tx, m.dialect}}
		t.Cleanup(func() { _ = tx.Rollback() })
		var count int
		if err := tx.QueryRow("SELECT COUNT(*) FROM outbox").Scan(&count); err != nil {
			t.Fatal(err)
		}
		o.lookUntil(insertOne(t, m, ""))
		late := slow.Insert(outbox.Message{Topic: "late"})
		insertOne(t, m, "")
		o.lookFor(settling, late)
		slow.Commit()
		o.lookUntil(insertOne(t, m, ""))
	})
}

// A transaction that holds locks for long, but writes no messages, doesn't stop the safe id. When it then
// writes a message, the safe id stays below that row.
func TestMySQLLocksWithoutWritesDoNotStopTheSafeID(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		exec(t, m.DB, "CREATE TABLE jobs (id INT PRIMARY KEY)")
		exec(t, m.DB, "INSERT INTO jobs VALUES (1)")
		tx, err := m.DB.BeginTx(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		if _, err := tx.Exec("SELECT id FROM jobs FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		o := newObserver(t, m.open(t))
		o.lookUntil(insertOne(t, m, ""))
		slow := mysqlProducer{&producer{t, tx, m.dialect}}
		late := slow.Insert(outbox.Message{Topic: "late"}) // the transaction's number is an old one
		insertOne(t, m, "")
		o.lookFor(settling, late)
		slow.Commit()
		o.lookUntil(insertOne(t, m, ""))
	})
}

// Another client reads the list of transactions constantly, so that the server doesn't renew it. The store
// draws no conclusion from such a list, and a check reports it.
func TestMySQLStaleTransactionListIsIgnored(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		o := newObserver(t, m.open(t))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				_, err := m.DB.ExecContext(ctx, "SELECT COUNT(*) FROM information_schema.innodb_trx")
				if err != nil && ctx.Err() == nil && !m.dialect.Busy(err) { // Busy: another test runs a statement that the list can't show
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
		o.lookFor(settling, 0)
		slow := m.Begin(t)
		late := slow.Insert(outbox.Message{Topic: "late"})
		insertOne(t, m, "")
		o.lookFor(settling, late)
		slow.Commit()
		// On a busy machine the other client may pause for so long that a list is renewed.
		eventually(t, "a check finds that the list is unusable", func() bool {
			found := finding(o.store.Check(t.Context(), storage.ByLanes), "transaction list")
			return found.Name != "" && !found.OK && strings.Contains(found.Hint, "monitor")
		})
		stop()
		<-ended
		o.lookUntil(insertOne(t, m, ""))
	})
}

// A prepared XA transaction counts as open, even after its session has ended.
func TestMySQLPreparedTransactionIsOpen(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		name := "'" + rand.Text() + "'"
		session, err := m.DB.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{"XA START " + name, "INSERT INTO outbox (topic) VALUES ('late')", "XA END " + name, "XA PREPARE " + name} {
			if _, err := session.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _, _ = m.DB.Exec("XA ROLLBACK " + name) })
		_ = session.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection
		o := newObserver(t, m.open(t))
		late := insertOne(t, m, "") - 1
		o.lookFor(settling, late)
		commitXA(t, m, name)
		o.look()
		if !o.seen[late] {
			t.Errorf("row %d was committed but not read", late)
		}
		o.lookUntil(insertOne(t, m, ""))
	})
}

// commitXA commits the transaction once the server has noticed that its session has ended.
func commitXA(t testing.TB, m mysqlTable, name string) {
	t.Helper()
	eventually(t, "the prepared transaction can be committed", func() bool {
		_, err := m.DB.ExecContext(t.Context(), "XA COMMIT "+name)
		return err == nil
	})
}

// A relay that starts on an emptied table knows the ids that were assigned, so its safe id reaches the
// last one.
func TestMySQLSafeIDRisesOnAnEmptiedTable(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		insertOne(t, m, "")
		last := insertOne(t, m, "")
		exec(t, m.DB, "DELETE FROM outbox")
		newObserver(t, m.open(t)).lookUntil(last)
	})
}

// The list of transactions includes their statements, as texts whose characters have at most three bytes.
// MySQL 9 can't return the list while a statement runs that contains four-byte characters or bytes that are
// no text. Reads succeed nevertheless, and the safe id stays below the transaction's row.
func TestMySQLReadsWhileTheTransactionListFails(t *testing.T) {
	payloads := map[string]string{"bytes": "payload = _binary'\x80\x81\xfe\xff'", "emoji": "payload_text = '😀'"}
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		for name, payload := range payloads {
			t.Run(name, func(t *testing.T) { m.bearsStatementWith(t, payload) })
		}
	})
}

// bearsStatementWith reads pages while a statement with the payload runs. The statement acquires the
// lock `begun`, and then waits for the lock `held`, which another session of the test has.
func (m mysqlTable) bearsStatementWith(t *testing.T, payload string) {
	begun, held := rand.Text(), rand.Text() // random names, because all tests on a server share its locks
	holder, writer := m.session(t), m.session(t)
	holder.number("SELECT GET_LOCK('" + held + "', 0)")
	writer.exec("START TRANSACTION")
	writer.exec("INSERT INTO outbox (topic) VALUES ('orders')")
	late := writer.number("SELECT LAST_INSERT_ID()")
	ended := make(chan error, 1)
	go func() {
		_, err := writer.ExecContext(t.Context(), "UPDATE outbox SET "+payload+" WHERE GET_LOCK('"+begun+"', 0) = 1 AND GET_LOCK('"+held+"', 86400) = 1")
		ended <- err
	}()
	for holder.number("SELECT COALESCE(IS_USED_LOCK('"+begun+"'), 0)") != writer.id {
		select {
		case err := <-ended:
			t.Fatalf("the statement ended before pages were read: %v", err)
		default:
		}
	}
	o := newObserver(t, m.open(t))
	o.lookFor(settling, late)
	for _, found := range m.open(t).Check(t.Context(), storage.ByLanes) {
		if !found.OK && found.Name != "transaction list" {
			t.Errorf("check: %s", found)
		}
	}
	holder.number("SELECT RELEASE_LOCK('" + held + "')")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	writer.exec("ROLLBACK")
	o.lookUntil(insertOne(t, m, ""))
}

// mysqlSession is one connection, with the id that the server gave it.
type mysqlSession struct {
	testing.TB
	*sql.Conn
	id int64
}

func (m mysqlTable) session(t testing.TB) mysqlSession {
	t.Helper()
	conn, err := m.OpenAnother(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := mysqlSession{TB: t, Conn: conn}
	s.id = s.number("SELECT CONNECTION_ID()")
	return s
}

func (s mysqlSession) number(query string) (n int64) {
	s.Helper()
	if err := s.QueryRowContext(s.Context(), query).Scan(&n); err != nil {
		s.Fatal(err)
	}
	return n
}

func (s mysqlSession) exec(statement string) {
	s.Helper()
	if _, err := s.ExecContext(s.Context(), statement); err != nil {
		s.Fatal(err)
	}
}

// The server ends a scan at its time limit. Without the limit it would continue the scan after the client has left.
func TestMySQLServerEndsALongScan(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		exec(t, m.DB, "INSERT INTO outbox (topic) VALUES ('down')")
		b := m.table.open(t).BackendOn(m.DB)
		scan := func(positions []storage.Position, limit time.Duration) error {
			query := b.Candidates(positions, []string{"down"}, 2000)
			query.SQL = b.Capabilities().WithTimeLimit(query.SQL, limit)
			return backend.ReadCandidates(t.Context(), m.DB, query, func(storage.Candidate) (bool, error) { return true, nil })
		}
		other, err := m.DB.Conn(t.Context())
		must(t, err)
		defer func() { _ = other.Close() }()
		_, err = other.ExecContext(t.Context(), "LOCK TABLES outbox WRITE") // the scan waits for this lock
		must(t, err)
		if err := scan(everyLaneAfter(0), time.Millisecond); err == nil || !regexp.MustCompile("3024|1969").MatchString(err.Error()) {
			t.Errorf("a scan that takes too long ended with %v", err)
		}
		_, err = other.ExecContext(t.Context(), "UNLOCK TABLES")
		must(t, err)
		if err := scan(everyLaneAfter(0), 10*time.Minute); err != nil {
			t.Errorf("a scan within its time limit ended with %v", err)
		}
		keys := []storage.Position{{Lane: 1, Until: 9, Key: "a"}, {Lane: 1, Until: 9, Key: "b"}} // scanned by two selects
		if err := scan(keys, 10*time.Minute); err != nil {
			t.Errorf("a scan of keys ended with %v", err)
		}
	})
}
