package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

// trip sends messages through a table with a writer, a relay and an operator, whose sessions have certain settings.
type trip struct {
	dialect dialect.Dialect
	app     *sql.DB // the application's pool, on which it writes
	relay   *sql.DB // the pool of the relay and the operator
	table   string  // the outbox table's name; empty: the default
}

// hostileText has everything that a session's settings could change: quotes, backslashes, pipes, and characters of one to four bytes.
const hostileText = `a\b\\ 'c' "d" || $1 ? :x %s é 日本 😀`

// write writes the topics' messages with each method of the Writer.
func (r trip) write(ctx context.Context, topics ...string) error {
	writer, err := outbox.NewWriter(r.dialect, outbox.Options{Table: r.table, KeyLocks: true, Duplicates: outbox.RefuseDuplicates, Notify: r.dialect.Name() == "postgres"})
	if err != nil {
		return err
	}
	var messages []outbox.Message
	for _, topic := range topics {
		messages = append(messages, outbox.Message{ID: outbox.NewID(), Topic: topic, Key: topic + hostileText, Payload: []byte(hostileText), Headers: map[string]string{"h": hostileText}, Priority: 3})
	}
	for range 21 { // on PostgreSQL the Writer uses another statement for more than 20 messages
		messages = append(messages, outbox.Message{ID: outbox.NewID(), Topic: "many", Key: "many", Payload: []byte{0, 255, '\\'}})
	}
	later := outbox.Message{ID: outbox.NewID(), Topic: "cancelled", AvailableAt: time.Now().Add(time.Hour), ExpiresAt: time.Now().Add(2 * time.Hour)}
	inTx := func(work func(*sql.Tx) error) error {
		tx, err := r.app.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := work(tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := inTx(func(tx *sql.Tx) error {
		return writer.Write(ctx, tx, append(messages[:len(topics):len(topics)], later)...)
	}); err != nil {
		return err
	}
	if err := inTx(func(tx *sql.Tx) error { return writer.Write(ctx, tx, messages[len(topics):]...) }); err != nil {
		return err
	}
	if err := inTx(func(tx *sql.Tx) error {
		var duplicate *outbox.DuplicateError
		if err := writer.Write(ctx, tx, messages[0], outbox.Message{ID: outbox.NewID(), Topic: "refused"}); !errors.As(err, &duplicate) || !slices.Equal(duplicate.IDs, []string{messages[0].ID}) {
			return fmt.Errorf("write a duplicate: %w", cmp.Or(err, errors.New("it was accepted")))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := inTx(func(tx *sql.Tx) error { return r.insert(ctx, tx) }); err != nil {
		return err
	}
	return inTx(func(tx *sql.Tx) error {
		cancelled, err := writer.Cancel(ctx, tx, later.ID, messages[0].ID)
		if err == nil && !slices.Equal(cancelled, []string{later.ID}) {
			err = fmt.Errorf("cancelled %q", cancelled)
		}
		return err
	})
}

// insert writes a message of topic "plain" with a plain INSERT, like an application in another language.
func (r trip) insert(ctx context.Context, tx *sql.Tx) error {
	headers, err := json.Marshal(map[string]string{"h": hostileText})
	if err != nil {
		return err
	}
	values := "?, ?, ?, ?"
	if r.dialect.Name() == "postgres" {
		values = "$1, $2, $3, $4"
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO "+cmp.Or(r.table, "outbox")+" (topic, message_key, payload_text, headers) VALUES ("+values+")", "plain", "plain"+hostileText, hostileText, string(headers))
	return err
}

// deliver makes a relay deliver, retry and park, and an operator requeue, discard, list, replay and purge.
func (r trip) deliver(ctx context.Context, claim storage.Claim) error {
	store, err := sqlstore.Open(ctx, r.relay, r.dialect, sqlstore.Options{Table: r.table})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	got, fails := map[string]int{}, map[string]error{"parked": inproc.Permanent(errors.New(hostileText)), "discarded": inproc.Permanent(errors.New("no")), "retried": errors.New("later")}
	handler := func(_ context.Context, m sinks.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Topic != "many" && (string(m.Payload) != hostileText || m.Key != m.Topic+hostileText || m.Headers["h"] != hostileText) || m.Topic == "many" && string(m.Payload) != "\x00\xff\\" {
			return inproc.Permanent(fmt.Errorf("the message has the key %q, the payload %q, and the headers %q", m.Key, m.Payload, m.Headers))
		}
		if err := fails[m.Topic]; err != nil {
			return err
		}
		got[m.Topic]++
		return nil
	}
	var log bytes.Buffer
	drain := func(retention time.Duration) error {
		pick := storage.Oldest
		if claim == storage.ByRows {
			pick = storage.Priority
		}
		engine, err := relay.New(store, relay.Options{
			Claim: claim, Drain: true, Poll: time.Millisecond, Retention: retention, Pick: pick, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Sinks: map[string]relay.SinkOptions{"sink": {Sink: inproc.Func(handler), JudgeAloneAfter: -1, BreakerThreshold: -1, ParkRateLimit: -1, Backoff: relay.Backoff{Min: decade, Max: decade}}},
		})
		if err != nil {
			return err
		}
		return engine.Run(ctx)
	}
	count := func(filter storage.Filter, want int) error {
		infos, err := store.List(ctx, filter)
		if err == nil && len(infos) != want {
			err = fmt.Errorf("a list of %s has %d messages, want %d", filter.Describe(), len(infos), want)
		}
		return err
	}
	changed := func(n int, err error) error {
		if err == nil && n != 1 {
			err = fmt.Errorf("%d messages were changed, want 1", n)
		}
		return err
	}
	steps := []func() error{
		func() error { return r.write(ctx, "kept", "parked", "discarded", "retried") },
		func() error { return drain(time.Hour) },
		func() error {
			for _, f := range sqlstore.Check(ctx, r.relay, r.dialect, sqlstore.Options{Table: r.table}, claim) {
				if strings.Contains(f.Detail, "SQLSTATE") || strings.Contains(f.Detail, "Error ") {
					return fmt.Errorf("check: %s: %s", f.Name, f.Detail)
				}
			}
			return nil
		},
		func() error { return count(storage.Filter{State: storage.StateDone, Limit: 1000}, 23) },
		func() error { return count(storage.Filter{State: storage.StateError, Error: `a\b`}, 1) },
		func() error { return count(storage.Filter{State: storage.StateRetry, Key: "retried" + hostileText}, 1) },
		func() error { _, err := store.Status(ctx); return err },
		func() error { clear(fails); return changed(store.Discard(ctx, storage.Filter{Topic: "discarded"})) },
		func() error {
			return changed(store.Requeue(ctx, storage.Filter{Topic: "parked", State: storage.StateError}))
		},
		func() error {
			return changed(store.Requeue(ctx, storage.Filter{Topic: "retried", State: storage.StateRetry}))
		},
		func() error { return r.write(ctx, "deleted") },
		func() error { return drain(relay.KeepNothing) },
		func() error { return count(storage.Filter{State: storage.StateError}, 0) },
		func() error { // when the drain ends, rows that it was purging stay locked until the server notices the end
			for left := -1; left != 0; time.Sleep(10 * time.Millisecond) {
				infos, err := store.List(ctx, storage.Filter{State: storage.StateDone, Limit: 1000})
				if left = len(infos); err != nil {
					return err
				}
				another, err := sqlstore.Open(ctx, r.relay, r.dialect, sqlstore.Options{Table: r.table, Operator: true}) // its purge begins with the oldest row
				if err != nil {
					return err
				}
				if _, err := another.Purge(ctx, 0, 1000); err != nil {
					return err
				}
			}
			return nil
		},
		func() error { return count(storage.Filter{State: storage.StatePending}, 0) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d, %s: %w; log: %.1500s", i, claim, err, log.String())
		}
	}
	want := map[string]int{"kept": 1, "parked": 1, "retried": 1, "deleted": 1, "plain": 2, "many": 42}
	for topic, n := range want {
		if got[topic] != n {
			return fmt.Errorf("%s: delivered %v, want %v", claim, got, want)
		}
	}
	return nil
}

func (r trip) both(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return errors.Join(r.deliver(ctx, storage.ByLanes), r.deliver(ctx, storage.ByRows))
}

// noSchema is the name of the settings that require a table's name to include its schema.
const noSchema = "no schema"

// postgresSettings has groups of database settings with which a relay and a Writer must work. The test leaves out the settings
// that a server doesn't have.
var postgresSettings = map[string][]string{
	"texts": {"IntervalStyle = 'sql_standard'", "DateStyle = 'ISO, DMY'", "extra_float_digits = -15", "TimeZone = 'America/St_Johns'", "escape_string_warning = on",
		"backslash_quote = 'off'", "quote_all_identifiers = on", "array_nulls = off", "transform_null_equals = on", "xmloption = 'document'", "client_min_messages = 'debug1'"},
	"plans": {"plan_cache_mode = 'force_generic_plan'", "jit = on", "jit_above_cost = 0", "enable_seqscan = off", "enable_indexscan = off", "enable_indexonlyscan = off",
		"enable_bitmapscan = off", "enable_nestloop = off", "enable_hashjoin = off", "enable_mergejoin = off", "enable_sort = off", "enable_hashagg = off", "enable_material = off",
		"work_mem = 64", "temp_file_limit = 0", "from_collapse_limit = 1", "join_collapse_limit = 1", "geqo_threshold = 2", "constraint_exclusion = 'on'"},
	"serializable": {"default_transaction_isolation = 'serializable'", "default_transaction_deferrable = on", "row_security = off", "synchronous_commit = off"},
	"repeatable":   {"default_transaction_isolation = 'repeatable read'", "synchronous_commit = 'remote_apply'", "default_toast_compression = 'pglz'", "check_function_bodies = off"},
	"replica":      {"session_replication_role = 'replica'", "search_path = first, public", "plan_cache_mode = 'force_custom_plan'"},
	"parallel": {"max_parallel_workers_per_gather = 8", "parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0", "min_parallel_index_scan_size = 0",
		"debug_parallel_query = on", "force_parallel_mode = on"}, // one setting, by its new and by its old name
	noSchema:   {"search_path = ''"},
	"timeouts": {"idle_in_transaction_session_timeout = '5min'", "statement_timeout = '5min'", "lock_timeout = '5min'"},
}

// In the modes exec and simple_protocol, pgx sends and reads values as text. So the command sets DateStyle, bytea_output and
// standard_conforming_strings, and an application with these modes must set them, too (see
// TestPostgresPoolThatCannotReadTextsIsRefused).
func TestPostgresSettings(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Each() { // one target where all use pgx, and one where the application uses lib/pq
		if target.Kind != testdb.Postgres {
			continue
		}
		for name, settings := range postgresSettings {
			t.Run(target.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				db, table := target.Open(t), "outbox"
				if name == noSchema {
					table = "public.outbox"
				}
				database := databaseName(t, db)
				execute(t, db.DB, "CREATE SCHEMA first")
				execute(t, db.DB, "CREATE FUNCTION first.hashtextextended(text, int) RETURNS bigint LANGUAGE sql AS 'SELECT 99::bigint'")
				for _, setting := range settings {
					if _, err := db.DB.ExecContext(t.Context(), "ALTER DATABASE "+database+" SET "+setting); err != nil && !strings.Contains(err.Error(), "unrecognized configuration parameter") {
						t.Fatal(err)
					}
				}
				mustRun(t, "migrate", "up", "--table", table, "--database", db.URL)
				parsed, err := config.ParseDatabase(db.URL)
				if err != nil {
					t.Fatal(err)
				}
				command, d, err := openDatabase(t.Context(), parsed, pool{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = command.Close() }()
				app := db.OpenAnother(t)
				for who, reads := range map[string]*sql.DB{"the command": command, "a library": app} {
					if err := (trip{d, app, reads, table}).both(t.Context()); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
			})
		}
	}
}

func databaseName(t *testing.T, db testdb.Database) (name string) {
	t.Helper()
	if err := db.DB.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// A command fails if the database has a setting with which the command can't work. Its error names the setting and has a hint. To
// exceed a time limit, the test holds a lock on the table.
func TestPostgresSettingsWithHints(t *testing.T) {
	t.Parallel()
	everything := [][]string{{"migrate", "up", "--claim", "rows"}, {"enqueue"}, {"run", "--drain", "--sink", "stdout:", "--listen", "off"}, {"status"}, {"messages", "list"}, {"check"}}
	for setting, tt := range map[string]struct {
		says     string
		commands [][]string
	}{
		"search_path = ''":                   {"search_path", slices.DeleteFunc(slices.Clone(everything), func(c []string) bool { return c[0] == "enqueue" })}, // the hint of enqueue is to run migrate up
		"search_path = 'nothing'":            {"name the table with its schema, such as public.outbox", [][]string{{"migrate", "up"}, {"check"}}},
		"default_transaction_read_only = on": {"default_transaction_read_only", [][]string{{"migrate", "up", "--claim", "rows"}, {"enqueue"}, {"run", "--drain", "--sink", "stdout:", "--listen", "off"}, {"check"}}},
		"statement_timeout = '1s'":           {"statement_timeout", everything[:5]},
	} {
		for _, target := range testdb.Targets() {
			if target.Name != "postgres18/pgx" {
				continue
			}
			t.Run(setting, func(t *testing.T) {
				t.Parallel()
				db := target.OpenOutbox(t)
				if strings.HasPrefix(setting, "statement_timeout") {
					tx, err := db.DB.BeginTx(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = tx.Rollback() }()
					if _, err := tx.ExecContext(t.Context(), "LOCK TABLE outbox, outbox_settings IN ACCESS EXCLUSIVE MODE"); err != nil {
						t.Fatal(err)
					}
				}
				execute(t, db.DB, "ALTER DATABASE "+databaseName(t, db)+" SET "+setting)
				for _, command := range tt.commands {
					got := call(t.Context(), `{"topic":"a","payload":"1"}`, append(command, "--database", db.URL)...)
					if got.code != exitFailed || !strings.Contains(got.stdout+got.stderr, tt.says) {
						t.Errorf("%s: exit code %d, want %q in:\n%s%s", command, got.code, tt.says, got.stdout, got.stderr)
					}
				}
			})
		}
	}
}

// writersOnly is the name of the settings that a relay refuses (TestMySQLUnfitSessionIsRefused) but an application may write
// with.
const writersOnly = "limits"

// mysqlSettingsThatWork has groups of session settings with which a relay and a Writer must work. The test leaves out the
// settings that a server doesn't have. The groups have no short time limits, because these would end calls on a slow machine;
// internal/outboxdb tests short limits with locks and connections.
var mysqlSettingsThatWork = map[string]map[string]string{
	writersOnly:   {"sql_safe_updates": "1", "sql_select_limit": "1", "sql_big_selects": "0"},
	"ansi":        {"sql_mode": "'ANSI,PIPES_AS_CONCAT,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,NO_AUTO_VALUE_ON_ZERO'"},
	"backslashes": {"sql_mode": "'NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,NO_ZERO_DATE,IGNORE_SPACE'"},
	"no mode":     {"sql_mode": "''", "innodb_lock_wait_timeout": "30", "innodb_snapshot_isolation": "1", "transaction_isolation": "'SERIALIZABLE'"},
	"oracle":      {"sql_mode": "'ORACLE'"},
	"mssql":       {"sql_mode": "'MSSQL'"},
	"assignment":  {"sql_mode": "'SIMULTANEOUS_ASSIGNMENT,TIME_ROUND_FRACTIONAL'"},
	"plans": {"group_concat_max_len": "4", "tmp_table_size": "1024", "max_heap_table_size": "16384", "sort_buffer_size": "32768", "join_buffer_size": "128", "max_sort_length": "8", "big_tables": "1",
		"max_seeks_for_key": "1", "optimizer_search_depth": "1", "eq_range_index_dive_limit": "1", "in_predicate_conversion_threshold": "2", "join_cache_level": "8",
		"optimizer_switch": "'index_merge=off,mrr=off,materialization=off,semijoin=off,derived_merge=off'", "cte_max_recursion_depth": "1", "max_recursive_iterations": "1"},
	"others": {"div_precision_increment": "0", "time_zone": "'-11:00'", "lc_time_names": "'de_DE'", "default_week_format": "7", "explicit_defaults_for_timestamp": "0", "collation_connection": "utf8mb4_bin",
		"foreign_key_checks": "0", "unique_checks": "0", "check_constraint_checks": "0", "default_storage_engine": "'MyISAM'", "sql_require_primary_key": "1", "sql_auto_is_null": "1", "sql_notes": "0",
		"wait_timeout": "3600", "net_write_timeout": "60", "max_error_count": "0", "innodb_strict_mode": "0"},
}

// The settings that the command sets on each connection override those of the server.
func TestMySQLSettings(t *testing.T) {
	t.Parallel()
	onMySQL(t, func(t *testing.T, db testdb.Database) {
		d, err := dialect.ByName(db.Kind)
		if err != nil {
			t.Fatal(err)
		}
		mustRun(t, "migrate", "up", "--database", db.URL)
		for name, settings := range mysqlSettingsThatWork {
			t.Run(name, func(t *testing.T) { // sequentially, on one table
				app, err := mysql.ParseDSN(db.DSN)
				if err != nil {
					t.Fatal("the test server's DSN is malformed; it is not shown because it has a password")
				}
				own, err := mysqlSettings(db.URL)
				if err != nil {
					t.Fatal(err)
				}
				own.Params = map[string]string{}
				var set []string
				for setting, value := range settings {
					if _, err := db.DB.ExecContext(t.Context(), "SET SESSION "+setting+" = "+value); err != nil {
						continue // this kind or version of server doesn't have the setting
					}
					set = append(set, "SET SESSION "+setting+" = "+value)
					app.Params[setting] = value
					if setting != "collation_connection" {
						own.Params[setting] = value // set before the command's own settings, which override it
					}
				}
				open := func(config *mysql.Config, set []string) *sql.DB {
					connector, err := mysql.NewConnector(config)
					if err != nil {
						t.Fatal(err)
					}
					pool := sql.OpenDB(session{connector, set})
					t.Cleanup(func() { _ = pool.Close() })
					return pool
				}
				writes := open(app, nil)
				command := open(own, sessionSettings(0))
				trips := map[string]trip{"the command": {d, writes, command, ""}, "a library": {d, writes, writes, ""}}
				if slices.Contains(sql.Drivers(), "gomysql") { // the Makefile has linked the driver
					address, err := url.Parse(db.URL)
					if err != nil {
						t.Fatal("the test server's URL is malformed; it is not shown because it has a password")
					}
					another := openSet(t, "gomysql", address.User.String()+"@"+address.Host+address.Path, set)
					trips["the command, go-mysql-org"], trips["a library, go-mysql-org"] = trip{d, another, command, ""}, trip{d, another, another, ""}
				}
				if name == writersOnly {
					maps.DeleteFunc(trips, func(who string, _ trip) bool { return strings.HasPrefix(who, "a library") })
				}
				for who, trip := range trips {
					if err := trip.both(t.Context()); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
			})
		}
	})
}

// plainInserts has sessions of applications in other languages, which write literals. For each session it has the settings, the
// spelling of literals, and the statement after the INSERT.
var plainInserts = map[string]map[string]plainInsert{
	"postgres": {
		"latin1":    {set: []string{"SET client_encoding = 'LATIN1'"}, latin1: true},
		"dates":     {set: []string{"SET DateStyle = 'SQL, DMY'"}, more: map[string]string{"available_at": "'25/04/2020 10:00:00+02'"}},
		"nulls":     {set: []string{"SET transform_null_equals = on"}, more: map[string]string{"payload": "NULL", "available_at": "NULL", "expires_at": "NULL"}},
		"backslash": {set: []string{"SET standard_conforming_strings = off", "SET escape_string_warning = off"}, escapes: true},
	},
	"mysql": {
		"latin1":       {set: []string{"SET NAMES latin1"}, escapes: true, latin1: true},
		"no mode":      {set: []string{"SET sql_mode = ''"}, escapes: true, more: map[string]string{"available_at": "'2020-4-25'"}},
		"ansi":         {set: []string{"SET sql_mode = 'ANSI'"}, escapes: true, more: map[string]string{`"priority"`: "'1' || '2'"}},
		"no backslash": {set: []string{"SET sql_mode = 'NO_BACKSLASH_ESCAPES'"}},
		"autocommit":   {set: []string{"SET autocommit = 0"}, escapes: true, end: "COMMIT"},
	},
}

type plainInsert struct {
	set     []string
	escapes bool              // a backslash in a literal begins an escape sequence
	latin1  bool              // statements are sent in Latin-1
	more    map[string]string // columns and their values
	end     string            // the statement after the INSERT, if any
}

func (p plainInsert) statement(topic, text string) string {
	literal := func(text string) string {
		if p.escapes {
			text = strings.ReplaceAll(text, `\`, `\\`)
		}
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	headers, _ := json.Marshal(map[string]string{"h": text})
	columns, values := "topic, message_key, payload_text, headers", strings.Join([]string{literal(topic), literal(text), literal(text), literal(string(headers))}, ", ")
	for column, value := range p.more {
		columns, values = columns+", "+column, values+", "+value
	}
	statement := "INSERT INTO outbox (" + columns + ") VALUES (" + values + ")"
	if p.latin1 {
		statement = strings.ReplaceAll(statement, "é", "\xe9")
	}
	return statement
}

// Literals of applications in other languages arrive unchanged, whatever their sessions have set.
func TestPlainInserts(t *testing.T) {
	t.Parallel()
	const text = `a\b\\ 'c' "d" || $1 ? é` // Latin-1 has all these characters
	for _, target := range testdb.Targets() {
		inserts := plainInserts[map[string]string{testdb.Postgres: "postgres", testdb.MySQL: "mysql", testdb.MariaDB: "mysql"}[target.Kind]]
		if !strings.HasSuffix(target.Name, "/pgx") && !strings.HasSuffix(target.Name, "/gosql") {
			continue // all drivers send the same statements, and lib/pq always uses UTF-8
		}
		for name, insert := range inserts {
			t.Run(target.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				db := target.OpenOutbox(t)
				app := db.OpenAnother(t)
				app.SetMaxOpenConns(1) // one connection, so that all statements run in one session
				for _, statement := range insert.set {
					if _, err := app.ExecContext(t.Context(), statement); err != nil && isUnsupported(err) {
						t.Skip(err)
					} else if err != nil {
						t.Fatal(err)
					}
				}
				execute(t, app, insert.statement(name, text))
				if insert.end != "" {
					execute(t, app, insert.end)
				}
				d, err := dialect.ByName(db.Kind)
				if err != nil {
					t.Fatal(err)
				}
				store, err := sqlstore.Open(t.Context(), db.DB, d, sqlstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				var got []sinks.Message
				engine, err := relay.New(store, relay.Options{Drain: true, Poll: time.Millisecond, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{
					"sink": {Sink: inproc.Func(func(_ context.Context, m sinks.Message) error { got = append(got, m); return nil })},
				}})
				if err != nil {
					t.Fatal(err)
				}
				if err := engine.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if len(got) != 1 || got[0].Topic != name || got[0].Key != text || string(got[0].Payload) != text || got[0].Headers["h"] != text {
					t.Errorf("%s arrived as %+v", insert.statement(name, text), got)
				}
			})
		}
	}
}

// An application's pool works whatever parameters of its driver are set.
func TestParametersOfDrivers(t *testing.T) {
	t.Parallel()
	parameters := map[string][]string{
		"postgres18/pgx":    {"default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol"},
		"postgres18/pq":     {"binary_parameters=yes"},
		"mysql/gosql":       {"", "parseTime=true&loc=Asia%2FTokyo&interpolateParams=true", "clientFoundRows=true&compress=true&time_zone=%27-11%3A00%27"},
		"mariadb1011/gosql": {"", "loc=Local&interpolateParams=true"},
	}
	for _, target := range testdb.Targets() {
		for _, parameters := range parameters[target.Name] {
			t.Run(target.Name+"/"+parameters, func(t *testing.T) {
				t.Parallel()
				db := target.OpenOutbox(t)
				d, err := dialect.ByName(db.Kind)
				if err != nil {
					t.Fatal(err)
				}
				dsn := db.DSN + "&" + parameters
				if target.Driver == "mysql" { // the parameters in the tests' DSN would hide missing ones
					before, _, _ := strings.Cut(db.DSN, "?")
					dsn = before + "?" + parameters
				}
				app, err := sql.Open(db.Driver, dsn)
				if err != nil {
					t.Fatal("the DSN is malformed; it is not shown because it has a password")
				}
				defer func() { _ = app.Close() }()
				if err := (trip{d, app, app, ""}).both(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// sqliteSettings has groups of pragmas with which a relay and a Writer must work.
var sqliteSettings = map[string][]string{
	"strict": {"foreign_keys(1)", "case_sensitive_like(1)", "reverse_unordered_selects(1)", "recursive_triggers(1)", "cell_size_check(1)", "secure_delete(1)", "temp_store(2)", "trusted_schema(0)"},
	"loose":  {"foreign_keys(0)", "legacy_alter_table(1)", "ignore_check_constraints(1)", "synchronous(0)", "temp_store(1)", "auto_vacuum(1)", "cache_size(1)", "automatic_index(0)"},
	"utf16":  {"encoding('UTF-16le')", "auto_vacuum(2)", "page_size(512)"},
}

func TestSQLiteSettings(t *testing.T) {
	t.Parallel()
	parameters := map[string]string{"sqlite": "_txlock=immediate&_pragma=busy_timeout(120000)", "sqlite3": "_txlock=immediate&_busy_timeout=120000"}
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.SQLite {
			continue
		}
		for name, pragmas := range sqliteSettings {
			t.Run(target.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				target.Open(t) // fails with the reason if the driver is missing
				path := filepath.Join(t.TempDir(), "a.db")
				var set []string
				for _, pragma := range append(slices.Clone(pragmas), "journal_mode(WAL)") {
					set = append(set, "PRAGMA "+pragma)
				}
				app := openSet(t, target.Driver, "file:"+path+"?"+parameters[target.Driver], set)
				if err := app.PingContext(t.Context()); err != nil { // creates the file, because the file stores some of the pragmas
					t.Fatal(err)
				}
				mustRun(t, "migrate", "up", "--database", "sqlite:"+path)
				parsed, err := config.ParseDatabase("sqlite:" + path)
				if err != nil {
					t.Fatal(err)
				}
				command, d, err := openDatabase(t.Context(), parsed, pool{})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = command.Close() }()
				for who, reads := range map[string]*sql.DB{"the command": command, "a library": app} {
					if err := (trip{d, app, reads, ""}).both(t.Context()); err != nil {
						t.Errorf("%s: %v", who, err)
					}
				}
			})
		}
	}
}

// dsn is a connector that opens connections with a driver and a DSN.
type dsn struct {
	driver driver.Driver
	text   string
}

func (d dsn) Driver() driver.Driver                        { return d.driver }
func (d dsn) Connect(context.Context) (driver.Conn, error) { return d.driver.Open(d.text) }

// openSet opens a pool in which each new connection first runs the statements in the argument set.
func openSet(t *testing.T, driver, text string, set []string) *sql.DB {
	t.Helper()
	known, err := sql.Open(driver, text)
	if err != nil {
		t.Fatal("the DSN is malformed; it is not shown because it has a password")
	}
	pool := sql.OpenDB(session{dsn{known.Driver(), text}, set})
	t.Cleanup(func() { _ = errors.Join(pool.Close(), known.Close()) })
	return pool
}
