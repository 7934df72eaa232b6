package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// lastTick makes ids of one process grow even within a tick of the clock, and
// when the clock steps back.
var lastTick atomic.Uint64

// NewID makes an id for a [Message]: a UUID of version 7 (RFC 9562), which
// begins with the time. Each id is greater than all that the process got
// before it, also as text. It may be called concurrently.
func NewID() string {
	return newID(time.Now(), &lastTick)
}

// newID fills the 12 bits after the milliseconds with a fraction of them, as
// RFC 9562 (6.2, method 3) has it, and the last 62 bits with randomness.
func newID(now time.Time, last *atomic.Uint64) string {
	tick := nextTick(now, last)
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], tick>>12<<16|0x7000|tick&0xfff)
	_, _ = rand.Read(id[8:]) // never fails
	id[8] = id[8]&0x3f | 0x80
	return formatUUID(id)
}

// nextTick is the time in 4096ths of a millisecond, or the one after the last.
func nextTick(now time.Time, last *atomic.Uint64) uint64 {
	fraction := uint64(now.Nanosecond()%int(time.Millisecond)) << 12 / uint64(time.Millisecond)
	tick := uint64(now.UnixMilli())<<12 | fraction
	for {
		before := last.Load()
		if next := max(tick, before+1); last.CompareAndSwap(before, next) {
			return next
		}
	}
}

func formatUUID(id [16]byte) string {
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// isUUID knows the canonical form only, in either letter case, and refuses the
// one of zeros, which is a variable that was never set.
func isUUID(text string) bool {
	if len(text) != 36 {
		return false
	}
	set := false
	for i, c := range []byte(text) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if !isHex(c) {
			return false
		}
		set = set || c != '0'
	}
	return set
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
