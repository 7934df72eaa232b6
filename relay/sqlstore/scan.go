package sqlstore

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

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

// rowScan holds a row as dialect.Reading describes it.
type rowScan struct {
	row         relay.Row
	payload     []byte
	headers     string
	flags       int
	availableAt moment
	createdAt   moment
}

func (s *rowScan) destinations() []any {
	m := &s.row.Message
	return []any{
		&s.row.ID, &s.row.Lane, &m.ID, &m.Topic, &m.Key, &s.payload, &s.headers, &s.availableAt,
		&m.Priority, &s.row.Attempts, &s.row.Crashes, &s.createdAt, &s.flags,
	}
}

// scan reads the row, which may come after and before other columns.
func (s *rowScan) scan(rows *sql.Rows, before, after []any) error {
	*s = rowScan{}
	destinations := append(append(append([]any{}, before...), s.destinations()...), after...)
	if err := rows.Scan(destinations...); err != nil {
		return err
	}
	m := &s.row.Message
	if m.Payload = s.payload; m.Payload == nil && s.flags&dialect.HasPayload != 0 {
		m.Payload = []byte{} // some drivers take it for none
	}
	s.row.Later, s.row.Retrying = s.flags&dialect.IsLater != 0, s.flags&dialect.IsRetry != 0
	m.AvailableAt, s.row.CreatedAt = s.availableAt.Time, s.createdAt.Time
	m.Headers, s.row.BadHeaders = readHeaders(s.headers)
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
	return string(bytes.ReplaceAll(bytes.ToValidUTF8([]byte(text), []byte("�")), []byte{0}, []byte("�")))
}
