package inbox

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The maximum lengths in bytes. The columns have these sizes on every database.
const (
	maxConsumer  = 100
	maxMessageID = 255
)

// ErrInvalid is wrapped by the error for an id that is not a valid message id, such as an
// empty one. Receiving the same id again fails again.
var ErrInvalid = errors.New("invalid message id")

// checkText refuses text that some databases can't store, or can't distinguish from another
// text: some databases ignore trailing spaces in comparisons.
func checkText(text string, most int) error {
	switch {
	case text == "":
		return errors.New("must not be empty")
	case len(text) > most:
		return fmt.Errorf("must have at most %d bytes, and has %d", most, len(text))
	case !utf8.ValidString(text):
		return errors.New("must be UTF-8")
	case strings.TrimSpace(text) != text:
		return errors.New("must not begin or end with white space")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("must not have control characters")
	}
	return nil
}
