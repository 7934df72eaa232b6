package inbox

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What the columns of all databases have room for, in bytes.
const (
	maxConsumer  = 100
	maxMessageID = 255
)

// ErrInvalid is in the chain of an error about an id that no message can have,
// such as an empty one. It is as invalid when it comes again.
var ErrInvalid = errors.New("the message can't be told from others")

// checkText keeps out what databases take for the same, or don't take: some
// pass over blanks at a text's end.
func checkText(text string, most int) error {
	switch {
	case text == "":
		return errors.New("must not be empty")
	case len(text) > most:
		return fmt.Errorf("must have at most %d bytes, and has %d", most, len(text))
	case !utf8.ValidString(text):
		return errors.New("must be UTF-8")
	case strings.TrimSpace(text) != text:
		return errors.New("must not begin or end with a blank")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("must not have control characters")
	}
	return nil
}
