package backend

import (
	"math"
	"testing"
	"time"
)

// Row is called for each message of each page.
func TestRowAllocatesNothing(t *testing.T) {
	columns := Columns{ID: 1, MessageID: "m", Topic: "t", Key: "k", Payload: []byte("p"), Flags: HasPayload, CreatedAt: time.Now(), ExpiresAt: time.Now()}
	if allocations := testing.AllocsPerRun(100, func() { _, _ = columns.Row() }); allocations != 0 {
		t.Errorf("a row costs %v allocations, want none", allocations)
	}
}

func TestFromUTF16(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "",
		"a\x00b\x00":         "ab",
		"\x00\x00":           "\x00",
		"\xe4\x00\xac\x20":   "ä€",
		"\x3d\xd8\x00\xde":   "😀",
		"a\x00\x3d\xd8b\x00": "a\ufffdb",
		"\x3d\xd8":           "\ufffd",
	} {
		got := fromUTF16([]byte(text))
		if string(got) != want || got == nil {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestUnsignedNumbers(t *testing.T) {
	t.Parallel()
	for value, fits := range map[uint64]bool{0: true, 1 << 62: true, math.MaxInt64: true, math.MaxInt64 + 1: false, math.MaxUint64: false} {
		var n number
		if err := n.Scan(value); (err == nil) != fits || fits && uint64(n) != value {
			t.Errorf("%d is read as %d, %v", value, n, err)
		}
	}
}
