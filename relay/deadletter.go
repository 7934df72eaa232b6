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

// Dead letters. By choice a message that is parked is sent elsewhere, too: as a message of its
// own, which the settlement that parks it writes from its row (see [storage.Copy]). So there is
// one for each time that a message was parked, whatever is repeated or fenced, and it is read,
// routed, sent and tried again as any other.

// The headers of a dead letter, beside those of its message.
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

// mostErrorHeader is how many bytes of an error a dead letter shows: servers of HTTP take some
// 8 KiB of headers, and all of it stands with the parked message.
const mostErrorHeader = 500

// addDeadLetter has the settlement that parks a message of the sink now, by the database's clock, write its dead letter, if it
// gets one, and returns what the log is to say of that. A dead letter gets none: it would come
// back for ever.
func (q *sinkQueue) addDeadLetter(row *storage.Row, reason string, parked *result, now time.Time) (said string) {
	to := q.options.DeadLetter
	if to == (DeadLetter{}) {
		return ""
	}
	if _, dead := row.Message.Headers[deadLetterMessage]; dead {
		return "; it is a dead letter itself, of which none is written"
	}
	headers := map[string]string{}
	for name, value := range row.Message.Headers {
		if !sinks.ReservedHeader(name) { // perhaps it was parked for that
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

// withoutError is a dead letter that says of an error that the database can't store it.
func withoutError(letter storage.Copy) *storage.Copy {
	headers := map[string]string{}
	_ = json.Unmarshal([]byte(letter.Headers), &headers) // made by headersText
	headers[deadLetterError] = unwritableText
	letter.Headers = headersText(headers)
	return &letter
}

func headersText(headers map[string]string) string {
	text, _ := json.Marshal(headers) // a map of texts always can be
	return string(text)
}

// headerText is what every sink can carry as a header's value: HTTP takes no line breaks, and no
// blanks at the ends.
func headerText(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text))
}

// checkDeadLetter wants that the sink's dead letters come somewhere. A sink that holds keys can't
// have its own: they would wait behind their message.
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
		problem = "goes to the sink itself, which refused the message; give another, or a topic"
	case strings.Contains(to.Sink, ",") || len(to.Sink) > storage.MostSinks:
		problem = fmt.Sprintf("the sink %.100q has a name with a comma, or a long one: rows can't name it", to.Sink)
	case to.Sink != "":
	case routes.find(to.Topic).sinks[0] == len(routes.names):
		problem = fmt.Sprintf("no route takes the topic %q", to.Topic)
	case s.OnPark == HoldKey && slices.Contains(routes.find(to.Topic).sinks, slices.Index(routes.names, name)):
		problem = fmt.Sprintf("the topic %q is routed to the sink itself, where it would wait behind the key that is held", to.Topic)
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("sink %q: dead letter: %s", name, problem)
}
