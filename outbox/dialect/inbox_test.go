package dialect_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var dialects = []dialect.Dialect{dialect.Postgres(), dialect.MySQL(), dialect.MariaDB(),
	dialect.Oracle(), dialect.SQLServer(), dialect.SQLite()}

// The SQL that a consumer runs, to be read by a person.
func TestGoldenInbox(t *testing.T) {
	t.Parallel()
	table, err := dialect.ParseTable("app.Received")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dialects {
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			b := &text{}
			b.add("receive", d.Receive(table, "billing", "0197a3b4-0000-7abc-8def-0123456789ab"))
			b.add("purge", d.PurgeReceived(table, "billing", 7*24*time.Hour, 1000))
			b.add("version", d.InboxVersion(table))
			file := filepath.Join("testdata", d.Name()+"_inbox.sql")
			if *update {
				if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || b.String() != string(want) {
				t.Errorf("the statements differ from %s (%v); if that is meant, run go test ./outbox/dialect -update and look at the change", file, err)
			}
		})
	}
}

func TestOracleInboxBindsByPlace(t *testing.T) {
	t.Parallel()
	d, table := dialect.Oracle(), dialect.Table{}
	checkPlaces(t, "inbox", d.Receive(table, "billing", "a"), d.PurgeReceived(table, "billing", time.Hour, 10))
}

// An id that is there already is known by the error where that is how a database
// says so, and no other error is taken for it: the message would be lost.
func TestReceived(t *testing.T) {
	t.Parallel()
	errs := map[string]error{
		"mysql":     errors.New("Error 1062 (23000): Duplicate entry 'billing-a' for key 'inbox.PRIMARY'"),
		"mariadb":   errors.New("ERROR 1062 (23000): Duplicate entry 'billing-a' for key 'PRIMARY'"),
		"oracle":    errors.New("ORA-00001: unique constraint (APP.SYS_C008) violated"),
		"sqlserver": number(2627),
	}
	others := []error{nil, errors.New("Error 1213 (40001): Deadlock found"), errors.New("Error 1452 (23000): Cannot add a row"),
		errors.New("ORA-00060: deadlock"), number(1205), number(547), state("23505"), errors.New("UNIQUE constraint failed")}
	for _, d := range dialects {
		if want, ok := errs[d.Name()]; ok && !d.Received(want) {
			t.Errorf("%s: %v isn't recognised", d.Name(), want)
		}
		for _, err := range others {
			if d.Received(err) {
				t.Errorf("%s: %v is taken for a message that is there", d.Name(), err)
			}
		}
	}
}
