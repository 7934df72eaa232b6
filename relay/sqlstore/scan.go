package sqlstore

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

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
	Columns
	destinations []any
	row          relay.Row // the last one
}

// newRowScan scans a row that comes after other columns.
func newRowScan(before ...any) *rowScan {
	s := &rowScan{}
	s.destinations = append(before,
		(*number)(&s.ID), (*number)(&s.Lane), (*text)(&s.MessageID), (*text)(&s.Topic), (*text)(&s.Key), &s.Payload, (*text)(&s.Headers),
		(*moment)(&s.AvailableAt), (*number)(&s.Priority), (*number)(&s.Attempts), (*number)(&s.Crashes), (*moment)(&s.CreatedAt), (*flags)(&s.Flags))
	return s
}

func (s *rowScan) scan(rows *sql.Rows) (err error) {
	if err := s.scanColumns(rows); err != nil {
		return err
	}
	s.row, err = s.Columns.row()
	return err
}

func (s *rowScan) scanColumns(rows *sql.Rows) error {
	s.Payload = nil // the row before keeps its own
	return rows.Scan(s.destinations...)
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
