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
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
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

// isUUID knows the canonical form only, in either letter case, and refuses the
// one of zeros, which is a variable that was never set.
func isUUID(text string) bool { return uuid.MatchString(text) && strings.Trim(text, "0-") != "" }

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
