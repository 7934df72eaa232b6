package httpsink

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// The headers that the sink sets.
const (
	headerID      = "Idempotency-Key"
	headerTopic   = "Rowrelay-Topic"
	headerKey     = "Rowrelay-Key"
	headerAttempt = "Rowrelay-Attempt"
	headerPayload = "Rowrelay-Payload"
)

// reserved lists the headers that belong to the connection or to this sink.
var reserved = []string{
	"Connection", "Content-Length", "Expect", "Host", "Http2-Settings", headerID, "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", headerSignedID, headerTimestamp, headerSignature,
}

// overwritable lists the headers for which a message's own value replaces the value in
// the settings.
var overwritable = []string{"Content-Type", "User-Agent"}

// header makes the header of a request that sends m. The templates of Options.MessageHeaders take their
// values from the original message (written), which differs from m if m is a CloudEvent. If a header
// can't be sent, the error names the header.
func (s *Sink) header(written, m sinks.Message) (http.Header, error) {
	held := s.secrets.Load()
	theirs := make(http.Header, len(m.Headers))
	for name, value := range m.Headers {
		canonical := http.CanonicalHeaderKey(name)
		_, static := held.static[canonical]
		_, made := s.made[canonical]
		if (static || made) && !slices.Contains(overwritable, canonical) {
			return nil, fmt.Errorf("the header %q is set by the sink's configuration", name)
		}
		if err := checkHeader(theirs, name, value); err != nil {
			return nil, fmt.Errorf("the header %q %w", name, err)
		}
		theirs.Set(name, value)
	}
	header := held.static.Clone()
	if err := s.fill(header, &written); err != nil {
		return nil, err
	}
	maps.Copy(header, theirs)
	if header.Get("Content-Type") == "" && m.Payload != nil {
		contentType := s.contentType
		if contentType == "" {
			contentType = sinks.ContentType(m.Payload)
		}
		header.Set("Content-Type", contentType)
	}
	header.Set(headerID, percentEncode(m.ID))
	header.Set(headerTopic, percentEncode(m.Topic))
	header.Set(headerAttempt, strconv.Itoa(m.Attempt))
	if m.Key != "" {
		header.Set(headerKey, percentEncode(m.Key))
	}
	if m.Payload == nil {
		header.Set(headerPayload, "null")
	}
	s.sign(header, m.ID, m.Payload)
	hideIdempotency(header)
	return header, nil
}

// hideIdempotency puts the names of two headers in lower case, so that Go's client
// doesn't recognise them; HTTP ignores the case of names. Otherwise the client would
// repeat a request that got no answer, and the relay would not count that attempt.
func hideIdempotency(header http.Header) {
	for _, name := range []string{headerID, "X-" + headerID} {
		if values, there := header[name]; there {
			delete(header, name)
			header[strings.ToLower(name)] = values
		}
	}
}

// checkHeaders checks headers of the options. Its errors don't contain values.
func checkHeaders[T ~string](headers map[string]T) error {
	before := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := string(headers[name])
		err := checkHeader(before, name, value)
		if err == nil && value == "" {
			err = errors.New("has no value")
		}
		if err != nil {
			return fmt.Errorf("can't be sent: %q %w", name, err)
		}
		before.Set(name, value)
	}
	return nil
}

// checkHeader checks one header. The text of an error completes the sentence "the
// header …" and doesn't contain the value.
func checkHeader(before http.Header, name, value string) error {
	canonical := http.CanonicalHeaderKey(name)
	_, twice := before[canonical]
	switch {
	case name == "" || strings.ContainsFunc(name, notToken):
		return errors.New("has a name that HTTP can't carry")
	case sinks.ReservedHeader(name) || slices.Contains(reserved, canonical):
		return errors.New("belongs to the connection or to the sink and can't be set")
	case twice:
		return errors.New("is set twice, in upper and lower case")
	}
	return checkValue(value)
}

// notToken reports whether a character is not allowed in a header's name.
func notToken(r rune) bool {
	letterOrDigit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letterOrDigit && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// checkValue checks the value of a header. It allows bytes above ASCII: HTTP carries
// them, although it doesn't define their meaning.
func checkValue(value string) error {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	switch {
	case strings.ContainsFunc(value, control):
		return errors.New("has a line break or another control character, which HTTP can't carry")
	case strings.Trim(value, " \t") != value:
		return errors.New("begins or ends with a space, which HTTP can't carry")
	}
	return nil
}

// percentEncode writes the percent sign, and each byte that is not visible ASCII, as
// %XX. Functions such as url.PathUnescape decode the result.
func percentEncode(text string) string {
	plain := func(b byte) bool { return b > ' ' && b < 0x7f && b != '%' }
	var encoded strings.Builder
	for i := range len(text) {
		if b := text[i]; plain(b) {
			encoded.WriteByte(b)
		} else {
			fmt.Fprintf(&encoded, "%%%02X", b)
		}
	}
	return encoded.String()
}

// parseHeaders parses the templates of message headers. The keys of the result are
// canonical header names. The text of an error completes the sentence "the message headers …".
func parseHeaders(templates map[string]string) (map[string]settings.Template, error) {
	parsed := map[string]settings.Template{}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		template, err := settings.ParseTemplate(templates[name])
		if err != nil {
			return nil, fmt.Errorf("can't be sent: %q %w", name, err)
		}
		parsed[http.CanonicalHeaderKey(name)] = template
	}
	return parsed, checkHeaders(templates)
}

// checkMade checks MessageHeaders, and that none of them is also in Headers.
func (o Options) checkMade() error {
	made, err := parseHeaders(o.MessageHeaders)
	for name := range o.Headers {
		if _, both := made[http.CanonicalHeaderKey(name)]; both && err == nil {
			err = fmt.Errorf("can't be sent: %q is also set in the headers", http.CanonicalHeaderKey(name))
		}
	}
	return err
}

// fill adds the headers of Options.MessageHeaders, with values from m.
func (s *Sink) fill(header http.Header, m *sinks.Message) error {
	for name, template := range s.made {
		value, err := template.Fill(&m.Message, settings.NotEmpty)
		if err == nil {
			err = checkValue(value)
		}
		if err != nil {
			return fmt.Errorf("the header %q %w", name, err)
		}
		header.Set(name, value)
	}
	return nil
}
