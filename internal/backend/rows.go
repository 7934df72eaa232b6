package backend

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Lists of columns of the tables outbox, outbox_held and outbox_done.
const (
	// Kept are the columns whose values a row keeps when it moves to another table.
	Kept = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks"

	// Changing are the columns that a settlement may change.
	Changing = "attempts, crashes, available_at, last_error"

	// ChangingHeld are the columns of the held table that a settlement may change, other than the state.
	ChangingHeld = Changing + ", attempt_log"
)

// A copy is a new message that is written from a row: see [storage.Copy]. Each database writes copies with
// an INSERT INTO outbox … SELECT from t, the rows that are copied, and g, the list of copies. For each copy,
// g has the lane, id and message_id of the row t, and the values copy_id, copy_topic, copy_headers and
// copy_sinks. In Go, a copy is the DeadLetter of a settlement that names the row.
const (
	// CopyInto are the columns that the INSERT fills. All other columns get their defaults.
	CopyInto = "message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks"
)

// CopyFrom returns the SQL expressions for the columns CopyInto. Its argument is the expression for the database's
// current time.
func CopyFrom(now string) string {
	return "g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, " + CopiedExpiry(now) + ", g.copy_sinks"
}

// CopiedExpiry returns the SQL expression for a copy's expires_at: the row's expires_at, or NULL if that time has passed.
func CopiedExpiry(now string) string {
	return "CASE WHEN t.expires_at > " + now + " THEN t.expires_at END"
}

// KeptFor returns the columns Kept of a row t, with the given SQL expression in place of the column `sinks`.
func KeptFor(sinks string) string { return strings.TrimSuffix(Of("t", Kept), "t.sinks") + sinks }

// Of returns a list of columns, each qualified by the name of a table or subquery.
func Of(name, columns string) string {
	return name + "." + strings.ReplaceAll(columns, ", ", ", "+name+".")
}

// A statement that reads rows selects these columns, in this order: id, lane, message_id, topic, message_key,
// sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags.
// NULL may stand for an empty key, no sinks, no headers or the number 0. NULL in the column flags stands
// for HasPayload, because most rows have only this flag. The flags are the sum of the values below. Some
// statements add the payload's size, multiplied by [SizeOne].
const (
	HasPayload = 1 // the payload isn't NULL, though it may be empty
	IsLater    = 2 // available_at is in the future
	IsRetry    = 4 // the row is a held row that waits for its next attempt
	IsUTF16    = 8 // the payload is text in UTF-16, little-endian, which Row converts to UTF-8

	HoldsOne = 16 // multiplied by the value of the column `holds`, which is at most 3
)

// Undecided is the SQL condition under which a settlement g may park the held row t: either no operator wants the row
// skipped or discarded, or the settlement parks the row without a hold on its key. Without this condition, a relay that
// parks the row twice, because the first answer was lost, would undo an operator's decision made in between.
const Undecided = "(t.holds < 2 OR g.holds = 0)"

// UndecidedStays is the condition that replaces Undecided in statements that also write retries. A retry that is
// written a second time must not undo an operator's decision either.
const UndecidedStays = "(t.holds < 2 OR g.holds = 0 AND g.state <> 'retry')"

// AsRead returns the SQL condition that the available_at of the held row t isn't later than it was when the row was read.
// Statements use it for settlements that leave the row in the held table or write a dead letter. A later time means that the
// row was settled already or that an operator changed it. So if the relay repeats a settlement whose answer was lost, the
// repeat changes nothing.
func AsRead(readAt string) string {
	return "(t.available_at IS NULL OR t.available_at <= " + readAt + ")"
}

// ReadAt returns the time for AsRead: the settlement's AvailableAt plus a millisecond, which is the coarsest unit to which a
// database rounds. If the settlement has no AvailableAt, ReadAt returns a time that is later than any row's.
func ReadAt(s *storage.Settlement) time.Time {
	if s.AvailableAt.IsZero() {
		return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	}
	return s.AvailableAt.Add(time.Millisecond)
}

// HoldsOf returns the value that a settlement writes to the column `holds`.
func HoldsOf(s *storage.Settlement) int64 {
	if s.State == storage.StateError && s.Holds {
		return int64(storage.HoldsKey)
	}
	return int64(storage.NoHold)
}

// SizeOne is the number that each byte of a payload adds to the row's flags. Statements add the size only if a driver
// may cut payloads off, or if they leave out large payloads (see [ReadFree]).
const SizeOne = 1 << 16

// Columns has the values of a row's columns. A NULL becomes the zero value of its field, or HasPayload in Flags.
type Columns struct {
	ID                                int64
	Lane, Priority, Attempts, Crashes int64
	Flags                             int64
	MessageID, Topic, Key             string
	Sinks, Headers                    string
	Payload                           []byte
	AvailableAt, ExpiresAt, CreatedAt time.Time

	// Malformed describes the first column that can't be read, if any. That column's field has the zero value.
	Malformed string
}

// neverExpires is the year in the expires_at of a message that was requeued after it had expired. [outbox.Writer]
// accepts no expiry time in this year.
const neverExpires = 9999

// mostCounted is the maximum number of attempts, and of crashes, of a row that is read. Row lowers higher numbers to it, so
// that columns of 32 bits don't overflow when a relay increases the numbers.
const mostCounted = 2_000_000_000

// Row converts the columns to a row. A column that can't be read makes the row malformed instead of causing an error,
// so that one row never makes a whole page unreadable. Row returns an error only if the driver has cut the payload off.
func (c *Columns) Row() (row storage.Row, err error) {
	payload := c.Payload
	if payload == nil && c.Flags&HasPayload != 0 {
		payload = []byte{} // some drivers return nil for an empty payload
	}
	if size := int(c.Flags / SizeOne); size > 0 && size != len(payload) {
		return row, fmt.Errorf("row %d: the driver returned %d of its payload's %d bytes; have it fetch whole LOBs (go-ora: LOB FETCH=POST in the URL)",
			c.ID, len(payload), size)
	}
	if c.Flags&IsUTF16 != 0 {
		payload = fromUTF16(payload)
	}
	row = storage.Row{
		ID: c.ID, Lane: int(c.Lane), Sinks: c.Sinks, Attempts: int(min(c.Attempts, mostCounted)), Crashes: int(min(c.Crashes, mostCounted)), CreatedAt: c.CreatedAt,
		Later: c.Flags&IsLater != 0, Retrying: c.Flags&IsRetry != 0, Holds: storage.Hold(c.Flags / HoldsOne % 4),
	}
	row.Message = outbox.Message{
		ID: c.MessageID, Topic: c.Topic, Key: c.Key, Payload: payload, AvailableAt: c.AvailableAt, ExpiresAt: c.ExpiresAt, Priority: int16(c.Priority),
	}
	if c.ExpiresAt.Year() >= neverExpires {
		row.NeverExpires, row.Message.ExpiresAt = true, time.Time{}
	}
	row.Message.AvailableAt = c.readable("available_at", row.Message.AvailableAt)
	row.Message.ExpiresAt = c.readable("expires_at", row.Message.ExpiresAt)
	row.CreatedAt = c.readable("created_at", row.CreatedAt)
	if c.Lane < 0 || c.Lane >= storage.Lanes {
		c.malformed("lane", strconv.FormatInt(c.Lane, 10))
	}
	if !IsMessageID(c.MessageID) {
		c.malformed("message_id", c.MessageID)
	}
	if row.Malformed = c.Malformed; row.Malformed != "" {
		row.Later = false // the relay parks a malformed row immediately
		return row, nil
	}
	if c.Headers == "" {
		return row, nil
	}
	row.Message.Headers, row.Malformed = headersOf(c.Headers)
	return row, nil
}

// headersOf reads the JSON of headers. A number or a boolean becomes its text, because programs in many languages don't
// convert it to a string; null means that the message doesn't have the header. Any other value makes the row malformed.
func headersOf(text string) (headers map[string]string, malformed string) {
	if !strings.Contains(text, "null") && json.Unmarshal([]byte(text), &headers) == nil { // all values are strings
		return headers, ""
	}
	var values map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()                                                          // keeps all digits
	if err := decoder.Decode(&values); err != nil || !json.Valid([]byte(text)) { // Decode ignores text after the object
		return nil, "the headers aren't a JSON object"
	}
	headers = make(map[string]string, len(values))
	for name, value := range values {
		switch value := value.(type) {
		case nil:
		case string, bool, json.Number:
			headers[name] = fmt.Sprint(value)
		default:
			return nil, fmt.Sprintf("the header %.100q is an object or array", name)
		}
	}
	return headers, ""
}

// IsMessageID reports whether the id has the form of a message's id: 36 hexadecimal digits and hyphens. Such an id is
// safe to put into the text of a statement.
func IsMessageID(id string) bool {
	for i := range len(id) {
		if c := id[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return len(id) == 36
}

// readable returns the time if its year is between 0 and 9999, since JSON and most databases allow no other years.
// Otherwise it returns the zero time and marks the row as malformed.
func (c *Columns) readable(column string, at time.Time) time.Time {
	if year := at.Year(); year < 0 || year > 9999 {
		c.malformed(column, at.String())
		return time.Time{}
	}
	return at
}

// malformed records the first column that can't be read.
func (c *Columns) malformed(column, value string) {
	if c.Malformed == "" {
		c.Malformed = fmt.Sprintf("the column %s can't be read: %.100q", column, value)
	}
}

// lenient scans a column. A value that can't be scanned makes the row malformed instead of causing an error.
type lenient struct {
	sql.Scanner
	column string
	row    *Columns
}

func (l lenient) Scan(value any) error {
	if l.Scanner.Scan(value) != nil {
		_ = l.Scanner.Scan(nil)
		if bytes, ok := value.([]byte); ok {
			value = string(bytes)
		}
		l.row.malformed(l.column, fmt.Sprint(value))
	}
	return nil
}

// fromUTF16 converts text in UTF-16, little-endian, to UTF-8. An unpaired surrogate becomes U+FFFD.
func fromUTF16(text []byte) []byte {
	units := make([]uint16, len(text)/2)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(text[2*i:])
	}
	converted := make([]byte, 0, len(text))
	for _, r := range utf16.Decode(units) {
		converted = utf8.AppendRune(converted, r)
	}
	return converted
}

// FirstLine describes the server and the snapshot of a read. The query of a read returns it as a text, in the first row
// of the result or in each row.
type FirstLine struct {
	// Told reports whether the read returned a FirstLine. Some databases return it only as a part of each message's
	// row, so they return none if there are no messages.
	Told bool

	LastID   int64  // the highest id that was issued; unused if the backend is a [TransactionLister]
	XID      uint64 // the number of the read's transaction, or 0 if the transaction has none
	Snapshot string // the read's snapshot in PostgreSQL's format; unused unless the frontier is Snapshots
	Server   string // the epoch of the server, as in [storage.Page]; empty if the frontier is OneWriter
}

// Scan parses the text of a FirstLine: words that are separated by blanks. The first two words are the last id and a 0.
// They may be followed by the server, or by the xid, the snapshot and the server.
func (f *FirstLine) Scan(value any) (err error) {
	var text string
	switch value := value.(type) {
	case string:
		text = value
	case []byte:
		text = string(value)
	}
	var zero int64
	switch len(strings.Fields(text)) {
	case 2:
		_, err = fmt.Sscan(text, &f.LastID, &zero)
	case 3:
		_, err = fmt.Sscan(text, &f.LastID, &zero, &f.Server)
	case 5:
		_, err = fmt.Sscan(text, &f.LastID, &zero, &f.XID, &f.Snapshot, &f.Server)
	default:
		err = errors.New("want 2, 3 or 5 words")
	}
	if err != nil {
		return fmt.Errorf("read the server's state from %q: %w", text, err)
	}
	f.Told = true
	return nil
}

// Reader reads pages through a driver's own interface instead of database/sql, as relaypgx does. Only one goroutine
// at a time calls it.
type Reader interface {
	// Read runs a query over a connection of db, and calls the function `take` for each row of the result. The row
	// consists of a text, for the [FirstLine], and the columns of a message's row. Read ends when `take` returns false
	// or an error, and returns that error. If Read doesn't support the connection or the types of the result, it
	// returns false before it calls `take`, and isn't called again.
	Read(ctx context.Context, db *sql.DB, query string, args []any, take TakeLine) (known bool, err error)
}

// TakeLine receives the text and the columns from one row of the result. The text is nil for NULL, and valid only until
// TakeLine returns. The caller reuses the struct of the columns, but not the memory that its fields refer to.
type TakeLine func(text []byte, row *Columns) (more bool, err error)

// ReadPage reads the [FirstLine] and the messages of a page. Each row of the query's result has a column for the text of the
// FirstLine, followed by the columns of a message's row. Either all rows of the result have the text, or only the first one
// has it, with the id 0 and no message. ReadPage uses the reader unless it is nil or doesn't support the connections. The
// result `known` reports whether the reader was used.
func ReadPage(ctx context.Context, db *sql.DB, reader Reader, query Query, take func(storage.Row) (more bool, err error)) (line FirstLine, known bool, err error) {
	takeLine := func(text []byte, columns *Columns) (more bool, err error) {
		if text != nil && !line.Told {
			if err := line.Scan(text); err != nil {
				return false, err
			}
		}
		if columns.ID == 0 && columns.MessageID == "" { // this row has only the text of the FirstLine
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
	err = ScanRows(ctx, db, query, []any{&text}, nil, func(c *Columns) (bool, error) { return takeLine(text, c) })
	return line, false, err
}

// ScanRows scans the rows of a result that has other columns before and after a message's columns, and calls the function
// `take` for each row. The two slices are the destinations of the other columns.
func ScanRows(ctx context.Context, q Querier, query Query, before, after []any, take func(*Columns) (more bool, err error)) error {
	var c Columns
	destinations := slices.Concat(before, []any{
		(*number)(&c.ID), (*number)(&c.Lane), (*text)(&c.MessageID), (*text)(&c.Topic), (*text)(&c.Key), (*text)(&c.Sinks), &c.Payload, (*text)(&c.Headers),
		lenient{(*moment)(&c.AvailableAt), "available_at", &c}, lenient{(*moment)(&c.ExpiresAt), "expires_at", &c},
		lenient{(*number)(&c.Priority), "priority", &c}, lenient{(*number)(&c.Attempts), "attempts", &c}, lenient{(*number)(&c.Crashes), "crashes", &c},
		lenient{(*moment)(&c.CreatedAt), "created_at", &c}, (*flags)(&c.Flags),
	}, after)
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		c.Payload, c.Malformed = nil, "" // don't overwrite the payload of the previous row
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		return take(&c)
	})
}

// ReadRows returns the rows of a query.
func ReadRows(ctx context.Context, q Querier, query Query) (rows []storage.Row, err error) {
	err = ScanRows(ctx, q, query, nil, nil, func(c *Columns) (bool, error) {
		row, err := c.Row()
		rows = append(rows, row)
		return true, err
	})
	return rows, err
}

// ReadFree returns the rows that a query has locked to claim them. A backend calls it if the database's query can't count the bytes:
// if maxBytes is positive, ReadFree stops after the row with which the payloads reach maxBytes. For a large payload, the
// query may select NULL and add the payload's size, multiplied by [SizeOne], to the flags. ReadFree then reads the missing
// payloads of the returned rows with the query that the function `pick` returns.
func ReadFree(ctx context.Context, q Querier, query Query, maxBytes int, pick func([]storage.RowID) Query) (free []storage.Row, err error) {
	bytes := 0
	var left []storage.RowID
	err = ScanRows(ctx, q, query, nil, nil, func(c *Columns) (more bool, err error) {
		size := len(c.Payload)
		if withheld := int(c.Flags / SizeOne); c.Payload == nil && withheld > 0 {
			left = append(left, storage.RowID{Lane: int(c.Lane), ID: c.ID})
			size, c.Flags = withheld, c.Flags%SizeOne
		}
		row, err := c.Row()
		free, bytes = append(free, row), bytes+size
		return maxBytes <= 0 || bytes < maxBytes, err
	})
	if err != nil {
		return nil, err
	}
	const pickedAtOnce = 500
	payloads := make(map[int64][]byte, len(left))
	for part := range slices.Chunk(left, pickedAtOnce) {
		rows, err := ReadRows(ctx, q, pick(part))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			payloads[row.ID] = row.Message.Payload
		}
	}
	for i := range free {
		if payload, picked := payloads[free[i].ID]; picked {
			free[i].Message.Payload = payload
			delete(payloads, free[i].ID)
			left = left[1:]
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("%d locked rows were not found again; please report this with the database's version", len(left))
	}
	return free, nil
}

// ReadInfos reads rows whose columns are followed by state, last_error, receipt, claimed_by and finished_at. It stops after
// the row with which the payloads reach maxBytes, but still returns the next rows with the same id, because a message of
// several sinks may have several rows.
func ReadInfos(ctx context.Context, q Querier, query Query, maxBytes int) (infos []storage.Info, err error) {
	var info storage.Info
	var finished moment
	after := []any{&info.State, (*text)(&info.LastError), (*text)(&info.Receipt), (*text)(&info.ClaimedBy), lenient{&finished, "finished_at", &Columns{}}}
	err = ScanRows(ctx, q, query, nil, after, func(c *Columns) (bool, error) {
		row, err := c.Row()
		if maxBytes <= 0 && row.ID != infos[len(infos)-1].ID {
			return false, err
		}
		info.Row, info.FinishedAt = row, time.Time(finished)
		infos = append(infos, info)
		maxBytes -= len(row.Message.Payload)
		return true, err
	})
	return infos, err
}

// ReadLastDelivered reads id, lane, message id, topic, key, sinks, attempts, created_at and finished_at of each
// done row.
func ReadLastDelivered(ctx context.Context, q Querier, query Query) (infos []storage.Info, err error) {
	var id, lane, attempts number
	var message, topic, key, sinks text
	var created, finished moment
	var unread Columns // ignored, because a malformed column of a delivered message does no harm here
	err = All(ctx, q, query, func() {
		info := storage.Info{State: storage.StateDone, FinishedAt: time.Time(finished)}
		info.ID, info.Lane, info.Attempts, info.Sinks, info.CreatedAt = int64(id), int(lane), int(attempts), string(sinks), time.Time(created)
		info.Message.ID, info.Message.Topic, info.Message.Key = string(message), string(topic), string(key)
		infos = append(infos, info)
	}, &id, &lane, &message, &topic, &key, &sinks, lenient{&attempts, "attempts", &unread}, lenient{&created, "created_at", &unread}, lenient{&finished, "finished_at", &unread})
	return infos, err
}

// ReadCandidates reads id, lane, topic, key, sinks and size of each row.
func ReadCandidates(ctx context.Context, q Querier, query Query, take func(storage.Candidate) (more bool, err error)) error {
	var c storage.Candidate
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		if err := rows.Scan(&c.ID, &c.Lane, &c.Topic, (*text)(&c.Key), (*text)(&c.Sinks), &c.Bytes); err != nil {
			return false, err
		}
		return take(c)
	})
}

// ReadRemaining reads id, lane, message id, topic, key and sinks of each row, and a number that is 1 for a held row.
func ReadRemaining(ctx context.Context, q Querier, query Query, each func(*storage.Row) (more bool)) error {
	var row storage.Row
	var lane, held number
	m := &row.Message
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		err := rows.Scan((*number)(&row.ID), &lane, (*text)(&m.ID), (*text)(&m.Topic), (*text)(&m.Key), (*text)(&row.Sinks), &held)
		row.Lane, row.Deferred = int(lane), held == 1
		return err == nil && each(&row), err
	})
}

// LogOf identifies the row of an attempt log among the rows of one table.
type LogOf struct {
	storage.RowID
	MessageID, Sinks string
}

// ReadAttemptLogs reads id, lane, message id, sinks and attempt_log of each row.
func ReadAttemptLogs(ctx context.Context, q Querier, query Query) (logs map[LogOf]storage.AttemptLog, err error) {
	logs = map[LogOf]storage.AttemptLog{}
	var id, lane number
	var message, sinks, log text
	err = All(ctx, q, query, func() {
		of := LogOf{storage.RowID{Lane: int(lane), ID: int64(id)}, strings.ToLower(string(message)), string(sinks)}
		logs[of] = storage.ParseAttemptLog(string(log))
	}, &id, &lane, &message, &sinks, &log)
	return logs, err
}

// ReadParked passes the parked rows t that meet an SQL condition to the function `each`, in the order that the filter
// requests. The parameter `held` names the table of held rows with its alias t, and may have an index hint. The parameters `where`
// and `args` contain the condition and its arguments, `shortError` is the SQL expression for a
// row's error, and `headers` is the SQL expression for the text of a done row's headers.
//
// A parked row was overtaken if a later message of its key was delivered. To find such rows, ReadParked reads done rows whose
// ids exceed the lowest parked id by at most `within`. It leaves out dead letters and a replay's copies, which it recognises by
// their headers. If `within` is 0, it reads no done rows.
func ReadParked(ctx context.Context, q Querier, table dialect.Table, held, shortError, headers, where string, args []any, filter Filter, within int64, each func(storage.Parked)) error {
	parked := "FROM " + held + "\nWHERE t.state = 'error' AND " + where
	var row storage.Parked
	var id, lane, holds number
	order := ""
	if filter.NewestFirst {
		order = " DESC"
	}
	delivered := map[string]int64{}
	if within > 0 {
		var lowest number
		if err := One(ctx, q, Query{SQL: "SELECT min(t.id) " + parked, Args: args}, &lowest); err != nil || lowest == 0 {
			return err
		}
		last := Query{SQL: "SELECT d.message_key, max(d.id)\nFROM " + table.Done + " d" +
			"\nWHERE d.id > " + strconv.FormatInt(int64(lowest), 10) + " AND d.id <= " + strconv.FormatInt(int64(lowest)+within, 10) +
			"\n    AND d.message_key IN (SELECT t.message_key " + parked + ")" +
			"\n    AND (d.headers IS NULL OR " + headers + " NOT LIKE '%\"rowrelay-dead-letter-%' AND " + headers + " NOT LIKE '%\"rowrelay-replayed\"%')" +
			"\nGROUP BY d.message_key", Args: args}
		if err := All(ctx, q, last, func() { delivered[row.Key] = int64(id) }, (*text)(&row.Key), &id); err != nil {
			return err
		}
	}
	return All(ctx, q, Query{SQL: "SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, " + shortError + "\n" + parked + "\nORDER BY t.id" + order, Args: args}, func() {
		row.ID, row.Lane, row.HoldsKey = int64(id), int(lane), holds != 0
		row.Overtaken = row.Key != "" && delivered[row.Key] > row.ID
		each(row)
	}, &id, &lane, (*text)(&row.Topic), (*text)(&row.Key), (*text)(&row.Sinks), &holds, (*text)(&row.Error))
}

// LastID reads the highest id that was issued.
func LastID(ctx context.Context, q Querier, query Query) (last int64, err error) {
	err = One(ctx, q, query, (*number)(&last))
	return last, err
}

// Clock reads the database's time, the age of the oldest done row (0 if no row is done), and the database's time zone.
func Clock(ctx context.Context, q Querier, query Query) (now time.Time, oldest time.Duration, zone string, err error) {
	var name text
	err = One(ctx, q, query, (*moment)(&now), (*milliseconds)(&oldest), &name)
	return now, oldest, string(name), err
}

// Members reads the living relays and the database's time. Each row of the query's result has the time.
func Members(ctx context.Context, q Querier, query Query) (relays []storage.Member, now time.Time, err error) {
	var name string
	var setup text
	took := func() { relays = append(relays, storage.Member{Name: name, Config: stored[storage.Config](setup)}) }
	err = All(ctx, q, query, took, &name, &setup, (*moment)(&now))
	return relays, now, err
}

// moment scans a time in any form in which a driver returns it. NULL becomes the zero time.
type moment time.Time

func (m *moment) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*m = moment{}
	case time.Time:
		*m = moment(value.UTC())
	case string:
		return m.parse(value)
	case []byte:
		return m.parse(string(value))
	default:
		return fmt.Errorf("read a time from %T", value)
	}
	return nil
}

func (m *moment) parse(text string) error {
	at, err := time.Parse(time.DateTime, text) // also parses fractions of a second
	*m = moment(at)
	return err
}

// number scans an integer. It avoids the conversion to text that database/sql makes for most types. NULL becomes 0.
type number int64

func (n *number) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*n = 0
		return nil
	case int64:
		*n = number(value)
		return nil
	case uint64: // an unsigned column
		*n = number(value)
		if value > math.MaxInt64 {
			return errTooHigh
		}
		return nil
	case []byte:
		return n.parse(string(value))
	case string:
		return n.parse(value)
	default:
		return fmt.Errorf("read a number from %T", value)
	}
}

func (n *number) parse(text string) error {
	value, err := strconv.ParseInt(text, 10, 64)
	if *n = number(value); errors.Is(err, strconv.ErrRange) && value > 0 {
		return errTooHigh
	}
	return err
}

// errTooHigh occurs only for ids on MySQL and MariaDB: the column is unsigned, and these servers allow no CHECK on it. Once
// a row has such an id, the server issues only higher ones. ANALYZE TABLE makes MySQL discard its cached AUTO_INCREMENT.
var errTooHigh = errors.New("a number is above 9223372036854775807: if it is an id, a row was inserted with an explicit id; " +
	"insert such rows again without an id, delete the old rows, and then reset the table's AUTO_INCREMENT and run ANALYZE TABLE")

// flags scans the flags of a row. NULL becomes HasPayload.
type flags number

func (f *flags) Scan(value any) error {
	if value == nil {
		*f = HasPayload
		return nil
	}
	return (*number)(f).Scan(value)
}

// text scans a text. NULL becomes the empty text, which Oracle stores as NULL.
type text string

func (t *text) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = ""
	case string:
		*t = text(value)
	case []byte:
		*t = text(value)
	default:
		return fmt.Errorf("read a text from %T", value)
	}
	return nil
}

// The functions below read the results of statements into types of package storage.

// Grants reads new leases. Each result row has the columns lane, fence, marks, crashes, journal and transaction number.
func Grants(ctx context.Context, q Querier, query Query) (grants []storage.Grant, xid uint64, err error) {
	var grant storage.Grant
	var marks, written text
	err = All(ctx, q, query, func() {
		grant.Marks = stored[storage.Marks](marks)
		journal := stored[journal](written)
		grant.Suspects, grant.Batches = journal.Suspects, journal.Batches
		grants = append(grants, grant)
	}, &grant.Lane, &grant.Fence, &marks, &grant.Crashes, &written, &xid)
	return grants, xid, err
}

// Leases reads the leases that are still valid. Each result row has the columns lane, fence and transaction number.
func Leases(ctx context.Context, q Querier, query Query) (held []storage.Lease, xid uint64, err error) {
	var lease storage.Lease
	err = All(ctx, q, query, func() { held = append(held, lease) }, &lease.Lane, &lease.Fence, &xid)
	return held, xid, err
}

// Journals reads lane, fence and journal of each lane.
func Journals(ctx context.Context, q Querier, query Query) (journals []storage.Journal, err error) {
	var lease storage.Lease
	var written text
	err = All(ctx, q, query, func() {
		j := stored[journal](written)
		journals = append(journals, storage.Journal{Lease: lease, Suspects: j.Suspects, Batches: j.Batches})
	}, &lease.Lane, &lease.Fence, &written)
	return journals, err
}

// Marks reads lane and marks of each lane.
func Marks(ctx context.Context, q Querier, query Query) (map[int]storage.Marks, error) {
	found := map[int]storage.Marks{}
	var lane int
	var marks text
	err := All(ctx, q, query, func() { found[lane] = stored[storage.Marks](marks) }, &lane, &marks)
	return found, err
}

// stored decodes JSON from a table. A text that can't be decoded becomes the zero value, which does no harm: a lane
// without marks is read from its start, and the zero [storage.Config] means that the relay's configuration is unknown.
func stored[T any](written text) T {
	var value, nothing T
	if err := json.Unmarshal([]byte(written), &value); err != nil {
		return nothing
	}
	return value
}

// journal is the JSON of the column `journal` in the table of lanes.
type journal struct {
	Suspects []storage.Suspect   `json:"suspects,omitempty"`
	Batches  []storage.SentBatch `json:"batches,omitempty"`
}

// JournalText returns the text of a journal as the table stores it.
func JournalText(j storage.Journal) (string, error) {
	written, err := json.Marshal(journal{j.Suspects, j.Batches})
	return string(written), err
}

// ReadBlockedKeys reads lane, key, topic, sinks and id of each blocked key.
func ReadBlockedKeys(ctx context.Context, q Querier, query Query) (keys []storage.BlockedKey, err error) {
	var key storage.BlockedKey
	err = All(ctx, q, query, func() { keys = append(keys, key) }, &key.Lane, &key.Key, &key.Topic, (*text)(&key.Sinks), &key.ID)
	return keys, err
}

// ReadSettled reads the result of Settle or SettleParts from lines that consist of a word and two numbers: ("lane", lane, fence) for
// each lease that is still valid, ("changed", rows, 0), ("fenced", rows, 0) and ("xid", xid, 0).
func ReadSettled(ctx context.Context, q Querier, query Query) (Settled, error) {
	settled := Settled{Held: map[storage.Lease]bool{}}
	var word string
	var a, b int64
	err := All(ctx, q, query, func() {
		switch word {
		case "lane":
			settled.Held[storage.Lease{Lane: int(a), Fence: b}] = true
		case "changed":
			settled.Changed += int(a)
		case "fenced":
			settled.Fenced += int(a)
		case "xid":
			settled.XID = uint64(a)
		}
	}, &word, &a, &b)
	return settled, err
}
