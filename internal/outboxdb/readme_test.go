package outboxdb_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

var sqlInReadme = regexp.MustCompile("(?s)```sql\n(.*?)```")

// TestReadmeSQLRuns runs the SQL in the README for producers in other languages.
func TestReadmeSQLRuns(t *testing.T) {
	readme, err := os.ReadFile("../../outbox/README.md")
	if err != nil {
		t.Fatal(err)
	}
	onPostgres(t, func(t *testing.T, db database) {
		db.DB.SetMaxOpenConns(1)
		role := db.roleName(t) // the name must be unique, because all databases of a server share its roles
		t.Cleanup(func() { db.dropRole(t, role) })
		for _, block := range sqlInReadme.FindAllStringSubmatch(string(readme), -1) {
			db.script(t, strings.ReplaceAll(block[1], "shop_producer", role))
			if strings.Contains(block[1], "INSERT INTO outbox_ids") {
				db.script(t, block[1]) // this writes a duplicate
			}
		}
		outboxtest.Expect(t, outboxtest.Messages(t, db.DB, db.dialect, "outbox"),
			outbox.Message{Topic: "orders.paid", Key: "order-42", Payload: []byte(`{"order": 42}`)},
			outbox.Message{Topic: "paths", Payload: []byte(`{"path": "C:\\new"}`)},
			outbox.Message{Topic: "orders.paid", Key: "order-42"},
			outbox.Message{Topic: "invoices.sent", Payload: []byte(`{"invoice": 42}`)}) // the reminder was cancelled
	})
}

// script runs statements one by one, because some drivers accept only one.
func (db database) script(t *testing.T, statements string) {
	t.Helper()
	for statement := range strings.SplitSeq(statements, ";\n") {
		if strings.TrimSpace(statement) != "" {
			db.exec(t, statement)
		}
	}
}
