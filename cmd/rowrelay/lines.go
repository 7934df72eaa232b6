package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lines reads lines of bounded length, and counts them.
type lines struct {
	from   *bufio.Reader
	most   int
	number int // of the line that was last read, from 1
}

// newLines reads lines that can hold a payload of so many bytes however JSON
// escapes it, and the rest of a message.
func newLines(from io.Reader, payload int) *lines {
	const rest = 1 << 20
	return &lines{from: bufio.NewReaderSize(from, 64<<10), most: 6*payload + rest}
}

var byteOrderMark = []byte("\ufeff")

// next returns the next line that isn't blank; ok is false at the end.
func (l *lines) next() (line []byte, ok bool, err error) {
	for {
		line, more, err := l.read()
		if l.number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 || err != nil || !more {
			return line, len(line) > 0, err
		}
	}
}

// read returns the next line, and whether more may follow.
func (l *lines) read() (line []byte, more bool, err error) {
	l.number++
	for {
		part, err := l.from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > l.most:
			return nil, false, fmt.Errorf("line %d has more than %d bytes: raise --max-payload if that is meant", l.number, l.most)
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return line, false, nil
		case err != nil:
			return nil, false, fmt.Errorf("read line %d: %w", l.number, err)
		}
		return line, true, nil
	}
}
