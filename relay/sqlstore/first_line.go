package sqlstore

import (
	"errors"
	"fmt"
	"strings"
)

// firstLine is what the first line of a read tells.
type firstLine struct {
	given, bound     int64
	xid              uint64
	snapshot, server string
}

func parseFirstLine(text string) (line firstLine, err error) {
	words := strings.Fields(text)
	switch len(words) {
	case 2:
		_, err = fmt.Sscan(text, &line.given, &line.bound)
	case 3:
		_, err = fmt.Sscan(text, &line.given, &line.bound, &line.server)
	case 5:
		_, err = fmt.Sscan(text, &line.given, &line.bound, &line.xid, &line.snapshot, &line.server)
	default:
		err = errors.New("want 2, 3 or 5 words")
	}
	if err != nil {
		return line, fmt.Errorf("read the first line %q: %w", text, err)
	}
	return line, nil
}

// leftOut says that there may be rows above the bound of a span of ids.
func (l firstLine) leftOut() bool { return l.bound != 0 && l.bound < l.given }
