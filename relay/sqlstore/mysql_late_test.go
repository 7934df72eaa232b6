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

// eachMySQL runs a check on a table of its own, on every server but only by one
// driver.
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

// observer reads everything again and again, and holds each page against what
// earlier ones promised.
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
			o.Errorf("row %d appeared below %d, and the page says late after %d", id, o.highest, page.LateAfter)
		}
	}
	for _, row := range page.Rows {
		o.seen[row.ID] = true
		o.highest = max(o.highest, row.ID)
	}
	o.safeID = max(o.safeID, page.SafeID)
	return page
}

// lookFor looks for some time; the safe id stays below the id.
func (o *observer) lookFor(span time.Duration, below int64) {
	o.Helper()
	for start := time.Now(); time.Since(start) < span; time.Sleep(20 * time.Millisecond) {
		if page := o.look(); below != 0 && page.SafeID >= below {
			o.Fatalf("the safe id is %d, and row %d is still to appear", page.SafeID, below)
		}
	}
}

// lookUntil looks until the safe id has reached the id.
func (o *observer) lookUntil(id int64) {
	o.Helper()
	eventually(o, "the safe id reaches that of a row below which nothing is open", func() bool { return o.look().SafeID >= id })
}

func insertOne(t testing.TB, m mysqlTable, key string) int64 {
	t.Helper()
	tx := m.Begin(t)
	id := tx.Insert(outbox.Message{Topic: "t", Key: key})
	tx.Commit()
	return id
}

const settling = 1500 * time.Millisecond // more than the grace

// A transaction stays open while many messages pass it. No page looks through
// all of them again, and none is lost.
func TestMySQLLongWriter(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		o := newObserver(t, m.open(t))
		slow := m.Begin(t)
		late := slow.Insert(outbox.Message{Topic: "late", Key: "A"})
		o.look()
		exec(t, m.DB, "INSERT INTO outbox (id, topic) VALUES (200000, 'as if there had been many')")
		o.lookFor(settling, late)
		eventually(t, "a page looks not through all that was written since the transaction began", func() bool {
			insertOne(t, m, "")
			return o.look().LateAfter > late
		})
		slow.Commit()
		third := insertOne(t, m, "A")
		o.look()
		if !o.seen[late] {
			t.Errorf("row %d was committed, and isn't read", late)
		}
		o.lookUntil(third)
	})
}

// What has begun by reading has a number only once it writes, which is after it
// has taken its id.
func TestMySQLReaderBecomesWriter(t *testing.T) {
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

// Programs that hold locks for long, and write nothing, hold nothing up.
func TestMySQLLocksHoldNothingUp(t *testing.T) {
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
		late := slow.Insert(outbox.Message{Topic: "late"}) // its number is an old one
		insertOne(t, m, "")
		o.lookFor(settling, late)
		slow.Commit()
		o.lookUntil(insertOne(t, m, ""))
	})
}

// Someone reads the list of transactions all the time, so that it stays an old
// one: nothing is concluded from it.
func TestMySQLMonitored(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		o := newObserver(t, m.open(t))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				_, err := m.DB.ExecContext(ctx, "SELECT COUNT(*) FROM information_schema.innodb_trx")
				if err != nil && ctx.Err() == nil && !m.dialect.Busy(err) { // while another test is in a statement that the list can't show
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
		// On a machine that is busy the monitor may rest for long enough that a list tells something.
		eventually(t, "a check finds that the list stays an old one", func() bool {
			found := finding(o.store.Check(t.Context(), storage.ByLanes), "open transactions")
			return found.Name != "" && !found.OK && strings.Contains(found.Hint, "monitor")
		})
		stop()
		<-ended
		o.lookUntil(insertOne(t, m, ""))
	})
}

// A transaction that is prepared, and whose session has gone, is open.
func TestMySQLPrepared(t *testing.T) {
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
		_ = session.Raw(func(any) error { return driver.ErrBadConn }) // is closed
		o := newObserver(t, m.open(t))
		late := insertOne(t, m, "") - 1
		o.lookFor(settling, late)
		commitXA(t, m, name)
		o.look()
		if !o.seen[late] {
			t.Errorf("row %d was committed, and isn't read", late)
		}
		o.lookUntil(insertOne(t, m, ""))
	})
}

// commitXA waits for the server to notice that the session has gone.
func commitXA(t testing.TB, m mysqlTable, name string) {
	t.Helper()
	eventually(t, "the prepared transaction can be committed", func() bool {
		_, err := m.DB.ExecContext(t.Context(), "XA COMMIT "+name)
		return err == nil
	})
}

// Ids that were given out are known, also if no row of them is left: a relay that
// begins on an empty table has nothing to look for.
func TestMySQLEmptied(t *testing.T) {
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		insertOne(t, m, "")
		last := insertOne(t, m, "")
		exec(t, m.DB, "DELETE FROM outbox")
		newObserver(t, m.open(t)).lookUntil(last)
	})
}

// The list of transactions has their statements, too, as texts of characters of three
// bytes at most. MySQL 9 can't show it while one of them has others, or bytes that are no
// text: that lasts as long as the statement.
func TestMySQLBearsStatementsThatItCannotShow(t *testing.T) {
	payloads := map[string]string{"bytes": "payload = _binary'\x80\x81\xfe\xff'", "emoji": "payload_text = '😀'"}
	eachMySQL(t, func(t *testing.T, m mysqlTable) {
		for name, payload := range payloads {
			t.Run(name, func(t *testing.T) { m.bearsStatementWith(t, payload) })
		}
	})
}

// bearsStatementWith reads pages while a statement with the payload runs. The statement takes the
// lock "begun", and then waits for the lock "held" of another session of the test.
func (m mysqlTable) bearsStatementWith(t *testing.T, payload string) {
	begun, held := rand.Text(), rand.Text() // a server has one set of locks, for all tests
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
		if !found.OK && found.Name != "open transactions" {
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

// A scan that takes too long is ended by the server itself, which would go on with it though its client has left.
func TestMySQLEndsAScan(t *testing.T) {
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
		_, err = other.ExecContext(t.Context(), "LOCK TABLES outbox WRITE") // for which the scan waits
		must(t, err)
		if err := scan(everyLaneAfter(0), time.Millisecond); err == nil || !regexp.MustCompile("3024|1969").MatchString(err.Error()) {
			t.Errorf("a scan that takes too long ended with %v", err)
		}
		_, err = other.ExecContext(t.Context(), "UNLOCK TABLES")
		must(t, err)
		if err := scan(everyLaneAfter(0), 10*time.Minute); err != nil {
			t.Errorf("a scan that takes no longer ended with %v", err)
		}
		keys := []storage.Position{{Lane: 1, Until: 9, Key: "a"}, {Lane: 1, Until: 9, Key: "b"}} // in two selects
		if err := scan(keys, 10*time.Minute); err != nil {
			t.Errorf("a scan of keys ended with %v", err)
		}
	})
}
