package outboxdb_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

func TestKeyLocksHoldOthersBack(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		if db.Kind == testdb.SQLite {
			return // SQLite has only one writer at a time
		}
		first := db.begin(t)
		locking := newWriter(t, db.dialect, outbox.Options{KeyLocks: true})
		if err := locking.Write(t.Context(), first, outbox.Message{Topic: "t", Key: "a"}); err != nil {
			t.Fatal(err)
		}
		if err := locking.Write(t.Context(), db.impatient(t), outbox.Message{Topic: "t", Key: "b"}); err != nil {
			t.Errorf("a writer of another key: %v", err)
		}
		if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), db.impatient(t), outbox.Message{Topic: "t", Key: "a"}); err != nil {
			t.Errorf("a writer that doesn't lock: %v", err)
		}
		err := locking.Write(t.Context(), db.impatient(t), outbox.Message{Topic: "t", Key: "b"}, outbox.Message{Topic: "t", Key: "a"})
		if err == nil || !strings.Contains(err.Error(), "lock keys") {
			t.Errorf("a writer of the same key: %v, want an error because it waited too long for the lock", err)
		}
	})
}

// impatient begins a transaction whose statements fail if they wait for a lock for more than a second.
func (db database) impatient(t *testing.T) *sql.Tx {
	t.Helper()
	tx := db.begin(t)
	setting := "SET LOCAL lock_timeout = '50ms'"
	if isMySQL(db.Kind) {
		setting = "SET SESSION innodb_lock_wait_timeout = 1"
	}
	if _, err := tx.ExecContext(t.Context(), setting); err != nil {
		t.Fatal(err)
	}
	return tx
}

// The statement in the documentation for other languages takes the same lock as the Writer.
func TestDocumentedLockIsTheSame(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		documented := "SELECT pg_advisory_xact_lock(hashtextextended($1, 'outbox'::regclass::oid::bigint))"
		if isMySQL(db.Kind) {
			documented = "SELECT slot FROM outbox_key_locks WHERE slot = crc32(?) >> 22 FOR UPDATE"
		}
		if db.Kind == testdb.SQLite {
			return
		}
		if _, err := db.begin(t).ExecContext(t.Context(), documented, "a"); err != nil {
			t.Fatal(err)
		}
		if err := newWriter(t, db.dialect, outbox.Options{KeyLocks: true}).Write(t.Context(), db.impatient(t), outbox.Message{Topic: "t", Key: "a"}); err == nil {
			t.Error("a Writer doesn't wait for the documented lock")
		}
	})
}

// When a writer has its locks, it counts the committed messages of its key with lower ids. If ids
// are in the order of commits, the final count of messages with lower ids is the same.
func TestIDsOfAKeyAreInTheOrderOfCommits(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		const writers, each = 8, 20
		db.exec(t, "CREATE TABLE seen (message_id text, below int)")
		writer := newWriter(t, db.dialect, outbox.Options{KeyLocks: true})
		var running sync.WaitGroup
		for w := range writers {
			running.Go(func() {
				for range each {
					if err := db.writeAndSee(t.Context(), writer); err != nil {
						t.Errorf("writer %d: %v", w, err)
						return
					}
				}
			})
		}
		running.Wait()
		var seen, wrong int
		err := db.DB.QueryRowContext(t.Context(), db.placeholders(`SELECT count(*), coalesce(sum(CASE WHEN below <> (SELECT count(*) FROM outbox o
			WHERE o.message_key = m.message_key AND o.id < m.id) THEN 1 ELSE 0 END), 0)
			FROM seen s JOIN outbox m ON CAST(m.message_id AS text) = CAST(s.message_id AS text)`)).Scan(&seen, &wrong)
		if err != nil || seen != writers*each*2 || wrong > 0 {
			t.Errorf("%d of %d messages have an id that isn't in the order of commits; %v", wrong, seen, err)
		}
	})
}

// writeAndSee writes messages of two out of three keys in random order, and stores the counts that
// it sees.
func (db database) writeAndSee(ctx context.Context, writer *outbox.Writer) error {
	var options *sql.TxOptions
	if isMySQL(db.Kind) { // at its default level, MySQL's INSERT … SELECT locks the rows that it reads and the gaps between them
		options = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	tx, err := db.DB.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	keys := rand.Perm(3)[:2]
	messages := []outbox.Message{db.message(keys[0]), db.message(keys[1])}
	if err := writer.Write(ctx, tx, messages...); err != nil {
		return err
	}
	for _, message := range messages {
		if err := db.see(ctx, tx, message); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (db database) message(key int) outbox.Message {
	return outbox.Message{ID: outbox.NewID(), Topic: "t", Key: fmt.Sprint("key-", key)}
}

func (db database) see(ctx context.Context, tx *sql.Tx, message outbox.Message) error {
	_, err := tx.ExecContext(ctx, db.placeholders(`INSERT INTO seen SELECT CAST(? AS text), count(*) FROM outbox
		WHERE message_key = CAST(? AS text) AND id < (SELECT id FROM outbox WHERE CAST(message_id AS text) = CAST(? AS text))`),
		message.ID, message.Key, message.ID)
	return err
}
