package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// FirstLine is what a read tells beside its rows.
type FirstLine struct {
	// Told: there was such a line. Some databases tell it with each row, and so not
	// where there is none.
	Told bool

	LastID   int64  // the highest id that was given out; 0 where the database lists its transactions
	XID      uint64 // the read's transaction, if it has a number
	Snapshot string // what the read saw, as PostgreSQL writes it; empty elsewhere
	Server   string // tells one run of a server from another; empty where there is one writer
}

// ReadFirstLine reads the only row and column of a query.
func ReadFirstLine(ctx context.Context, q Querier, query Query) (line FirstLine, err error) {
	var text string
	if err := One(ctx, q, query, &text); err != nil {
		return line, err
	}
	return ParseFirstLine(text)
}

// ParseFirstLine reads words with blanks between: the last id, a 0, and then nothing;
// the server; or xid, snapshot and server.
func ParseFirstLine(text string) (line FirstLine, err error) {
	var zero int64
	switch len(strings.Fields(text)) {
	case 2:
		_, err = fmt.Sscan(text, &line.LastID, &zero)
	case 3:
		_, err = fmt.Sscan(text, &line.LastID, &zero, &line.Server)
	case 5:
		_, err = fmt.Sscan(text, &line.LastID, &zero, &line.XID, &line.Snapshot, &line.Server)
	default:
		err = errors.New("want 2, 3 or 5 words")
	}
	if err != nil {
		return line, fmt.Errorf("read the first line %q: %w", text, err)
	}
	line.Told = true
	return line, nil
}
