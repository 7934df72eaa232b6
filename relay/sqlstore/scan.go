package sqlstore

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// moment scans a time in whatever form a driver has it; none is the zero time.
type moment struct{ time.Time }

func (m *moment) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		m.Time = time.Time{}
	case time.Time:
		m.Time = value.UTC()
	case string:
		return m.parse(value)
	case []byte:
		return m.parse(string(value))
	default:
		return fmt.Errorf("read a time from %T", value)
	}
	return nil
}

func (m *moment) parse(text string) (err error) {
	m.Time, err = time.Parse(time.DateTime, text) // takes fractions of a second, too
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
	*n = number(value)
	return err
}

// flags scans the flags of a row. None are those of a plain one.
type flags number

func (f *flags) Scan(value any) error {
	if value == nil {
		*f = dialect.HasPayload
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

// rowScan scans rows as dialect.Reading describes them, one after the other.
type rowScan struct {
	destinations []any
	row          relay.Row

	id, lane, priority, attempts, crashes number
	flags                                 flags
	messageID, topic, key, headers        text
	payload                               []byte
	availableAt, createdAt                moment
}

// newRowScan scans a row that comes after and before other columns.
func newRowScan(before, after []any) *rowScan {
	s := &rowScan{}
	s.destinations = append(append(before,
		&s.id, &s.lane, &s.messageID, &s.topic, &s.key, &s.payload, &s.headers, &s.availableAt,
		&s.priority, &s.attempts, &s.crashes, &s.createdAt, &s.flags), after...)
	return s
}

func (s *rowScan) scan(rows *sql.Rows) error {
	s.payload = nil
	if err := rows.Scan(s.destinations...); err != nil {
		return err
	}
	if s.payload == nil && s.flags&dialect.HasPayload != 0 {
		s.payload = []byte{} // some drivers take it for none
	}
	if size := int(s.flags / dialect.SizeOne); size > 0 && size != len(s.payload) {
		return fmt.Errorf("row %d: the driver returned %d of its payload's %d bytes; have it fetch whole LOBs (go-ora: LOB FETCH=POST in the URL)",
			s.id, len(s.payload), size)
	}
	if s.flags&dialect.IsUTF16 != 0 {
		s.payload = fromUTF16(s.payload)
	}
	s.row = relay.Row{
		ID: int64(s.id), Lane: int(s.lane), Attempts: int(s.attempts), Crashes: int(s.crashes), CreatedAt: s.createdAt.Time,
		Later: s.flags&dialect.IsLater != 0, Retrying: s.flags&dialect.IsRetry != 0,
	}
	s.row.Message = outbox.Message{
		ID: string(s.messageID), Topic: string(s.topic), Key: string(s.key), Payload: s.payload, AvailableAt: s.availableAt.Time, Priority: int16(s.priority),
	}
	s.row.Message.Headers, s.row.BadHeaders = readHeaders(string(s.headers))
	return nil
}

// readHeaders says what is wrong with headers that can't be read, without
// showing them.
func readHeaders(text string) (headers map[string]string, wrong string) {
	if text == "" {
		return nil, ""
	}
	var values map[string]any
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		return nil, "the headers are no JSON object"
	}
	headers = make(map[string]string, len(values))
	for name, value := range values {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Sprintf("the header %.100q is no string", name)
		}
		headers[name] = text
	}
	return headers, ""
}

// storable makes a text that every database takes: a sink's words may be any
// bytes.
func storable(text string) string {
	if text == "" {
		return ""
	}
	return string(bytes.ReplaceAll(bytes.ToValidUTF8([]byte(text), []byte("�")), []byte{0}, []byte("�")))
}
