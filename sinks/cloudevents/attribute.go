package cloudevents

import (
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// checkAttribute holds a message's attribute to the specification (CloudEvents
// 1.0.2, sections 2 and 3). Its errors complete "the header …".
func checkAttribute(name, value string) error {
	switch {
	case name == "" || strings.ContainsFunc(name, notNameRune):
		return errors.New("is no attribute: names have lower-case letters and digits only")
	case name == "data" || name == "datacontenttype":
		return errors.New("is no attribute that can be set so: the payload is the data, and Content-Type its type")
	case value == "":
		return errors.New("has no value: leave it out")
	case !utf8.ValidString(value) || strings.ContainsFunc(value, forbidden):
		return errors.New("has characters that CloudEvents doesn't allow")
	}
	return checkKnown(name, value)
}

// checkKnown checks the values of the attributes that have a form.
func checkKnown(name, value string) error {
	switch name {
	case "specversion":
		if value != "1.0" {
			return errors.New("must be 1.0")
		}
	case "time":
		if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
			return errors.New("must be a time as in 2026-01-31T23:59:59Z")
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

// forbidden are control characters and noncharacters.
func forbidden(r rune) bool {
	return unicode.IsControl(r) || r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef
}
