package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
)

// The headers that are the sink's own.
const (
	ownPrefix   = "rowrelay-"
	headerID    = ownPrefix + "message-id"
	headerTopic = ownPrefix + "topic" // where the record's topic is not the message's
	ownHeaders  = 2
)

// record makes a record of a message, with its headers at the beginning of room.
// Its errors name what Kafka can't carry.
func (s *Sink) record(m *sinks.Message, topic string, now time.Time, room []header) (record, error) {
	at := now
	if s.options.CreatedTime && !m.CreatedAt.IsZero() {
		at = m.CreatedAt
	}
	r := record{time: at.UnixMilli(), key: m.Key, value: m.Payload, headers: room[: 0 : len(m.Headers)+ownHeaders]}
	for name, value := range m.Headers {
		if err := checkHeader(name); err != nil {
			return record{}, fmt.Errorf("the header %q %w", name, err)
		}
		if name != s.options.PartitionHeader || name == "" {
			r.headers = append(r.headers, header{name, value})
		}
	}
	slices.SortFunc(r.headers, func(a, b header) int { return strings.Compare(a.name, b.name) })
	r.headers = append(r.headers, header{headerID, m.ID})
	if topic != m.Topic {
		r.headers = append(r.headers, header{headerTopic, m.Topic})
	}
	return r, nil
}

// checkHeader completes "the header …".
func checkHeader(name string) error {
	switch {
	case !utf8.ValidString(name):
		return errors.New("has a name that is not UTF-8, which Kafka can't carry")
	case len(name) >= len(ownPrefix) && strings.EqualFold(name[:len(ownPrefix)], ownPrefix):
		return errors.New("belongs to the sink and can't be set")
	}
	return nil
}
