package outboxdb_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
)

// BenchmarkWrite compares a Write with a handwritten INSERT. Each runs in its own transaction,
// whose commit doesn't wait for the disk. The two take turns, so other load on the machine affects
// both. The figures are medians.
func BenchmarkWrite(b *testing.B) {
	for _, target := range targets() {
		b.Run(target.Name, func(b *testing.B) {
			db := unsynced(b, target)
			for _, count := range []int{1, 10, 1000} {
				b.Run(fmt.Sprintf("messages=%d", count), func(b *testing.B) { db.compareWrites(b, count) })
			}
		})
	}
}

// unsynced returns a database with one connection. Its commits don't wait for the disk.
func unsynced(b *testing.B, target testdb.Target) database {
	db := migrated(b, target, "outbox")
	db.DB.SetMaxOpenConns(1)
	db.exec(b, map[string]string{testdb.Postgres: "SET synchronous_commit = off", testdb.SQLite: "PRAGMA synchronous = OFF",
		testdb.MySQL: "DO 0", testdb.MariaDB: "DO 0"}[db.Kind])
	return db
}

func (db database) compareWrites(b *testing.B, count int) {
	writer, err := outbox.NewWriter(db.dialect, outbox.Options{})
	if err != nil {
		b.Fatal(err)
	}
	messages := copies([]outbox.Message{{Topic: "orders.paid", Key: "order-42", Payload: bytes.Repeat([]byte("x"), 300),
		Headers: map[string]string{"content-type": "application/json"}}}, count)
	db.exec(b, "DELETE FROM outbox")
	var byHand, byWrite []time.Duration
	for b.Loop() {
		byHand = append(byHand, db.timed(b, func(tx outbox.Execer) error { return db.insertByHand(b.Context(), tx, messages) }))
		byWrite = append(byWrite, db.timed(b, func(tx outbox.Execer) error { return writer.Write(b.Context(), tx, messages...) }))
	}
	slices.Sort(byHand)
	slices.Sort(byWrite)
	hand, write := byHand[len(byHand)/2], byWrite[len(byWrite)/2]
	b.ReportMetric(float64(hand.Microseconds()), "µs/hand")
	b.ReportMetric(float64(write.Microseconds()), "µs/Write")
	b.ReportMetric(float64(write)/float64(hand), "Write/hand")
	b.ReportMetric(0, "ns/op") // the total time of both, which is meaningless
}

// BenchmarkSource measures the cost of the index for cancelling messages, and of refusing
// duplicates. It compares Writes to a table without the index for cancelling, Writes to a table with
// the index, and Writes by a Writer that refuses duplicates. The three take turns, each in its own
// transaction.
func BenchmarkSource(b *testing.B) {
	for _, target := range targets() {
		b.Run(target.Name, func(b *testing.B) {
			db := unsynced(b, target)
			bare, err := migrations.New(db.DB, db.dialect, migrations.Options{Table: "bare"})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := bare.Up(b.Context()); err != nil {
				b.Fatal(err)
			}
			if !isMySQL(db.Kind) { // MySQL and MariaDB have no such index
				db.exec(b, "DROP INDEX bare_scheduled")
			}
			for _, count := range []int{1, 100} {
				b.Run(fmt.Sprintf("messages=%d", count), func(b *testing.B) { db.compareSources(b, count) })
			}
		})
	}
}

func (db database) compareSources(b *testing.B, count int) {
	message := outbox.Message{Topic: "orders.paid", Payload: bytes.Repeat([]byte("x"), 300)}
	var writers []*outbox.Writer
	names := []string{"bare", "outbox", "refusing"}
	for _, options := range []outbox.Options{{Table: "bare"}, {}, {Duplicates: outbox.RefuseDuplicates}} {
		writer, err := outbox.NewWriter(db.dialect, options)
		if err != nil {
			b.Fatal(err)
		}
		writers = append(writers, writer)
	}
	times := make([][]time.Duration, len(writers))
	for n := 0; b.Loop(); n++ {
		messages := copies([]outbox.Message{message}, count)
		for i := range messages {
			messages[i].ID, messages[i].Key = outbox.NewID(), fmt.Sprint(n%1000)
		}
		for i := range writers { // each writer is the first equally often
			at := (i + n) % len(writers)
			times[at] = append(times[at], db.timed(b, func(tx outbox.Execer) error { return writers[at].Write(b.Context(), tx, messages...) }))
		}
		if n%500 == 499 { // a relay would also delete the rows meanwhile
			db.exec(b, "DELETE FROM bare")
			db.exec(b, "DELETE FROM outbox")
		}
	}
	for i := range times {
		slices.Sort(times[i])
		median := times[i][len(times[i])/2]
		b.ReportMetric(float64(median.Microseconds()), "µs/"+names[i])
		b.ReportMetric(float64(median)/float64(times[0][len(times[0])/2]), names[i]+"/bare")
	}
	b.ReportMetric(0, "ns/op") // the total time of all writers, which is meaningless
}

func (db database) timed(b *testing.B, write func(outbox.Execer) error) time.Duration {
	start := time.Now()
	tx, err := db.DB.BeginTx(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := write(tx); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func (db database) insertByHand(ctx context.Context, tx outbox.Execer, messages []outbox.Message) error {
	var values strings.Builder
	var args []any
	for i, message := range messages {
		if n := 5 * i; db.Kind == testdb.Postgres {
			fmt.Fprintf(&values, ", ($%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5)
		} else {
			values.WriteString(", (?, ?, ?, ?, ?)")
		}
		args = append(args, someID, message.Topic, message.Key, message.Payload, `{"content-type": "application/json"}`)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO outbox (message_id, topic, message_key, payload, headers) VALUES "+values.String()[2:], args...)
	return err
}
