package inproc_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/inproc"
)

func openDatabase(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE bills (number INTEGER)"); err != nil {
		t.Fatal(err)
	}
	return db
}

type bill struct {
	Number int `json:"number"`
}

// writeBill writes a bill and then fails for some messages.
func writeBill(ctx context.Context, tx *sql.Tx, b bill, _ sinks.Message) error {
	if _, err := tx.ExecContext(ctx, "INSERT INTO bills VALUES (?)", b.Number); err != nil {
		return err
	}
	switch b.Number {
	case 2:
		return errBoom
	case 3:
		return inproc.Permanent(errBoom)
	case 4:
		panic("no bill 4")
	case 5:
		return inproc.Unavailable(errBoom)
	}
	return nil
}

// The test calls a TxSink as a relay does.
func TestTx(t *testing.T) {
	t.Parallel()
	db := openDatabase(t)
	sink := inproc.Tx(inproc.JSONTx(writeBill))
	for payload, want := range map[string]sinks.Outcome{
		`{"number":1}`: sinks.Ok(""),
		`{"number":2}`: sinks.Fail(sinks.Retry, sinks.ReasonHandlerError, ""),
		`{"number":3}`: sinks.Fail(sinks.Reject, sinks.ReasonRefused, ""),
		`{"number":4}`: sinks.Fail(sinks.Retry, sinks.ReasonPanic, ""),
		`{"number":5}`: sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, ""),
		`{"number":`:   sinks.Fail(sinks.Reject, sinks.ReasonInvalid, ""),
	} {
		o := handleAsRelay(t, db, sink, payload)
		if o.Result != want.Result || o.Reason != want.Reason {
			t.Errorf("%s: %+v, want %+v", payload, o, want)
		}
	}
	var numbers, sum int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*), sum(number) FROM bills").Scan(&numbers, &sum); err != nil {
		t.Fatal(err)
	}
	if numbers != 1 || sum != 1 {
		t.Errorf("%d bills with the sum %d, want only bill 1", numbers, sum)
	}
}

func handleAsRelay(t *testing.T, db *sql.DB, sink sinks.TxSink, payload string) sinks.Outcome {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	o := sink.HandleTx(t.Context(), tx, sinks.Message{Message: outbox.Message{Topic: "bills", Payload: []byte(payload)}})
	if o.Result == sinks.Delivered {
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestTxDoesNothingAfterTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sink := inproc.Tx(func(context.Context, *sql.Tx, sinks.Message) error {
		t.Error("the handler was called")
		return nil
	})
	if o := sink.HandleTx(ctx, nil, sinks.Message{}); o.Result != sinks.Unsent || o.Reason != sinks.ReasonCancelled {
		t.Errorf("outcome %+v", o)
	}
}

func TestTxSinkIsUnavailableWithoutARelay(t *testing.T) {
	t.Parallel()
	sink := inproc.Tx(func(context.Context, *sql.Tx, sinks.Message) error {
		t.Error("the handler was called")
		return nil
	})
	for i, o := range sink.Send(t.Context(), make([]sinks.Message, 2)) {
		if o.Result != sinks.Unavailable || o.Reason != sinks.ReasonConfig || o.Detail == "" {
			t.Errorf("outcome %d: %+v", i, o)
		}
	}
}
