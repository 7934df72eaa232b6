package relay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Dead letters. If SinkOptions.DeadLetter of a sink names a topic or another sink, a message that is parked is also sent there, as
// a dead letter. The dead letter is a new message. The settlement that parks the original also writes the dead letter, from the
// original's row (see [storage.Copy]). So exactly one dead letter is written each time a message is parked, even if settlements
// are repeated or fenced. The dead letter is read, routed, sent and retried like any other message.

// A dead letter has these headers in addition to the headers of the original message.
const (
	deadLetterMessage = sinks.DeadLetterHeader + "message-id"
	deadLetterTopic   = sinks.DeadLetterHeader + "topic"
	deadLetterSink    = sinks.DeadLetterHeader + "sink"
	deadLetterReason  = sinks.DeadLetterHeader + "reason"
	deadLetterError   = sinks.DeadLetterHeader + "error"
	deadLetterTries   = sinks.DeadLetterHeader + "attempts"
	deadLetterCreated = sinks.DeadLetterHeader + "created-at"
	deadLetterParked  = sinks.DeadLetterHeader + "parked-at"
)

// mostErrorHeader is the maximum length of the error text in a dead letter's header, in bytes. It is small because HTTP servers
// accept only about 8 KiB of headers. The row of the parked message stores up to 1,000 bytes of the text.
const mostErrorHeader = 500

// addDeadLetter adds a dead letter to the settlement that parks a message, if the sink has a destination for dead letters. It
// returns a note for the log. It adds nothing if the parked message is itself a dead letter; otherwise dead letters that are parked
// could produce dead letters forever. The parameter `now` is the database's time.
func (q *sinkQueue) addDeadLetter(row *storage.Row, reason string, parked *result, now time.Time) (note string) {
	to := q.options.DeadLetter
	if to == (DeadLetter{}) {
		return ""
	}
	if _, dead := row.Message.Headers[deadLetterMessage]; dead {
		return "; it is a dead letter itself, so no dead letter is written for it"
	}
	headers := map[string]string{}
	for name, value := range row.Message.Headers {
		if !sinks.ReservedHeader(name) { // a reserved header may be the reason why the message was parked
			headers[name] = value
		}
	}
	for name, value := range map[string]string{
		deadLetterMessage: row.Message.ID,
		deadLetterTopic:   headerText(row.Message.Topic),
		deadLetterSink:    headerText(q.name),
		deadLetterReason:  headerText(reason),
		deadLetterError:   headerText(shorten(parked.problem, mostErrorHeader)),
		deadLetterTries:   strconv.Itoa(row.Attempts + parked.charged),
		deadLetterCreated: row.CreatedAt.UTC().Format(time.RFC3339Nano),
		deadLetterParked:  now.UTC().Format(time.RFC3339Nano),
	} {
		headers[name] = value
	}
	parked.deadLetter = &storage.Copy{MessageID: outbox.NewID(), Topic: cmp.Or(to.Topic, row.Message.Topic), Sinks: to.Sink, Headers: headersText(headers)}
	q.base.options.Observer.DeadLettered(q.name)
	return "; its dead letter goes to " + cmp.Or(to.Sink, to.Topic)
}

// withoutError returns a copy of a dead letter, with unwritableText in place of the error text that the database can't store.
func withoutError(letter storage.Copy) *storage.Copy {
	headers := map[string]string{}
	_ = json.Unmarshal([]byte(letter.Headers), &headers) // made by headersText
	headers[deadLetterError] = unwritableText
	letter.Headers = headersText(headers)
	return &letter
}

func headersText(headers map[string]string) string {
	text, _ := json.Marshal(headers) // can't fail for a map of strings
	return string(text)
}

// headerText returns the text in a form that every sink accepts as a header value. HTTP allows neither line breaks in a value nor
// blanks at its ends.
func headerText(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
}

// checkDeadLetter checks that the sink's dead letters have a valid destination. The destination can't be the sink itself. If
// the sink holds the keys of parked messages, the topic of the dead letters must not be routed to that sink either; otherwise
// each dead letter, which has the key of its parked message, would wait behind that message.
func (s SinkOptions) checkDeadLetter(name string, routes *router) error {
	to, problem := s.DeadLetter, ""
	switch {
	case to.Topic != "" && to.Sink != "":
		problem = "has a topic and a sink: give one of them"
	case len(to.Topic) > 255:
		problem = fmt.Sprintf("topic of %d bytes: must have at most 255", len(to.Topic))
	case to.Sink != "" && !slices.Contains(routes.names, to.Sink):
		problem = fmt.Sprintf("there is no sink %q", to.Sink)
	case to.Sink == name:
		problem = "names the sink itself, which refused the message; give another sink, or a topic"
	case strings.Contains(to.Sink, ",") || len(to.Sink) > storage.MostSinks:
		problem = fmt.Sprintf("the name of the sink %.100q contains a comma or is too long: rows can't name it", to.Sink)
	case to.Sink != "":
	case routes.find(to.Topic).sinks[0] == len(routes.names):
		problem = fmt.Sprintf("no route takes the topic %q", to.Topic)
	case s.OnPark == HoldKey && slices.Contains(routes.find(to.Topic).sinks, slices.Index(routes.names, name)):
		problem = fmt.Sprintf("the topic %q is routed to the sink itself, where the dead letter would wait behind its own parked message; route the topic to another sink", to.Topic)
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("sink %q: dead letter: %s", name, problem)
}
