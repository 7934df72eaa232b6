package cloudevents

import (
	"fmt"
	"strings"
)

// Binding is how a protocol carries an event's attributes in binary mode.
type Binding struct {
	prefix, contentType string
	escape              func(string) string
}

// The bindings. AMQP's is made for AMQP 1.0, whose application properties are
// the headers of AMQP 0-9-1.
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

// percentEncode is what the HTTP binding wants of header values (section
// 3.1.3.2): everything but printable ASCII, and blank, quote and percent.
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
