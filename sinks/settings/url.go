package settings

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// FromURL returns the settings in a sink's URL: the parameters of its query, and
// the username and password before its host. The other arguments are the names of
// settings that another part of the URL sets; FromURL returns an error if the query
// has one of these settings. FromURL doesn't check values, and its errors don't
// contain values.
func FromURL(u *url.URL, elsewhere ...string) (map[string]any, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the query must be settings like name=value, with special characters percent-encoded")
	}
	settings := map[string]any{}
	for name, values := range query {
		switch {
		case slices.Contains(elsewhere, name):
			return nil, fmt.Errorf("the setting %s can't be in the query: another part of the URL sets it", name)
		case len(values) > 1:
			return nil, fmt.Errorf("the setting %s is given twice", name)
		}
		settings[name] = values[0]
	}
	if name := u.User.Username(); name != "" {
		settings["username"] = name
	}
	if password, _ := u.User.Password(); password != "" {
		settings["password"] = password
	}
	return settings, nil
}

// NothingFromURL is the FromURL function of a kind without settings, whose URL is its
// scheme and a colon. It returns an error for any other URL.
func NothingFromURL(u *url.URL) (map[string]any, error) {
	if *u != (url.URL{Scheme: u.Scheme, OmitHost: u.OmitHost}) {
		return nil, fmt.Errorf("nothing may follow %s: in the URL", u.Scheme)
	}
	return nil, nil
}

// PathFromURL returns the path in a URL such as file:path or file:///absolute/path.
func PathFromURL(u *url.URL) (string, error) {
	if u.Host != "" || u.User != nil {
		return "", fmt.Errorf("%s:// must be followed by an absolute path: write %[1]s:path or %[1]s:///absolute/path", u.Scheme)
	}
	if u.Fragment != "" {
		return "", errors.New("a # in the path must be written as %23")
	}
	if u.Opaque == "" {
		return u.Path, nil
	}
	path, err := url.PathUnescape(u.Opaque)
	if err != nil {
		return "", errors.New("a % in the path must be written as %25")
	}
	return path, nil
}
