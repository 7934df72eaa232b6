package outboxdb_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

func TestMissingTableSaysWhatToDo(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		err := newWriter(t, db.dialect, outbox.Options{Table: "other"}).Write(t.Context(), outbox.WithoutTransaction(db.DB), outbox.Message{Topic: "t"})
		if err == nil || !strings.Contains(err.Error(), "write 1 message to other: the table is missing: create it with rowrelay migrate up") {
			t.Errorf("Write: %v", err)
		}
	})
}

func TestMissingRightSaysWhatToDo(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		role := db.role(t)
		tx := db.begin(t)
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE "+role); err != nil {
			t.Fatal(err)
		}
		err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), tx, outbox.Message{Topic: "t"})
		if err == nil || !strings.Contains(err.Error(), "a producer needs INSERT on outbox") {
			t.Errorf("Write: %v", err)
		}
	})
}

func TestTheRightToInsertIsEnough(t *testing.T) {
	onPostgres(t, func(t *testing.T, db database) {
		role := db.role(t)
		db.exec(t, "GRANT INSERT ON outbox TO "+role)
		tx := db.begin(t)
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL ROLE "+role); err != nil {
			t.Fatal(err)
		}
		writer := newWriter(t, db.dialect, outbox.Options{KeyLocks: true, Notify: true})
		for _, messages := range [][]outbox.Message{difficult, copies(difficult, 5)} {
			if err := writer.Write(t.Context(), tx, messages...); err != nil {
				t.Error(err)
			}
		}
	})
}

// role creates a user without privileges, named after the test's database.
func (db database) role(t *testing.T) string {
	t.Helper()
	role := db.roleName(t)
	db.exec(t, "CREATE ROLE "+role)
	t.Cleanup(func() { db.dropRole(t, role) })
	return role
}

func (db database) roleName(t *testing.T) string {
	t.Helper()
	var name string
	if err := db.DB.QueryRowContext(t.Context(), "SELECT current_database() || '_user'").Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// dropRole drops the user in a cleanup, when the test's context has ended.
func (db database) dropRole(t *testing.T, role string) {
	t.Helper()
	for _, query := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
		if _, err := db.DB.ExecContext(context.Background(), query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
}

func TestErrorsShowNoPayload(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if db.Kind == testdb.Postgres {
			db.exec(t, "ALTER TABLE outbox ADD CHECK (payload <> 'secret'::bytea), ADD CHECK (message_key <> 'secret')")
		} else if isMySQL(db.Kind) {
			db.exec(t, "ALTER TABLE outbox ADD CHECK (payload <> 'secret'), ADD CHECK (message_key <> 'secret')")
		} else {
			db.exec(t, "CREATE TRIGGER refuse BEFORE INSERT ON outbox WHEN NEW.payload = CAST('secret' AS BLOB) BEGIN SELECT raise(ABORT, 'refused'); END")
		}
		secret := outbox.Message{Topic: "t", Key: "secret", Payload: []byte("secret"), Headers: map[string]string{"h": "secret"}}
		for _, messages := range [][]outbox.Message{{secret}, copies([]outbox.Message{secret}, 30)} {
			err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), outbox.WithoutTransaction(db.DB), messages...)
			if err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "736563726574") {
				t.Errorf("Write: %v, want an error without the message's content", err)
			}
		}
	})
}
