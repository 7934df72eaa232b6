package migrations_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
)

// uuid returns a random-looking UUID that is always the same for the same number.
func uuid(i int) string {
	random := rand.New(rand.NewPCG(1, uint64(i)))
	a, b := random.Uint64(), random.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", uint32(a), uint16(a>>32), a>>52, b>>52, b&(1<<48-1))
}

// Keys of the usual kinds spread over the lanes: with enough keys, no lane has more than twice
// the average.
func TestKeysSpreadOverLanes(t *testing.T) {
	kinds := map[string]struct {
		count int
		lanes int // the minimum number of lanes that are used
		key   func(int) string
	}{
		"letters":  {26, 20, func(i int) string { return string(rune('a' + i)) }},
		"numbers":  {2000, 64, func(i int) string { return fmt.Sprint(i) }},
		"tens":     {2000, 64, func(i int) string { return fmt.Sprint(i * 10) }},
		"padded":   {2000, 64, func(i int) string { return fmt.Sprintf("%08d", i) }},
		"customer": {2000, 64, func(i int) string { return fmt.Sprintf("customer-%d", i) }},
		"mail":     {1000, 64, func(i int) string { return fmt.Sprintf("%d@example.com", i) }},
		"uuid":     {2000, 64, uuid},
		"none":     {2000, 64, func(int) string { return "" }},
	}
	each(t, func(t *testing.T, db testdb.Database) {
		if _, err := migrator(t, db, db.DB, migrations.Options{}).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, kind := range kinds {
			exec(t, db.DB, "DELETE FROM outbox")
			values := ""
			for i := range kind.count {
				values += fmt.Sprintf(",('a','%s')", kind.key(i))
			}
			exec(t, db.DB, "INSERT INTO outbox (topic, message_key) VALUES "+values[1:])
			var lanes, most int
			if err := db.DB.QueryRowContext(t.Context(), "SELECT count(*), max(n) FROM (SELECT count(*) AS n FROM outbox GROUP BY lane) AS counts").Scan(&lanes, &most); err != nil {
				t.Fatal(err)
			}
			if lanes < kind.lanes || kind.lanes == 64 && most > 2*kind.count/64 {
				t.Errorf("%s: %d lanes used, %d of %d keys in one lane", name, lanes, most, kind.count)
			}
		}
	})
}

func TestTableRefusesInvalidRows(t *testing.T) {
	both := []string{
		"(topic) VALUES ('')",
		"(topic) VALUES (NULL)",
		"(topic, headers) VALUES ('a', '[1]')",
		"(topic, headers) VALUES ('a', 'nonsense')",
		"(topic, payload, payload_text) VALUES ('a', '', '')",
		"(topic, message_id) VALUES ('a', 'no uuid')",
		"(topic, available_at) VALUES ('a', 'some day')",
		"(topic, expires_at) VALUES ('a', 'some day')",
		"(topic, priority) VALUES ('a', 40000)",
		fmt.Sprintf("(topic, message_key) VALUES ('a', '%0256d')", 0),
		fmt.Sprintf("(topic) VALUES ('%0256d')", 0),
	}
	kinds := map[string][]string{
		testdb.Postgres: append([]string{"(topic, available_at) VALUES ('a', 'infinity')", "(topic, expires_at) VALUES ('a', 'infinity')"}, both...),
		testdb.SQLite:   append([]string{"(topic, available_at) VALUES ('a', '2026-01-01T00:00:00Z')", "(topic, expires_at) VALUES ('a', '2026-01-01T00:00:00Z')", "(topic, message_key) VALUES ('a', X'41')"}, both...),
	}
	mysql := append([]string{
		"(topic, lane) VALUES ('a', 64)",
		"(topic, message_key, lane) VALUES ('a', 'k', 1)", // lane 1 isn't the lane of the key
		"(topic, message_id) VALUES ('a', '0197a3b4-0000-7abc-8def-0123456789ag')",
	}, both...)
	kinds[testdb.MySQL], kinds[testdb.MariaDB] = mysql, mysql
	each(t, func(t *testing.T, db testdb.Database) {
		if _, err := migrator(t, db, db.DB, migrations.Options{}).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, rest := range kinds[db.Kind] {
			if _, err := db.DB.ExecContext(t.Context(), "INSERT INTO outbox "+rest); err == nil {
				t.Errorf("the table accepts %.80s, want an error", rest)
			}
		}
		exec(t, db.DB, fmt.Sprintf("INSERT INTO outbox (topic, message_key) VALUES ('%0255d', '%0255d')", 0, 0))
		exec(t, db.DB, "INSERT INTO outbox (topic, headers, available_at) VALUES ('a', '{\"a\":\"b\"}', '2026-01-31 23:59:59.000')")
	})
}
