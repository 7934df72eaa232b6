package plugins

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rowrelay/rowrelay/sinks"
)

// The numbers of the fields that are encoded and decoded by hand. A test compares
// the result with that of the generated code.
const (
	requestSendID, requestTimeout, requestMessage = 1, 2, 3

	messageID, messageTopic, messageKey, messagePayload, messageHeader = 1, 2, 3, 4, 5
	messageSequence, messageAttempt, messageCreated                    = 6, 7, 8
	messageAvailable, messagePriority                                  = 9, 10

	headerName, headerValue = 1, 2
)

// usualRest is what a message has besides its payload and its headers, encoded, as
// a rule, and usualHeader what a header has.
const usualRest, usualHeader = 128, 64

// appendRequestMessage encodes a message as a field of a request. Its length is
// put in afterwards, and what it has is moved where the length takes other room
// than was expected. Where it can't be encoded the request stays as it was.
func appendRequestMessage(b []byte, m *sinks.Message) ([]byte, error) {
	field := len(b)
	start := field + 1 + protowire.SizeVarint(uint64(len(m.Payload)+usualRest))
	b, err := appendMessage(append(b, "......"[:start-field]...), m)
	if err != nil {
		return b[:field], err
	}
	length := len(b) - start
	if due := field + 1 + protowire.SizeVarint(uint64(length)); due != start {
		b = slices.Grow(b, 5)
		copy(b[due:due+length], b[start:start+length])
		b = b[:due+length]
	}
	protowire.AppendVarint(append(b[:field], requestMessage<<3|byte(isBytes)), uint64(length))
	return b, nil
}

// appendMessage encodes a message. What the protocol says is text has to be
// UTF-8.
func appendMessage(b []byte, m *sinks.Message) ([]byte, error) {
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Topic) {
		return b, errors.New("the id or the topic is not UTF-8, the plug-in protocol can't carry it")
	}
	b = appendText(b, messageID, m.ID)
	b = appendText(b, messageTopic, m.Topic)
	b = appendText(b, messageKey, m.Key)
	if m.Payload != nil {
		b = append(appendLength(append(b, messagePayload<<3|byte(isBytes)), len(m.Payload)), m.Payload...)
	}
	b = appendNumber(b, messageSequence, m.Sequence)
	b = appendNumber(b, messageAttempt, int64(int32(m.Attempt)))
	b = appendNumber(b, messageCreated, micros(m.CreatedAt))
	b = appendNumber(b, messageAvailable, micros(m.AvailableAt))
	b = appendNumber(b, messagePriority, int64(m.Priority))
	if len(m.Headers) == 0 {
		return b, nil
	}
	return appendHeaders(b, m.Headers)
}

type header struct{ name, value string }

// appendHeaders encodes headers, sorted by their names.
func appendHeaders(b []byte, headers map[string]string) ([]byte, error) {
	sorted := make([]header, 0, 8) // mostly on the stack
	for name, value := range headers {
		if !utf8.ValidString(name) {
			return b, fmt.Errorf("the name of the header %q is not UTF-8, the plug-in protocol can't carry it", name)
		}
		sorted = append(sorted, header{name, value})
	}
	if len(sorted) > 1 {
		slices.SortFunc(sorted, func(x, y header) int { return strings.Compare(x.name, y.name) })
	}
	for _, h := range sorted {
		b = append(b, messageHeader<<3|byte(isBytes))
		b = appendLength(b, sizeOfText(h.name)+sizeOfText(h.value))
		b = appendText(appendText(b, headerName, h.name), headerValue, h.value)
	}
	return b, nil
}

// appendText leaves out what is empty, as is the rule. Numbers are below 16, and
// so a byte with what kind it is.
func appendText(b []byte, number byte, text string) []byte {
	if text == "" {
		return b
	}
	return append(appendLength(append(b, number<<3|byte(isBytes)), len(text)), text...)
}

func sizeOfText(text string) int {
	if text == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(text))
}

func appendNumber(b []byte, number byte, value int64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, number<<3|byte(isNumber)), uint64(value))
}

// appendLength has one byte for what is short.
func appendLength(b []byte, length int) []byte {
	if length < 0x80 {
		return append(b, byte(length))
	}
	return protowire.AppendVarint(b, uint64(length))
}
