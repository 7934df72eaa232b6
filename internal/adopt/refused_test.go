package adopt_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/adopt"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// wide is a table whose columns accept more than the outbox does.
var wide = map[string]string{
	testdb.Postgres: "CREATE TABLE wide (n int PRIMARY KEY, topic text, name text, body bytea, headers text, uid text, sent boolean NOT NULL DEFAULT false)",
	testdb.MySQL:    "CREATE TABLE wide (n int PRIMARY KEY, topic varchar(400), name varchar(400), body blob, headers text, uid varchar(50), sent boolean NOT NULL DEFAULT false)",
	testdb.MariaDB:  "CREATE TABLE wide (n int PRIMARY KEY, topic varchar(400), name varchar(400), body blob, headers text, uid varchar(50), sent boolean NOT NULL DEFAULT false)",
	testdb.SQLite:   "CREATE TABLE wide (n int PRIMARY KEY, topic text, name text, body blob, headers text, uid text, sent boolean NOT NULL DEFAULT false)",
}

// badRows are rows that the outbox refuses as they are, and good ones between them.
const badRows = `INSERT INTO wide (n, topic, name, body, headers, uid) VALUES
	(BASE + 1, NULL, 'k', 'no topic', '{}', NULL),
	(BASE + 2, 'good', 'k', 'good', '{"a": "b", "none": null}', '0DE4CA3C-2B3A-4E62-9A4B-6D6C1B3E8F01'),
	(BASE + 3, 'LONG', 'k', 'long topic', NULL, NULL),
	(BASE + 4, 't', 'LONG', 'long key', NULL, NULL),
	(BASE + 5, 't', 'k', 'headers', '[1]', NULL),
	(BASE + 6, 'good', NULL, 'good', NULL, NULL)`

// A row that the outbox refuses becomes a parked message with the reason, in the backlog and when a program inserts it.
func TestRefusedRowsAreParked(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, wide[db.Kind])
		insert := func(base string) {
			execute(t, db, strings.NewReplacer("BASE", base, "LONG", strings.Repeat("ä", 200)).Replace(badRows))
		}
		insert("0")
		a := openWide(t, db)
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		insert("10")
		wantLines(t, db, "SELECT topic FROM outbox ORDER BY id", "good", "good", "good", "good")
		wantLines(t, db, "SELECT count(*) FROM outbox WHERE message_id = '0de4ca3c-2b3a-4e62-9a4b-6d6c1b3e8f01' OR message_id = '0DE4CA3C-2B3A-4E62-9A4B-6D6C1B3E8F01'", "2")
		var want []string
		for range 2 {
			want = append(want, "rowrelay adopt: the topic is empty", "rowrelay adopt: the topic has 400 bytes, and at most 255 are allowed",
				"rowrelay adopt: the key has 400 bytes, and at most 255 are allowed", "rowrelay adopt: the headers are not a JSON object")
		}
		wantLines(t, db, "SELECT last_error FROM outbox_held WHERE state = 'error' ORDER BY id", want...)
		wantLines(t, db, "SELECT count(*) FROM wide WHERE NOT sent", "0")
		wantLines(t, db, "SELECT count(*) FROM outbox_held WHERE payload IS NULL OR message_id IS NULL", "0")
		wantLines(t, db, "SELECT count(*) FROM outbox WHERE concat(headers, '') LIKE '%none%'", "0")
		survey, err := a.Survey(t.Context())
		if check(t, err); survey.Parked != 8 || survey.Waiting != 0 {
			t.Errorf("%d rows wait and %d are parked, want 0 and 8", survey.Waiting, survey.Parked)
		}
	}, everyServer...)
}

// The JSON value null in the column of the headers means no headers, with or without other headers.
func TestNullHeaders(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, strings.ReplaceAll(wide[db.Kind], "headers text", "headers json"))
		for i, header := range [][]adopt.Header{nil, {{Name: "name", Value: "name"}}} {
			execute(t, db, fmt.Sprintf("INSERT INTO wide (n, topic, name, headers) VALUES (%d, 't', 'k', 'null'), (%d, 't', 'k', NULL)", 4*i, 4*i+1))
			a := openWide(t, db)
			a.Mapping.Header = header
			_, err := a.Run(t.Context(), nil)
			check(t, err)
			execute(t, db, fmt.Sprintf("INSERT INTO wide (n, topic, name, headers) VALUES (%d, 't', 'k', 'null')", 4*i+2))
			undo(t, a)
		}
		wantLines(t, db, "SELECT count(*) FROM outbox_held", "0")
		wantLines(t, db, "SELECT count(*) FROM outbox WHERE headers IS NULL", "3")
		wantLines(t, db, "SELECT count(*) FROM outbox WHERE concat(headers, '') LIKE '{%\"k\"}'", "3")
	}, everyServer...)
}

func openWide(t *testing.T, db testdb.Database) *adopt.Adoption {
	t.Helper()
	a := open(t, db, "wide")
	a.Mapping = adopt.Mapping{Topic: "topic", Key: "name", Payload: "body", Headers: "headers", ID: "uid", Waiting: "NOT sent", Order: "n", Published: []string{"sent = true"}}
	return a
}

// A mapping that fails for a row doesn't fail the program's INSERT: the whole row is parked. SQLite's triggers can't do this.
func TestAFailingMappingParksTheRow(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, wide[db.Kind])
		a := openWide(t, db)
		a.Mapping.Payload = map[string]string{testdb.Postgres: "uid::json ->> 'a'"}[db.Kind]
		if a.Mapping.Payload == "" {
			a.Mapping.Payload = "json_extract(uid, '$.a')"
		}
		a.Mapping.ID = ""
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		for i, insert := range inserts[db.Kind] {
			execute(t, db, insert+fmt.Sprintf(` wide (n, topic, name, uid) VALUES (%d, 't', 'k', '{"a": "b"}'), (%d, 't', 'k', '{')`, 2*i, 2*i+1))
			wantLines(t, db, "SELECT count(*) FROM outbox", fmt.Sprint(i+1))
			got := lines(t, db, "SELECT concat(topic, '|', last_error, '|', payload_text) FROM outbox_held")
			if len(got) != i+1 || !strings.HasPrefix(got[i], "unknown|rowrelay adopt: the mapping fails with ") || !strings.Contains(got[i], `"{"`) {
				t.Errorf("after %s, parked is %q", insert, got)
			}
		}
		wantLines(t, db, "SELECT count(*) FROM wide WHERE NOT sent", "0")
	}, "postgres15/pgx", "postgres18/pq", "mysql/gosql", "mariadb1011/gosql")
}

// inserts are the beginnings of each database's INSERTs.
var inserts = map[string][]string{
	testdb.Postgres: {"INSERT INTO"}, testdb.MySQL: {"INSERT INTO", "INSERT IGNORE INTO"}, testdb.MariaDB: {"INSERT INTO", "INSERT IGNORE INTO"},
	testdb.SQLite: {"INSERT INTO", "INSERT OR REPLACE INTO", "INSERT OR IGNORE INTO"},
}

// With Refuse, the INSERT of a row that the outbox refuses fails, and never inserts the row alone.
func TestRefuse(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, wide[db.Kind])
		execute(t, db, "INSERT INTO wide (n, topic, name) VALUES (0, 't', 'k')")
		a := openWide(t, db)
		a.Mapping.Refuse = true
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		execute(t, db, "INSERT INTO wide (n, topic, name) VALUES (1, 't', 'k')")
		for _, insert := range inserts[db.Kind] {
			_, err := db.DB.ExecContext(t.Context(), insert+" wide (n, topic, name) VALUES (2, '', 'k')")
			if err == nil && insert == "INSERT INTO" {
				t.Errorf("%s a row without a topic has succeeded", insert)
			}
			if rows := lines(t, db, "SELECT count(*) FROM wide WHERE n = 2"); rows[0] != "0" {
				t.Errorf("%s inserted a row that was not forwarded", insert)
			}
		}
		wantLines(t, db, "SELECT count(*) FROM outbox", "2")
	}, everyServer...)
}

// A program whose role may only INSERT into its table needs no further rights.
func TestWritersNeedNoOtherRights(t *testing.T) {
	t.Parallel()
	on(t, func(t *testing.T, db testdb.Database) {
		execute(t, db, wide[db.Kind])
		execute(t, db, "INSERT INTO wide (n, topic, name) VALUES (0, 't', 'k')")
		a := openWide(t, db)
		_, err := a.Run(t.Context(), nil)
		check(t, err)
		const insert = "INSERT INTO wide (n, topic, name) VALUES (1, 't', 'k'), (2, '', 'k')"
		if db.Kind == testdb.Postgres {
			execute(t, db, "SET ROLE "+role(t, db, "GRANT INSERT ON wide TO ")+"; "+insert+"; RESET ROLE")
		} else {
			_, err := userOf(t, db).ExecContext(t.Context(), insert)
			check(t, err)
		}
		wantLines(t, db, "SELECT count(*) FROM outbox", "2")
		wantLines(t, db, "SELECT count(*) FROM outbox_held", "1")
		wantLines(t, db, "SELECT count(*) FROM wide WHERE NOT sent", "0")
	}, "postgres15/pgx", "postgres18/pq", "mysql/gosql", "mariadb1011/gosql")
}

// userOf opens the database as a user who may only INSERT into the table wide.
func userOf(t *testing.T, db testdb.Database) *sql.DB {
	t.Helper()
	name := "rowrelay_" + strings.ToLower(rand.Text()[:16])
	execute(t, db, "CREATE USER "+name+" IDENTIFIED BY 'hunter2'")
	execute(t, db, "GRANT INSERT ON wide TO "+name)
	drop := db.OpenAnother(t)
	t.Cleanup(func() {
		if _, err := drop.Exec("DROP USER " + name); err != nil {
			t.Error(err)
		}
	})
	address, err := url.Parse(db.URL)
	check(t, err)
	config, err := mysql.ParseDSN(db.DSN)
	check(t, err)
	config.User, config.Passwd, config.Addr = name, "hunter2", address.Host
	pool, err := sql.Open("mysql", config.FormatDSN())
	check(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}
