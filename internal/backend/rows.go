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

// The columns of a message's tables.
const (
	// Kept are those that stay as they are wherever a row goes.
	Kept = "id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks"

	// Changing are those that a settlement may change.
	Changing = "attempts, crashes, available_at, last_error"
)

// A copy is a new message that is written from a row: see [storage.Copy]. Each database has one
// INSERT INTO the hot table … SELECT of rows t, and of g, what is given for each: the row's lane,
// id and message_id, and the copy's copy_id, copy_topic, copy_headers and copy_sinks. A settlement
// says which row, and has the copy as its DeadLetter.
const (
	// CopyInto are the columns that a copy is written with. All others have their defaults.
	CopyInto = "message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks"
)

// CopyFrom are their values; now is the database's time.
func CopyFrom(now string) string {
	return "g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, " + CopiedExpiry(now) + ", g.copy_sinks"
}

// CopiedExpiry is the time when a copy of the row t expires: the row's, unless that has passed.
func CopiedExpiry(now string) string {
	return "CASE WHEN t.expires_at > " + now + " THEN t.expires_at END"
}

// KeptFor are the columns Kept of a row t, for other sinks than its own.
func KeptFor(sinks string) string { return strings.TrimSuffix(Of("t", Kept), "t.sinks") + sinks }

// Of has the columns of the table or subquery with that name.
func Of(name, columns string) string {
	return name + "." + strings.ReplaceAll(columns, ", ", ", "+name+".")
}

// A row has these columns, in this order: id, lane, message_id, topic, message_key,
// sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags.
// NULL may stand for an empty key, no sinks, no headers, the numbers 0, and the flags
// HasPayload: what most rows have. The flags are a sum of these, and of the payload's
// size in [SizeOne] where a driver may cut payloads.
const (
	HasPayload = 1 // its payload isn't NULL, though it may be empty
	IsLater    = 2 // its time is still to come
	IsRetry    = 4 // a held row that waits for its next attempt
	IsUTF16    = 8 // its payload is text in UTF-16, little-endian, and is to be handed on in UTF-8

	HoldsOne = 16 // for each of its column holds, which is at most 3
)

// Undecided is a condition of a settlement g that parks the held row t: what an operator wants of
// it outlives a park whose answer was lost, and that is written once more.
const Undecided = "(t.holds < 2 OR g.holds = 0)"

// UndecidedStays is the same of one after which the row stays among the held ones: what an operator
// wants of it outlives a repeated retry, too.
const UndecidedStays = "(t.holds < 2 OR g.holds = 0 AND g.state <> 'retry')"

// AsRead is a condition of a settlement of the held row t after which it stays held, or has a dead letter: its time is no later than
// when it was read, so that what an operator wants of it outlives a settlement whose answer was lost, and that is written once more.
func AsRead(readAt string) string {
	return "(t.available_at IS NULL OR t.available_at <= " + readAt + ")"
}

// ReadAt is the time for AsRead. A millisecond is the coarsest that a database rounds to.
func ReadAt(s *storage.Settlement) time.Time {
	if s.AvailableAt.IsZero() {
		return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
	}
	return s.AvailableAt.Add(time.Millisecond)
}

// HoldsOf is what a settlement makes of the column holds.
func HoldsOf(s *storage.Settlement) int64 {
	if s.State == storage.StateError && s.Holds {
		return int64(storage.HoldsKey)
	}
	return int64(storage.NoHold)
}

// SizeOne is what each byte of a row's payload adds to its flags, where drivers
// are known to cut payloads off.
const SizeOne = 1 << 16

// Columns are a row as the database has it. What is NULL has the zero value, but
// for the flags, of which NULL are those of a plain row: HasPayload.
type Columns struct {
	ID                                int64
	Lane, Priority, Attempts, Crashes int64
	Flags                             int64
	MessageID, Topic, Key             string
	Sinks, Headers                    string
	Payload                           []byte
	AvailableAt, ExpiresAt, CreatedAt time.Time

	// Malformed says which column can't be read, and why. It has the zero value.
	Malformed string
}

// neverExpires is the year in which a message expires that has been requeued after it had
// expired. No message is written with it by [outbox.Writer].
const neverExpires = 9999

// mostCounted is the highest number of attempts or crashes that a row is read with. It leaves room
// below the highest number of the columns, which have 32 bits.
const mostCounted = 2_000_000_000

// Row converts the columns. A column that can't be read makes the row malformed, and no error:
// one row never keeps a page from being read.
func (c *Columns) Row() (row storage.Row, err error) {
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
		row.Later = false // what can't be read is parked now
		return row, nil
	}
	if c.Headers == "" {
		return row, nil
	}
	var headers map[string]any
	if err := json.Unmarshal([]byte(c.Headers), &headers); err != nil {
		row.Malformed = "the headers are no JSON object"
		return row, nil
	}
	row.Message.Headers = make(map[string]string, len(headers))
	for name, value := range headers {
		text, ok := value.(string)
		if !ok {
			row.Message.Headers, row.Malformed = nil, fmt.Sprintf("the header %.100q is no string", name)
			break
		}
		row.Message.Headers[name] = text
	}
	return row, nil
}

// IsMessageID says whether a message can have the id: 36 hexadecimal digits and hyphens. Statements may
// have such an id in their text.
func IsMessageID(id string) bool {
	for i := range len(id) {
		if c := id[i]; c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	return len(id) == 36
}

// readable returns the time, or none where its year is not one of 0 to 9999: neither JSON nor most
// databases have others.
func (c *Columns) readable(column string, at time.Time) time.Time {
	if year := at.Year(); year < 0 || year > 9999 {
		c.malformed(column, at.String())
		return time.Time{}
	}
	return at
}

// malformed notes that a column can't be read. The first one is enough.
func (c *Columns) malformed(column, value string) {
	if c.Malformed == "" {
		c.Malformed = fmt.Sprintf("the column %s can't be read: %.100q", column, value)
	}
}

// lenient scans a column. A value that can't be read makes the row malformed.
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

// fromUTF16 makes UTF-8 of text in UTF-16, little-endian. Half of a pair of
// surrogates becomes U+FFFD.
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

// FirstLine is what a read tells beside its rows.
type FirstLine struct {
	// Told: there was such a line. Some databases tell it with each row, and so not
	// where there is none.
	Told bool

	LastID   int64  // the highest id that was given out; 0 where the database lists its transactions
	XID      uint64 // the read's transaction, if it has a number
	Snapshot string // what the read saw, as PostgreSQL writes it; empty elsewhere
	Server   string // tells one run of a server from another; empty where there is one writer
}

// Scan reads words with blanks between: the last id, a 0, and then nothing; the server; or
// xid, snapshot and server.
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
		return fmt.Errorf("read the first line %q: %w", text, err)
	}
	f.Told = true
	return nil
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

// ReadPage reads a first line and the rows of a page: a text, then a row. Each line
// has the text and a row; or the first one has the text and a row whose id is 0, and
// the others have no text. It reads with the reader, if that isn't nil and knows the
// connections; known is false if it doesn't.
func ReadPage(ctx context.Context, db *sql.DB, reader Reader, query Query, take func(storage.Row) (more bool, err error)) (line FirstLine, known bool, err error) {
	takeLine := func(text []byte, columns *Columns) (more bool, err error) {
		if text != nil && !line.Told {
			if err := line.Scan(text); err != nil {
				return false, err
			}
		}
		if columns.ID == 0 && columns.MessageID == "" { // the first line alone
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

// ScanRows scans rows between other columns, and has each taken.
func ScanRows(ctx context.Context, q Querier, query Query, before, after []any, take func(*Columns) (more bool, err error)) error {
	var c Columns
	destinations := slices.Concat(before, []any{
		(*number)(&c.ID), (*number)(&c.Lane), (*text)(&c.MessageID), (*text)(&c.Topic), (*text)(&c.Key), (*text)(&c.Sinks), &c.Payload, (*text)(&c.Headers),
		lenient{(*moment)(&c.AvailableAt), "available_at", &c}, lenient{(*moment)(&c.ExpiresAt), "expires_at", &c},
		lenient{(*number)(&c.Priority), "priority", &c}, lenient{(*number)(&c.Attempts), "attempts", &c}, lenient{(*number)(&c.Crashes), "crashes", &c},
		lenient{(*moment)(&c.CreatedAt), "created_at", &c}, (*flags)(&c.Flags),
	}, after)
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		c.Payload, c.Malformed = nil, "" // the row before keeps its own
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		return take(&c)
	})
}

// ReadRows returns rows.
func ReadRows(ctx context.Context, q Querier, query Query) (rows []storage.Row, err error) {
	err = ScanRows(ctx, q, query, nil, nil, func(c *Columns) (bool, error) {
		row, err := c.Row()
		rows = append(rows, row)
		return true, err
	})
	return rows, err
}

// ReadFree returns locked rows that are about to be claimed, up to maxBytes of payload,
// if that is positive, where a database can't count them. Large payloads may be NULL,
// with their sizes in the flags (see [SizeOne]): those of what is claimed are picked
// afterwards.
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

// ReadInfos returns rows, each followed by state, last_error, receipt, claimed_by and
// finished_at, up to maxBytes of payload: then those that have the last one's id, as a message
// may that is of several sinks.
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

// ReadLastDelivered reads id, lane, message id, topic, key, sinks, attempts, and when it was written and
// finished, of each done row.
func ReadLastDelivered(ctx context.Context, q Querier, query Query) (infos []storage.Info, err error) {
	var id, lane, attempts number
	var message, topic, key, sinks text
	var created, finished moment
	var unread Columns // what is malformed in a delivered message does no harm here
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

// ReadRemaining reads id, lane, message id, topic, key and sinks of each row, and 1 for a held one.
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

// ReadParked calls each for every parked row t that meets the SQL condition where with args, in the order that the
// filter requests. It reads the SQL expression shortError as the error of a row. To find parked rows that were
// overtaken, it reads the done rows whose ids are above the lowest parked id by at most within, each once. If
// within is 0, it reads none.
func ReadParked(ctx context.Context, q Querier, table dialect.Table, shortError, where string, args []any, filter Filter, within int64, each func(storage.Parked)) error {
	parked := "FROM " + table.Held + " t\nWHERE t.state = 'error' AND " + where
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

// LastID reads the highest id that was given out.
func LastID(ctx context.Context, q Querier, query Query) (last int64, err error) {
	err = One(ctx, q, query, (*number)(&last))
	return last, err
}

// Clock reads the database's time, the age of its first done row (0 without one), and its time zone.
func Clock(ctx context.Context, q Querier, query Query) (now time.Time, oldest time.Duration, zone string, err error) {
	var name text
	err = One(ctx, q, query, (*moment)(&now), (*milliseconds)(&oldest), &name)
	return now, oldest, string(name), err
}

// Members reads the living relays, each with the database's time.
func Members(ctx context.Context, q Querier, query Query) (relays []storage.Member, now time.Time, err error) {
	var name string
	var setup text
	took := func() { relays = append(relays, storage.Member{Name: name, Config: stored[storage.Config](setup)}) }
	err = All(ctx, q, query, took, &name, &setup, (*moment)(&now))
	return relays, now, err
}

// moment scans a time in whatever form a driver has it; none is the zero time.
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
	at, err := time.Parse(time.DateTime, text) // takes fractions of a second, too
	*m = moment(at)
	return err
}

// number scans an integer without the detour by text that database/sql takes
// for all but a few types. None is 0.
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

// errTooHigh can happen to ids on MySQL and MariaDB alone: the column is unsigned, and no CHECK may name it. From such an
// id on the server gives out only ids that are higher still. ANALYZE TABLE has MySQL forget the AUTO_INCREMENT that it has cached.
var errTooHigh = errors.New("a number is above 9223372036854775807: if it is an id, a row was inserted with an id of its own; " +
	"insert such rows again without one, delete them, and then set the table's AUTO_INCREMENT back and run ANALYZE TABLE")

// flags scans the flags of a row. None are those of a plain one.
type flags number

func (f *flags) Scan(value any) error {
	if value == nil {
		*f = HasPayload
		return nil
	}
	return (*number)(f).Scan(value)
}

// text scans a text. None is the empty one, for which Oracle takes it.
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

// The functions below read the results of statements into the engine's types.

// Grants reads new leases. The columns of a line are lane, fence, marks, crashes, journal, and the number of the
// transaction.
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

// Leases reads leases that hold: lane, fence, and the transaction's number.
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

// stored reads what stands as JSON in a table. What can't be read is taken for nothing: without
// marks everything is read again, and a relay without a setup tells nothing of it.
func stored[T any](written text) T {
	var value, nothing T
	if err := json.Unmarshal([]byte(written), &value); err != nil {
		return nothing
	}
	return value
}

// journal is what stands in the table of lanes.
type journal struct {
	Suspects []storage.Suspect   `json:"suspects,omitempty"`
	Batches  []storage.SentBatch `json:"batches,omitempty"`
}

// JournalText is what is stored of a journal.
func JournalText(j storage.Journal) (string, error) {
	written, err := json.Marshal(journal{j.Suspects, j.Batches})
	return string(written), err
}

// ReadBlockedKeys reads lane, key, topic, sinks and id of each.
func ReadBlockedKeys(ctx context.Context, q Querier, query Query) (keys []storage.BlockedKey, err error) {
	var key storage.BlockedKey
	err = All(ctx, q, query, func() { keys = append(keys, key) }, &key.Lane, &key.Key, &key.Topic, (*text)(&key.Sinks), &key.ID)
	return keys, err
}

// ReadSettled reads rows of a word and two numbers: ("lane", lane, fence) for each
// lease that holds, ("changed", rows, 0), ("fenced", rows, 0), ("xid", xid, 0).
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
