package main

import (
	"testing"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

// The page can write a message on each database.
func TestPageWritesMessages(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		database, err := config.ParseDatabase(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		page, err := openPage(t.Context(), config.Source{Name: "shop", Database: database, Table: config.DefaultTable})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := page.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err := page.Write(t.Context(), outbox.Message{Topic: "copies", Headers: map[string]string{"copy-of": "x"}}); err != nil {
			t.Fatal(err)
		}
		if got := list(t, db, "--topic-prefix", "cop"); len(got) != 1 || got[0].Topic != "copies" {
			t.Errorf("the table has %+v, want the message", got)
		}
		if got := list(t, db, "--topic-prefix", "opie"); len(got) != 0 {
			t.Errorf("another prefix found %+v", got)
		}
	})
}
