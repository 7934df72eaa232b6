package backend

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay"
)

// A row has these columns, in this order: id, lane, message_id, topic, message_key,
// payload, headers, available_at, priority, attempts, crashes, created_at, flags.
// NULL may stand for an empty key, no headers, the numbers 0, and the flags
// HasPayload: what most rows have. The flags are a sum of these, and of the payload's
// size in [SizeOne] where a driver may cut payloads.
const (
	HasPayload = 1 // its payload isn't NULL, though it may be empty
	IsLater    = 2 // its time is still to come
	IsRetry    = 4 // a held row that waits for its next attempt
	IsUTF16    = 8 // its payload is text in UTF-16, little-endian, and is to be handed on in UTF-8
)

// SizeOne is what each byte of a row's payload adds to its flags, where drivers
// are known to cut payloads off.
const SizeOne = 1 << 16

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

// ScanRows scans rows that come after other columns, and has each taken.
func ScanRows(ctx context.Context, q Querier, query Query, take func(*Columns) (more bool, err error), before ...any) error {
	var c Columns
	destinations := append(before, c.destinations()...)
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		c.Payload = nil // the row before keeps its own
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		return take(&c)
	})
}

// ReadRows returns rows.
func ReadRows(ctx context.Context, q Querier, query Query) (rows []relay.Row, err error) {
	err = ScanRows(ctx, q, query, func(c *Columns) (bool, error) {
		row, err := c.Row()
		rows = append(rows, row)
		return true, err
	})
	return rows, err
}

// ReadHeld returns held rows, up to the one with which they have maxBytes of payload.
func ReadHeld(ctx context.Context, q Querier, query Query, maxBytes int) (rows []relay.Row, err error) {
	bytes := 0
	err = ScanRows(ctx, q, query, func(c *Columns) (bool, error) {
		row, err := c.Row()
		row.Held = true
		rows = append(rows, row)
		bytes += len(row.Message.Payload)
		return bytes < maxBytes, err
	})
	return rows, err
}

// ReadFree returns locked rows that are about to be claimed, up to maxBytes of payload,
// if that is positive, where a database can't count them. Large payloads may be NULL,
// with their sizes in the flags (see [SizeOne]): those of what is claimed are picked
// afterwards.
func ReadFree(ctx context.Context, q Querier, query Query, maxBytes int, pick func([]relay.RowID) Query) (free []relay.Row, err error) {
	bytes := 0
	var left []relay.RowID
	err = ScanRows(ctx, q, query, func(c *Columns) (more bool, err error) {
		size := len(c.Payload)
		if withheld := int(c.Flags / SizeOne); c.Payload == nil && withheld > 0 {
			left = append(left, relay.RowID{Lane: int(c.Lane), ID: c.ID})
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
// finished_at.
func ReadInfos(ctx context.Context, q Querier, query Query) (infos []relay.Info, err error) {
	var c Columns
	var info relay.Info
	var finished moment
	destinations := append(c.destinations(), &info.State, (*text)(&info.LastError), (*text)(&info.Receipt), (*text)(&info.ClaimedBy), &finished)
	err = Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		c.Payload = nil
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		row, err := c.Row()
		info.Row, info.FinishedAt = row, time.Time(finished)
		infos = append(infos, info)
		return true, err
	})
	return infos, err
}

// ReadCandidates reads id, lane, topic, key and size of each row.
func ReadCandidates(ctx context.Context, q Querier, query Query, take func(relay.Candidate) (more bool, err error)) error {
	var c relay.Candidate
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		if err := rows.Scan(&c.ID, &c.Lane, &c.Topic, (*text)(&c.Key), &c.Bytes); err != nil {
			return false, err
		}
		return take(c)
	})
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
