package plugins

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields goes through the fields of an encoded message. Those of kinds that the
// protocol hasn't are passed over by whoever looks for one of its own.
type fields struct {
	rest   []byte // what comes after the field
	number protowire.Number
	kind   protowire.Type
	value  uint64 // of a number
	bytes  []byte // of bytes, never nil
	err    error
}

const isNumber, isBytes = protowire.VarintType, protowire.BytesType

func (f *fields) is(number protowire.Number, kind protowire.Type) bool {
	return f.number == number && f.kind == kind
}

// next goes to the next field, the first at the beginning. At the end, or where
// there is nonsense, there is none.
func (f *fields) next() bool {
	b := f.rest
	if len(b) < 3 || b[0] < 1<<3 || b[0] >= 0x80 {
		return f.nextOfAny()
	}
	value, n := uint64(b[1]), 2 // the number, or how many bytes follow
	if value >= 0x80 {
		if value, n = value&0x7f|uint64(b[2])<<7, 3; b[2] >= 0x80 {
			value, n = protowire.ConsumeVarint(b[1:])
			n++
		}
	}
	switch kind := protowire.Type(b[0] & 7); {
	case n > 0 && kind == isNumber:
		f.value, f.rest = value, b[n:]
	case n > 0 && kind == isBytes && value <= uint64(len(b)-n):
		f.bytes, f.rest = b[n:n+int(value)], b[n+int(value):]
	default:
		return f.nextOfAny()
	}
	f.number, f.kind = protowire.Number(b[0]>>3), protowire.Type(b[0]&7)
	return true
}

// nextOfAny is next for whatever there may be, and slower.
func (f *fields) nextOfAny() bool {
	b := f.rest
	if len(b) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f.fail(n)
	}
	b = b[n:]
	f.number, f.kind = number, kind
	switch kind {
	case isNumber:
		f.value, n = protowire.ConsumeVarint(b)
	case isBytes:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = protowire.ConsumeFieldValue(number, kind, b)
	}
	if n < 0 {
		return f.fail(n)
	}
	f.rest = b[n:]
	return true
}

func (f *fields) fail(n int) bool {
	f.err = fmt.Errorf("read a message of the plug-in protocol: %w", protowire.ParseError(n))
	return false
}
