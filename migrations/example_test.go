package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func ExampleMigrations_Up() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	tables, err := migrations.New(db, dialect.SQLite(), migrations.Options{Table: "shop_outbox"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // several processes may call Up concurrently, and at each start
		applied, err := tables.Up(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("migrations applied:", len(applied))
	}
	// Output:
	// migrations applied: 2
	// migrations applied: 0
}
