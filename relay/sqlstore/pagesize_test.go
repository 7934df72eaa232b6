package sqlstore

import (
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// After large rows a page requests only about twice the number of rows that fit into its limit of bytes. The
// reading records the requested number, so that a page with that number of rows has More set.
func TestPagesOfLargeRowsRequestFewRows(t *testing.T) {
	t.Parallel()
	const limit, maxBytes, size = 2000, 8 << 20, 1 << 20
	positions := []storage.Position{{Lane: 1}}
	var p pageSizer
	first := p.ask(&reading{limit: limit, maxBytes: maxBytes, positions: positions}, false)
	if first.Limit != limit || first.MaxBytes != 0 {
		t.Errorf("requested %d rows and %d bytes before any row was read", first.Limit, first.MaxBytes)
	}
	page := &reading{limit: limit, maxBytes: maxBytes}
	page.rows = []storage.Row{{Message: outbox.Message{Payload: make([]byte, size)}}}
	page.bytes = size
	p.learn(page)
	for what, change := range map[string]func(){"after a large row": func() {}, "after a read that failed": func() { p.rowSize = 0; p.failed() }} {
		change()
		into := &reading{limit: limit, maxBytes: maxBytes, positions: positions}
		if read := p.ask(into, false); read.Limit != 17 || into.asked != 17 || read.MaxBytes != maxBytes {
			t.Errorf("%s: requested %d rows and %d bytes, and recorded %d rows; want 17 rows", what, read.Limit, read.MaxBytes, into.asked)
		}
	}
}
