package migrations_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
)

// The tables of the version before have one row for each message: of those for some of its
// sinks one is left, with which the message isn't lost.
func TestDownLeavesOneRowOfAMessage(t *testing.T) {
	each(t, func(t *testing.T, db testdb.Database) {
		m := migrator(t, db, db.DB, migrations.Options{})
		if _, err := m.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, db.DB, "INSERT INTO outbox (id, message_id, topic, sinks) VALUES (1, '00000000-0000-7000-8000-000000000001', 't', 'a')")
		write := func(id int, state, sinks string) {
			kept := fmt.Sprintf("%d, lane, '00000000-0000-7000-8000-00000000000%d', 't', '%s', 0, 1, 0, created_at FROM outbox", id, id, sinks)
			if state == "done" {
				exec(t, db.DB, "INSERT INTO outbox_done (finished_at, id, lane, message_id, topic, sinks, priority, attempts, crashes, created_at) SELECT created_at, "+kept)
			} else {
				exec(t, db.DB, "INSERT INTO outbox_held (state, id, lane, message_id, topic, sinks, priority, attempts, crashes, created_at) SELECT '"+state+"', "+kept)
			}
		}
		for _, row := range []struct {
			id           int
			state, sinks string
		}{
			{1, "retry", "b"}, {1, "error", "c"}, {1, "done", "d"},
			{2, "error", "a"}, {2, "scheduled", "b"}, {2, "retry", "c"}, {2, "done", "d"},
			{3, "done", "a"}, {3, "done", "b"},
			{4, "retry", ""},
			{5, "error", "a"}, {5, "error", "b"},
			{6, "done", ""},
		} {
			write(row.id, row.state, row.sinks)
		}
		if taken, err := m.Down(t.Context()); err != nil || taken == nil {
			t.Fatalf("Down = %v, %v; want the step back", taken, err)
		}
		rows, err := db.DB.QueryContext(t.Context(), "SELECT id, state FROM outbox_messages ORDER BY id, state")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		var got []string
		for rows.Next() {
			var id int
			var state string
			if err := rows.Scan(&id, &state); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(id, " ", state))
		}
		if want := []string{"1 pending", "2 retry", "3 done", "4 retry", "5 error", "6 done"}; !slices.Equal(got, want) {
			t.Errorf("left are %q, want %q", got, want)
		}
		if _, err := m.Up(t.Context()); err != nil {
			t.Errorf("up again: %v", err)
		}
	})
}
