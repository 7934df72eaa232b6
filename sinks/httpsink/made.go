package httpsink

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/rowrelay/rowrelay/sinks"
)

// parseHeaders reads the templates of headers that each message fills, by the
// headers' canonical names. Its errors complete "the message headers …".
func parseHeaders(templates map[string]string) (map[string]sinks.Template, error) {
	parsed, before := map[string]sinks.Template{}, http.Header{}
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		template, err := parseHeader(before, name, templates[name])
		if err != nil {
			return nil, fmt.Errorf("can't be sent: %q %w", name, err)
		}
		before.Set(name, templates[name])
		parsed[http.CanonicalHeaderKey(name)] = template
	}
	return parsed, nil
}

func parseHeader(before http.Header, name, text string) (sinks.Template, error) {
	if text == "" {
		return sinks.Template{}, errors.New("has no value")
	}
	if err := checkHeader(before, name, text); err != nil {
		return sinks.Template{}, err
	}
	return sinks.ParseTemplate(text)
}

// checkMade checks the headers that messages fill, also against the others.
func (o Options) checkMade() error {
	made, err := parseHeaders(o.MessageHeaders)
	for name := range o.Headers {
		if _, both := made[http.CanonicalHeaderKey(name)]; both && err == nil {
			err = fmt.Errorf("can't be sent: %q is set by the headers too", http.CanonicalHeaderKey(name))
		}
	}
	return err
}

// fill adds the headers that are made of the message.
func (s *Sink) fill(header http.Header, m *sinks.Message) error {
	for name, template := range s.made {
		value, err := template.Fill(m, sinks.NotEmpty)
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
