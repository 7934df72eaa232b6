package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// lastTick is the time in the most recently generated id, in ticks (see nextTick). It
// makes the ids of one process ascend even within one tick, and when the clock steps
// back.
var lastTick atomic.Uint64

// NewID returns a new id for a [Message]: a UUID of version 7 (RFC 9562), which
// begins with the time. Each id is greater than all earlier ids of the process,
// even when compared as text. NewID may be called concurrently.
func NewID() string {
	return newID(time.Now(), &lastTick)
}

// newID fills the 12 bits after the milliseconds with the fraction of the millisecond
// (RFC 9562, section 6.2, method 3), and the last 62 bits with random bits.
func newID(now time.Time, last *atomic.Uint64) string {
	tick := nextTick(now, last)
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], tick>>12<<16|0x7000|tick&0xfff)
	_, _ = rand.Read(id[8:]) // never fails
	id[8] = id[8]&0x3f | 0x80
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// nextTick converts a time to ticks, which are 4096ths of a millisecond. The parameter last has
// the tick that the previous call returned. If the time isn't later, nextTick returns the tick
// after the previous one. It stores the returned tick in last.
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

// isUUID reports whether text is a UUID in its canonical form, in either letter case. It
// returns false for the UUID of all zeros, which usually comes from a variable that was never
// set.
func isUUID(text string) bool { return uuid.MatchString(text) && strings.Trim(text, "0-") != "" }

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
