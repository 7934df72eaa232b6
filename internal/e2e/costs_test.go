package e2e

import (
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

// What a message costs PostgreSQL and its writers: with the users' own loop, and when the table is
// adopted. The server belongs to the test alone and syncs its log. Only with -long, because it measures.
func TestCostsOfAdoptedTables(t *testing.T) {
	if !*long {
		t.Skip("it measures: give -long")
	}
	const transactions = 2000 // the number of transactions of each of the four writers
	server := newOwn(t, "postgres15", testdb.Postgres, "-c", "fsync=on", "-c", "autovacuum=off", "-c", "max_wal_size=4GB", "-c", "checkpoint_timeout=1h")
	server.start()
	for _, cost := range []struct{ name, way, retention string }{
		{"own loop", "", ""}, {"trigger", "trigger", "24h"}, {"trigger, retention 0", "trigger", "0s"}, {"view", "view", "24h"}, {"view, retention 0", "view", "0s"},
		{"own loop, again", "", ""},
	} {
		name := "costs_" + fmt.Sprint(time.Now().UnixNano())
		server.exec("CREATE DATABASE " + name)
		db := server.open(server.address(), name, "")
		driver, dsn := server.dsn(server.address(), name, "")
		a := createAdopted(t, testdb.Database{Name: name, Kind: server.kind, Driver: driver, DSN: dsn, URL: server.url(server.address(), name), DB: db}, handmade, cost.way)
		if cost.way != "" {
			a.must(a.adopting()...)
		}
		server.exec("CHECKPOINT")
		began := a.wal()
		a.writeAtOnce(transactions)
		written := a.wal()
		if cost.way == "" {
			a.ownLoop()
		} else {
			a.must("run", "--database", a.owner, "--table", a.outbox, "--sink", "discard:", "--drain", "--retention", cost.retention)
		}
		relayed := a.wal()
		committed, took := a.soFar()
		n := int64(len(committed))
		t.Logf("%-20s  WAL per message: %4d bytes by the writers, %4d in all; transactions took %s (p50, p99); %d messages", cost.name, (written-began)/n, (relayed-began)/n, latencies(took), n)
	}
}

// The time that transactions of writers take before and after the adoption, on each database. Only with -long, because it
// measures.
func TestLatencyOfAdoptedTables(t *testing.T) {
	if !*long {
		t.Skip("it measures: give -long")
	}
	for _, target := range []string{"postgres15/pgx", "mysql/gosql", "mariadb1011/gosql", "sqlite/modernc"} {
		for _, way := range handmade.ways(target) {
			t.Run(target+"/"+way, func(t *testing.T) {
				a := newAdopted(t, target, handmade, way)
				a.writeAtOnce(100) // not measured
				a.soFar()
				a.writeAtOnce(500)
				_, before := a.soFar()
				a.must(a.adopting()...)
				a.writeAtOnce(500)
				_, after := a.soFar()
				t.Logf("transactions of four writers took %s before and %s after (p50, p99)", latencies(before), latencies(after))
			})
		}
	}
}

// writeAtOnce lets each writer end this many transactions, without pauses.
func (a *adopted) writeAtOnce(transactions int) {
	a.t.Helper()
	var all sync.WaitGroup
	for _, w := range a.writers {
		all.Go(func() {
			for range transactions {
				if err := w.transaction(a.t.Context()); err != nil {
					a.t.Errorf("writer %d: %v", w.number, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// wal returns the position of the write-ahead log.
func (a *adopted) wal() (at int64) {
	check(a.t, a.DB.QueryRow("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").Scan(&at))
	return at
}

// ownLoop is the relay that many teams write by hand: it marks what it has sent, a hundred rows at a time.
func (a *adopted) ownLoop() {
	for {
		tx, err := a.DB.BeginTx(a.t.Context(), nil)
		check(a.t, err)
		rows, err := tx.Query("SELECT id, payload FROM outbox WHERE published_at IS NULL ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED")
		check(a.t, err)
		ids := scanAll(a.t, rows)
		_, err = tx.Exec("UPDATE outbox SET published_at = now() WHERE id = ANY ($1)", ids)
		check(a.t, err)
		check(a.t, tx.Commit())
		if len(ids) == 0 {
			return
		}
	}
}

func scanAll(t testing.TB, rows *sql.Rows) (ids []string) {
	defer rows.Close()
	for rows.Next() {
		var id, payload string
		check(t, rows.Scan(&id, &payload))
		ids = append(ids, id)
	}
	check(t, rows.Err())
	return slices.Clip(ids)
}
