package backend

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
)

// Columns are a row as the database has it. What is NULL has the zero value, but
// for the flags, of which NULL are those of a plain row: HasPayload.
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
	// Read carries out a query over a connection of db, and has each of its lines, a text and a row,
	// taken. It ends when no more is wanted, or with
	// the error of who takes. Where the connections, or their answers, aren't of the
	// kind that it knows, it returns false before anything was taken; then it isn't
	// asked again.
	Read(ctx context.Context, db *sql.DB, query string, args []any, take TakeLine) (known bool, err error)
}

// TakeLine takes a line: its text, valid until it returns, nil for NULL; and its
// columns, of which nothing but the struct itself is used again.
type TakeLine func(text []byte, row *Columns) (more bool, err error)

func (c *Columns) destinations() []any {
	return []any{(*number)(&c.ID), (*number)(&c.Lane), (*text)(&c.MessageID), (*text)(&c.Topic), (*text)(&c.Key), &c.Payload, (*text)(&c.Headers),
		(*moment)(&c.AvailableAt), (*number)(&c.Priority), (*number)(&c.Attempts), (*number)(&c.Crashes), (*moment)(&c.CreatedAt), (*flags)(&c.Flags)}
}

// Row is what the columns say.
func (c *Columns) Row() (row relay.Row, err error) {
	payload := c.Payload
	if payload == nil && c.Flags&HasPayload != 0 {
		payload = []byte{} // some drivers take it for none
	}
	if size := int(c.Flags / SizeOne); size > 0 && size != len(payload) {
		return row, fmt.Errorf("row %d: the driver returned %d of its payload's %d bytes; have it fetch whole LOBs (go-ora: LOB FETCH=POST in the URL)",
			c.ID, len(payload), size)
	}
	if c.Flags&IsUTF16 != 0 {
		payload = fromUTF16(payload)
	}
	row = relay.Row{
		ID: c.ID, Lane: int(c.Lane), Attempts: int(c.Attempts), Crashes: int(c.Crashes), CreatedAt: c.CreatedAt,
		Later: c.Flags&IsLater != 0, Retrying: c.Flags&IsRetry != 0,
	}
	row.Message = outbox.Message{
		ID: c.MessageID, Topic: c.Topic, Key: c.Key, Payload: payload, AvailableAt: c.AvailableAt, Priority: int16(c.Priority),
	}
	row.Message.Headers, row.BadHeaders = readHeaders(c.Headers)
	return row, nil
}

// ReadPage reads a first line and the rows of a page: a text, then a row. Each line
// has the text and a row; or the first one has the text and a row whose id is 0, and
// the others have no text. It reads with the reader, if that isn't nil and knows the
// connections; known is false if it doesn't.
func ReadPage(ctx context.Context, db *sql.DB, reader Reader, query Query, take func(relay.Row) (more bool, err error)) (line FirstLine, known bool, err error) {
	takeLine := func(text []byte, columns *Columns) (more bool, err error) {
		if text != nil && !line.Told {
			if line, err = ParseFirstLine(string(text)); err != nil {
				return false, err
			}
		}
		if columns.ID == 0 {
			return true, nil
		}
		row, err := columns.Row()
		if err != nil {
			return false, err
		}
		return take(row)
	}
	if reader != nil {
		if known, err = reader.Read(ctx, db, query.SQL, query.Args, takeLine); known || err != nil {
			return line, true, err
		}
	}
	var text sql.RawBytes
	err = ScanRows(ctx, db, query, func(c *Columns) (bool, error) { return takeLine(text, c) }, &text)
	return line, false, err
}
