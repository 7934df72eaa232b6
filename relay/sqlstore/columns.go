package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// Columns are a row as the database has it. What is NULL has the zero value, but
// for the flags, of which NULL are those of a plain row: dialect.HasPayload.
type Columns struct {
	ID                                int64
	Lane, Priority, Attempts, Crashes int64
	Flags                             int64
	MessageID, Topic, Key, Headers    string
	Payload                           []byte
	AvailableAt, CreatedAt            time.Time
}

// Reader reads pages by a driver's own means, such as relaypgx. One goroutine at a
// time calls it.
type Reader interface {
	// Read carries out a query over a connection of db, and has each line of what
	// dialect.Reading's Read selects taken. It ends when no more is wanted, or with
	// the error of who takes. Where the connections, or their answers, aren't of the
	// kind that it knows, it returns false before anything was taken; then it isn't
	// asked again.
	Read(ctx context.Context, db *sql.DB, query string, args []any, take TakeLine) (known bool, err error)
}

// TakeLine takes a line: its text, valid until it returns, nil for NULL; and its
// columns, of which nothing but the struct itself is used again.
type TakeLine func(text []byte, row *Columns) (more bool, err error)

// row is what the columns say.
func (c *Columns) row() (row relay.Row, err error) {
	payload := c.Payload
	if payload == nil && c.Flags&dialect.HasPayload != 0 {
		payload = []byte{} // some drivers take it for none
	}
	if size := int(c.Flags / dialect.SizeOne); size > 0 && size != len(payload) {
		return row, fmt.Errorf("row %d: the driver returned %d of its payload's %d bytes; have it fetch whole LOBs (go-ora: LOB FETCH=POST in the URL)",
			c.ID, len(payload), size)
	}
	if c.Flags&dialect.IsUTF16 != 0 {
		payload = fromUTF16(payload)
	}
	row = relay.Row{
		ID: c.ID, Lane: int(c.Lane), Attempts: int(c.Attempts), Crashes: int(c.Crashes), CreatedAt: c.CreatedAt,
		Later: c.Flags&dialect.IsLater != 0, Retrying: c.Flags&dialect.IsRetry != 0,
	}
	row.Message = outbox.Message{
		ID: c.MessageID, Topic: c.Topic, Key: c.Key, Payload: payload, AvailableAt: c.AvailableAt, Priority: int16(c.Priority),
	}
	row.Message.Headers, row.BadHeaders = readHeaders(c.Headers)
	return row, nil
}
