package relaypgx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// The columns of a line: a text, and a row as a page has it.
const (
	text = iota
	id
	lane
	messageID
	topic
	key
	payload
	headers
	availableAt
	priority
	attempts
	crashes
	createdAt
	flags
	columns
)

var (
	whole = []uint32{pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID}
	texts = []uint32{pgtype.TextOID, pgtype.VarcharOID}
	bytea = []uint32{pgtype.ByteaOID}
	times = []uint32{pgtype.TimestamptzOID}
)

// types are those that each column may have.
var types = [columns][]uint32{
	text: texts, id: whole, lane: whole, messageID: texts, topic: texts, key: texts, payload: bytea, headers: texts,
	availableAt: times, priority: whole, attempts: whole, crashes: whole, createdAt: times, flags: whole,
}

// readable says whether a line can be read here.
func readable(fields []pgconn.FieldDescription) bool {
	if len(fields) != columns {
		return false
	}
	for i, field := range fields {
		if field.Format != pgx.BinaryFormatCode || !slices.Contains(types[i], field.DataTypeOID) {
			return false
		}
	}
	return true
}

// line reads lines, one after the other.
type line struct {
	text    []byte
	row     backend.Columns
	scratch []byte
}

// read reads values in PostgreSQL's binary formats, each of which is the send
// function's of its type.
func (l *line) read(values [][]byte) (err error) {
	l.text = values[text]
	l.row.Payload = bytes.Clone(values[payload])
	l.words(values)
	whole := func(column int) (n int64) {
		if err == nil {
			n, err = integer(values[column])
		}
		return n
	}
	l.row.ID, l.row.Lane = whole(id), whole(lane)
	l.row.Priority, l.row.Attempts, l.row.Crashes = whole(priority), whole(attempts), whole(crashes)
	if l.row.Flags = backend.HasPayload; values[flags] != nil {
		l.row.Flags = whole(flags)
	}
	if err == nil {
		l.row.AvailableAt, err = moment(values[availableAt])
	}
	if err == nil {
		l.row.CreatedAt, err = moment(values[createdAt])
	}
	return err
}

// words keeps the texts of a row together, as they come and go together, and
// a topic that is the row's before once.
func (l *line) words(values [][]byte) {
	if string(values[topic]) != l.row.Topic {
		l.row.Topic = string(values[topic])
	}
	l.scratch = append(append(append(l.scratch[:0], values[messageID]...), values[key]...), values[headers]...)
	all, end := string(l.scratch), len(values[messageID])
	l.row.MessageID, all = all[:end], all[end:]
	l.row.Key, l.row.Headers = all[:len(values[key])], all[len(values[key]):]
}

// integer reads a smallint, an int or a bigint; 0 for NULL.
func integer(value []byte) (int64, error) {
	switch len(value) {
	case 0:
		return 0, nil
	case 2:
		return int64(int16(binary.BigEndian.Uint16(value))), nil
	case 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil
	case 8:
		return int64(binary.BigEndian.Uint64(value)), nil
	default:
		return 0, fmt.Errorf("read a number of %d bytes", len(value))
	}
}

// epoch is where PostgreSQL begins to count.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// moment reads a timestamptz: microseconds since the epoch, whose least and
// greatest number are infinite; the zero time for NULL.
func moment(value []byte) (time.Time, error) {
	if value == nil {
		return time.Time{}, nil
	}
	micros, err := integer(value)
	if err == nil && (len(value) != 8 || micros == math.MinInt64 || micros == math.MaxInt64) {
		err = fmt.Errorf("read a time of %d bytes, or one that is infinite", len(value))
	}
	return time.Unix(epoch+micros/1e6, micros%1e6*1000).UTC(), err
}
