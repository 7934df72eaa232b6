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

// appendMessage encodes a message. What the protocol says is text has to be
// UTF-8.
func appendMessage(b []byte, m sinks.Message) ([]byte, error) {
	if !utf8.ValidString(m.ID) || !utf8.ValidString(m.Topic) {
		return nil, errors.New("the id or the topic is not UTF-8, the plug-in protocol can't carry it")
	}
	b = appendText(b, messageID, m.ID)
	b = appendText(b, messageTopic, m.Topic)
	b = appendText(b, messageKey, m.Key)
	if m.Payload != nil {
		b = protowire.AppendBytes(protowire.AppendTag(b, messagePayload, protowire.BytesType), m.Payload)
	}
	b = appendNumber(b, messageSequence, m.Sequence)
	b = appendNumber(b, messageAttempt, int64(int32(m.Attempt)))
	b = appendNumber(b, messageCreated, micros(m.CreatedAt))
	b = appendNumber(b, messageAvailable, micros(m.AvailableAt))
	b = appendNumber(b, messagePriority, int64(m.Priority))
	return appendHeaders(b, m.Headers)
}

// appendHeaders encodes headers, sorted by their names.
func appendHeaders(b []byte, headers map[string]string) ([]byte, error) {
	names := make([]string, 0, 8) // mostly on the stack
	for name := range headers {
		if !utf8.ValidString(name) {
			return nil, fmt.Errorf("the name of the header %q is not UTF-8, the plug-in protocol can't carry it", name)
		}
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	for _, name := range names {
		value := headers[name]
		b = protowire.AppendTag(b, messageHeader, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(sizeOfText(headerName, name)+sizeOfText(headerValue, value)))
		b = appendText(appendText(b, headerName, name), headerValue, value)
	}
	return b, nil
}

// appendText leaves out what is empty, as is the rule.
func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func sizeOfText(number protowire.Number, text string) int {
	if text == "" {
		return 0
	}
	return protowire.SizeTag(number) + protowire.SizeBytes(len(text))
}

func appendNumber(b []byte, number protowire.Number, value int64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(value))
}
