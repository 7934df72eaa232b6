package outboxdb_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
)

// A plain INSERT is the interface for producers in other languages.
func TestPlainInsert(t *testing.T) {
	const text = `{"path": "C:\\new\x00", "quote": "''"}`
	onEach(t, func(t *testing.T, db database) {
		db.exec(t, "INSERT INTO outbox (topic) VALUES (?)", "nothing")
		db.exec(t, "INSERT INTO outbox (topic, payload) VALUES (?, ?)", "bytes", everyByte)
		db.exec(t, "INSERT INTO outbox (topic, payload) VALUES (?, ?)", asBytes(db, "topic in bytes"), []byte{})
		db.exec(t, "INSERT INTO outbox (topic, payload_text) VALUES (?, ?)", "text", text)
		db.exec(t, "INSERT INTO outbox (topic, payload_text) VALUES (?, ?)", "text in bytes", []byte(text))
		literal := `a\nb\\c`
		if isMySQL(db.Kind) { // in a literal of MySQL, a backslash begins an escape sequence
			literal = strings.ReplaceAll(literal, `\`, `\\`)
		}
		db.exec(t, "INSERT INTO outbox (topic, payload_text) VALUES ('literal', '"+literal+"')")
		db.exec(t, "INSERT INTO outbox (topic, headers, message_id, priority) VALUES (?, ?, ?, ?)", "all", `{"a": "b"}`, someID, 7)
		wants := []struct{ topic, payload, text string }{
			{"nothing", "", ""}, {"bytes", string(everyByte), ""}, {"topic in bytes", "", ""},
			{"text", "", text}, {"text in bytes", "", text}, {"literal", "", `a\nb\\c`}, {"all", "", ""},
		}
		rows := db.rows(t)
		if len(rows) != len(wants) {
			t.Fatalf("%d rows, want %d", len(rows), len(wants))
		}
		for i, want := range wants {
			row := rows[i]
			if row.Topic != want.topic || string(row.Payload) != want.payload || row.Text.String != want.text || row.Text.Valid != (want.text != "") {
				t.Errorf("row %+v, want %+v", row, want)
			}
			if len(row.MessageID) != 36 || !row.Created.Valid || row.AvailableAt.Valid {
				t.Errorf("row %+v lacks a default or has a time to wait for", row)
			}
		}
		if last := rows[len(rows)-1]; last.MessageID != someID || last.Headers.String != `{"a": "b"}` || last.Priority != 7 {
			t.Errorf("row %+v", last)
		}
		if !rows[0].NoPayload || rows[2].NoPayload {
			t.Error("a missing payload and an empty one are stored alike")
		}
	})
}

func TestPlainInsertRefuses(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		for name, args := range map[string][]any{
			"topic":       {nil, nil, nil},
			"payload":     {"both", []byte("a"), "b"},
			"headers":     {"t", nil, nil, `["a"]`},
			"broken json": {"t", nil, nil, `{`},
		} {
			for len(args) < 4 {
				args = append(args, nil)
			}
			query := db.placeholders("INSERT INTO outbox (topic, payload, payload_text, headers) VALUES (?, ?, ?, ?)")
			if _, err := db.DB.ExecContext(t.Context(), query, args...); err == nil {
				t.Errorf("%s: the table accepts %q", name, args)
			}
		}
	})
}

// Go code and a plain INSERT always compute the same lane, however the driver sends the key.
func TestEveryInsertOfAKeyGetsTheSameLane(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		writer := newWriter(t, db.dialect, outbox.Options{})
		lanes := make(map[int]bool)
		for i := range 40 {
			key := fmt.Sprintf("customer-%d ü\\", i)
			message := outbox.Message{Topic: "t", Key: key}
			for _, messages := range [][]outbox.Message{{message}, copies([]outbox.Message{message}, 30)} {
				if err := writer.Write(t.Context(), outbox.WithoutTransaction(db.DB), messages...); err != nil {
					t.Fatal(err)
				}
			}
			db.exec(t, "INSERT INTO outbox (topic, message_key) VALUES ('t', ?)", key)
			db.exec(t, "INSERT INTO outbox (topic, message_key) VALUES ('t', ?)", asBytes(db, key))
			rows := db.rows(t)
			for _, row := range rows {
				if row.Lane != rows[0].Lane || row.Lane < 0 || row.Lane > 63 || row.Key.String != key {
					t.Fatalf("key %q: lanes %d and %d, key %q", key, rows[0].Lane, row.Lane, row.Key.String)
				}
			}
			lanes[rows[0].Lane] = true
			db.exec(t, "DELETE FROM outbox")
		}
		if len(lanes) < 15 {
			t.Errorf("40 keys are in %d lanes only", len(lanes))
		}
	})
}

// asBytes returns the text as bytes, because an application may also pass bytes to a driver.
// On SQLite it returns the text, because there bytes are a blob, and the table refuses a blob
// as a topic or key.
func asBytes(db database, text string) any {
	if db.Kind == testdb.SQLite {
		return text
	}
	return []byte(text)
}

func TestMessagesWithoutAKeyAreInAllLanes(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		messages := copies([]outbox.Message{{Topic: "t", Payload: bytes.Repeat([]byte("x"), 10)}}, 128)
		if err := newWriter(t, db.dialect, outbox.Options{}).Write(t.Context(), outbox.WithoutTransaction(db.DB), messages...); err != nil {
			t.Fatal(err)
		}
		lanes := make(map[int]int)
		for _, row := range db.rows(t) {
			lanes[row.Lane]++
		}
		if len(lanes) < 32 {
			t.Errorf("128 rows are in %d lanes", len(lanes))
		}
		for lane := range 64 {
			if lanes[lane] != 2 && !isMySQL(db.Kind) { // MySQL's tables choose the lane of a row without a key at random
				t.Errorf("%d of 128 rows are in lane %d", lanes[lane], lane)
			}
		}
	})
}
