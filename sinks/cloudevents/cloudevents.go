// Package cloudevents converts messages to CloudEvents 1.0, in binary or structured
// mode, for sinks whose protocol has a CloudEvents binding.
//
// A message's own headers named ce-NAME (or ce_NAME), in upper or lower case, set
// attributes. The other attributes come from the message and from the [Options].
package cloudevents

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Mode determines where an event's attributes are placed.
type Mode string

// The modes. In binary mode the payload is unchanged and the attributes are
// headers. In structured mode the payload is a JSON object with the attributes and
// the data.
const (
	Off        Mode = "off"
	Binary     Mode = "binary"
	Structured Mode = "structured"
)

// Options configure an [Encoder].
type Options struct {
	Mode Mode // defaults to Off

	// Source is a URI reference. It is the source of events whose message has no ce-source
	// header. Required unless the mode is Off.
	Source string

	// Type is the type of events whose message has no ce-type header. Defaults to
	// the message's topic.
	Type string
}

// Encoder converts messages to events. A nil Encoder returns messages unchanged. The
// methods may be called concurrently.
type Encoder struct {
	options Options
	binding Binding
}

// New returns an encoder for a protocol, or nil if the mode is Off.
func New(binding Binding, options Options) (*Encoder, error) {
	switch options.Mode {
	case Off, "":
		if options.Source != "" || options.Type != "" {
			return nil, errors.New("make CloudEvents: a source or a type is set, but the mode is off")
		}
		return nil, nil
	case Binary, Structured:
	default:
		return nil, fmt.Errorf("make CloudEvents: the mode %q must be off, binary or structured", options.Mode)
	}
	if _, err := url.Parse(options.Source); err != nil || options.Source == "" {
		return nil, errors.New("make CloudEvents: the source must be a URI reference, like https://shop.example/orders or /orders")
	}
	return &Encoder{options, binding}, nil
}

// Message returns the message to send: with the attributes in its headers, or with
// the whole event as its payload. An error means that the message's headers are
// invalid, so every further attempt would fail too.
func (e *Encoder) Message(m sinks.Message) (sinks.Message, error) {
	if e == nil {
		return m, nil
	}
	event, err := e.event(m)
	if err != nil {
		return m, fmt.Errorf("make a CloudEvent: %w", err)
	}
	m.Headers = event.headers
	if e.options.Mode == Structured {
		m.Payload = event.json()
		m.Headers[e.binding.contentType] = structuredType
		return m, nil
	}
	e.binding.put(m.Headers, event)
	return m, nil
}

// event is a CloudEvent, independent of mode and protocol.
type event struct {
	attributes  map[string]string // without datacontenttype
	contentType string
	data        []byte            // nil: no data
	headers     map[string]string // the message's other headers
}

func (e *Encoder) event(m sinks.Message) (event, error) {
	made := event{data: m.Payload, headers: map[string]string{}, attributes: map[string]string{
		"specversion": "1.0", "id": m.ID, "source": e.options.Source, "type": m.Topic,
	}}
	if e.options.Type != "" {
		made.attributes["type"] = e.options.Type
	}
	if m.Key != "" {
		made.attributes["subject"] = m.Key
	}
	if !m.CreatedAt.IsZero() {
		made.attributes["time"] = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	if !m.ExpiresAt.IsZero() {
		made.attributes["expirytime"] = m.ExpiresAt.UTC().Format(time.RFC3339Nano)
	}
	for name, value := range m.Headers {
		if err := made.take(name, value); err != nil {
			return event{}, err
		}
	}
	if made.contentType == "" {
		made.contentType = sinks.ContentType(m.Payload)
	}
	return made, nil
}

// take stores one header of the message: as an attribute, as the content type, or as
// an ordinary header.
func (e *event) take(name, value string) error {
	lower := strings.ToLower(name)
	attribute, found := strings.CutPrefix(lower, "ce-")
	if !found {
		attribute, found = strings.CutPrefix(lower, "ce_")
	}
	switch {
	case lower == "content-type":
		e.contentType = value
	case !found:
		e.headers[name] = value
	default:
		if err := checkAttribute(attribute, value); err != nil {
			return fmt.Errorf("the header %q %w", name, err)
		}
		e.attributes[attribute] = value
	}
	return nil
}

// checkAttribute checks a message's attribute against the specification
// (CloudEvents 1.0.2, sections 2 and 3). The text of an error completes the sentence
// "the header …".
func checkAttribute(name, value string) error {
	switch {
	case name == "" || strings.ContainsFunc(name, notNameRune):
		return errors.New("is not an attribute: names consist of letters and digits")
	case name == "data" || name == "datacontenttype":
		return errors.New("can't be set: the payload is the data, and the header Content-Type is its type")
	case value == "":
		return errors.New("has no value: remove the header")
	case !utf8.ValidString(value) || strings.ContainsFunc(value, forbidden):
		return errors.New("has characters that CloudEvents doesn't allow")
	}
	switch name { // attributes whose values have a fixed format
	case "specversion":
		if value != "1.0" {
			return errors.New("must be 1.0")
		}
	case "time", "expirytime":
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
			return errors.New("must be a time such as 2026-01-31T23:59:59Z")
		}
	case "source", "dataschema":
		parsed, err := url.Parse(value)
		if err != nil || name == "dataschema" && !parsed.IsAbs() {
			return errors.New("must be a URI")
		}
	}
	return nil
}

func notNameRune(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') }

// forbidden reports whether a character is a control character or a noncharacter.
func forbidden(r rune) bool {
	return unicode.IsControl(r) || r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef
}

// Binding describes how a protocol carries an event's attributes in binary mode.
type Binding struct {
	prefix, contentType string
	escape              func(string) string
}

// The bindings. AMQP follows the binding for AMQP 1.0, whose application properties
// correspond to the headers of AMQP 0-9-1.
var (
	HTTP  = Binding{"ce-", "Content-Type", percentEncode}
	Kafka = Binding{"ce_", "content-type", plain}
	AMQP  = Binding{"cloudEvents:", "content-type", plain}
)

func (b Binding) put(headers map[string]string, made event) {
	for name, value := range made.attributes {
		headers[b.prefix+name] = b.escape(value)
	}
	if made.contentType != "" {
		headers[b.contentType] = made.contentType
	}
}

func plain(text string) string { return text }

// percentEncode encodes a header value as the HTTP binding requires (section 3.1.3.2):
// it encodes spaces, double quotes, percent signs and all bytes that are not printable ASCII.
func percentEncode(text string) string {
	var encoded strings.Builder
	for i := range len(text) {
		if b := text[i]; b > ' ' && b < 0x7f && b != '"' && b != '%' {
			encoded.WriteByte(b)
		} else {
			fmt.Fprintf(&encoded, "%%%02X", b)
		}
	}
	return encoded.String()
}

const structuredType = "application/cloudevents+json; charset=UTF-8"

// json returns the event in JSON event format (section 3). Data whose type and content
// are JSON is embedded as JSON. Text with a text type becomes a string. All other data
// is encoded in base64.
func (e event) json() []byte {
	members := make(map[string]any, len(e.attributes)+2)
	for name, value := range e.attributes {
		members[name] = value
	}
	if e.contentType != "" {
		members["datacontenttype"] = e.contentType
	}
	switch kind := mediaType(e.contentType); {
	case e.data == nil:
	case isJSON(kind) && json.Valid(e.data):
		members["data"] = json.RawMessage(e.data)
	case strings.HasPrefix(kind, "text/") && utf8.Valid(e.data):
		members["data"] = string(e.data)
	default:
		members["data_base64"] = e.data
	}
	text, _ := json.Marshal(members) // can't fail for texts, bytes and valid JSON
	return text
}

func mediaType(contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return kind
}

func isJSON(kind string) bool {
	return strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json")
}

// Fields returns the CloudEvents settings, which a sink adds to the fields of its kind.
func Fields() []settings.Field {
	return []settings.Field{
		{Name: "cloudevents", Type: settings.TypeString, Default: string(Off), Choices: []string{string(Off), string(Binary), string(Structured)},
			Help: "Whether messages go out as CloudEvents 1.0, and in which mode. Headers named ce-NAME set attributes."},
		{Name: "cloudevents_source", Type: settings.TypeString, Help: "The source of events whose message has no ce-source header, as a URI reference. Required for CloudEvents."},
		{Name: "cloudevents_type", Type: settings.TypeString, Help: "The type of events whose message has no ce-type header. By default the message's topic."},
	}
}

// FromSettings converts the values of the settings of [Fields] to options.
func FromSettings(s settings.Values) Options {
	return Options{Mode: Mode(s.Text("cloudevents")), Source: s.Text("cloudevents_source"), Type: s.Text("cloudevents_type")}
}
