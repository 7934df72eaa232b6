package httpsink

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// escape makes a value fit for its place in the URL, or says why it can't be.
// Its errors complete "the value …".
func (t *target) escape(place int, value string) (string, error) {
	if value == "" {
		return sinks.NotEmpty(place, value)
	}
	switch t.parts[place] {
	case inBase:
		return t.base(value)
	case inScheme:
		if value != "http" && value != "https" {
			return "", errors.New("must be http or https")
		}
		return value, nil
	case inAuthority:
		if strings.ContainsFunc(value, notInHosts) {
			return "", errors.New("has a character that a host or port can't have")
		}
		return value, nil
	case inPath:
		return url.PathEscape(value), nil
	}
	return url.QueryEscape(value), nil
}

// base takes a URL to which the template may add a path and a query.
func (t *target) base(value string) (string, error) {
	given, err := parseURL(value)
	next := t.text.Texts()[1]
	switch {
	case err != nil:
		return "", err
	case next != "" && (given.RawQuery != "" || given.ForceQuery):
		return "", errors.New("has a query, which the rest of the url can't follow")
	case strings.HasPrefix(next, "/"):
		return strings.TrimSuffix(value, "/"), nil
	}
	return value, nil
}

func notInHosts(r rune) bool {
	letterOrDigit := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letterOrDigit && !strings.ContainsRune(".-_:[]", r)
}

// checkHost is for a host that a message has a say in. Forms that programs read
// differently are refused: what one calls a name is another's address inside.
func checkHost(u *url.URL) error {
	host, port := u.Hostname(), u.Port()
	bracketed := strings.HasPrefix(u.Host, "[")
	switch number, err := strconv.Atoi(port); {
	case strings.HasSuffix(u.Host, ":") || port != "" && (err != nil || number < 1 || number > 65535):
		return errors.New("has a port that is no number from 1 to 65535")
	case strings.ContainsFunc(u.Host, notInHosts):
		return errors.New("has a character that a host can't have; write an international name in its xn-- form")
	case bracketed || endsInNumber(host):
		return checkAddress(host, bracketed)
	case len(host) > 253 || slices.ContainsFunc(strings.Split(strings.TrimSuffix(host, "."), "."), badLabel):
		return errors.New("has a host that is no name")
	}
	return nil
}

func badLabel(label string) bool {
	return label == "" || len(label) > 63 || strings.Contains(label, ":")
}

// endsInNumber says that the host is an address to some programs, also as in
// 127.1, 2130706433 and 0x7f.0.0.1 (WHATWG's URL standard, "ends in a number").
func endsInNumber(host string) bool {
	host = strings.TrimSuffix(host, ".")
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	digits, hex := strings.CutPrefix(last, "0x")
	set := "0123456789"
	if hex {
		set += "abcdef"
	}
	return last != "" && strings.Trim(digits, set) == ""
}

func checkAddress(host string, bracketed bool) error {
	address, err := netip.ParseAddr(host)
	if err != nil || address.Zone() != "" || address.Is6() != bracketed {
		return errors.New("has a host that is an address in an unusual form: write it like 192.0.2.1 or [2001:db8::1]")
	}
	return nil
}

// checkSegments finds what a server would take for a way up in the path.
func checkSegments(u *url.URL) error {
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return errors.New("has a segment of one or two dots in its path, which leads to another path")
		}
	}
	return nil
}
