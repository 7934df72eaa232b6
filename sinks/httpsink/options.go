package httpsink

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

func (o Options) withDefaults() Options {
	o.Method = cmp.Or(o.Method, http.MethodPost)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.MaxRetryAfter = cmp.Or(o.MaxRetryAfter, DefaultMaxRetryAfter)
	o.EndpointConcurrency = cmp.Or(o.EndpointConcurrency, DefaultEndpointConcurrency)
	if o.Array {
		o.ArrayMax = cmp.Or(o.ArrayMax, DefaultArrayMax)
	} else {
		o.ArrayMax = 0
	}
	o.EndpointPause = cmp.Or(o.EndpointPause, DefaultEndpointPause)
	return o
}

// atOnce is how many messages are dealt with at once. Where endpoints have turns,
// those that wait for one must not keep others from theirs.
func (o Options) atOnce(t target) int {
	if t.chosen {
		return 1 << 16
	}
	return o.Concurrency
}

// check returns all that is wrong.
func (o Options) check() error {
	problems := []error{o.checkURL()}
	if o.Method != http.MethodPost && o.Method != http.MethodPut {
		problems = append(problems, fmt.Errorf("the method %q must be POST or PUT", o.Method))
	}
	if o.Timeout < 0 || o.Concurrency < 0 || o.MaxRetryAfter < 0 {
		problems = append(problems, errors.New("the timeout, the concurrency and the longest wait must not be negative"))
	}
	if o.ArrayMax < 0 {
		problems = append(problems, errors.New("the most messages of an array must not be negative"))
	}
	if o.EndpointConcurrency < 0 || o.EndpointRate < 0 || o.EndpointPause < 0 || o.EndpointGiveUp < 0 {
		problems = append(problems, errors.New("an endpoint's concurrency, rate, pause and give-up must not be negative"))
	}
	problems = append(problems, about("headers", checkStatic(o.Headers)), about("content type", checkValue(o.ContentType)),
		about("signing secret", checkSigning(o.SigningSecret)), o.OAuth2.check(), o.checkLogin(), o.checkArray())
	_, err := parseNetworks(o.InsideNetworks)
	problems = append(problems, about("inside networks", err), about("message headers", o.checkMade()))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("make an http sink: %w", err)
	}
	return nil
}

// checkURL also keeps a login from hosts that are not known beforehand.
func (o Options) checkURL() error {
	target, err := parseTarget(o.URL)
	if err == nil && !target.anchored && o.logins() > 0 {
		err = errors.New("lets messages send the login to any host: leave the login out, or fix the scheme and the end of the host, as in https://{key}.example.com/")
	}
	return about("url", err)
}

func about(subject string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the %s %w", subject, err)
}

func (o Options) checkLogin() error {
	switch {
	case o.logins() > 1:
		return errors.New("only one of bearer token, OAuth 2.0, user name with password, and an Authorization header can be set")
	case strings.Contains(o.Username, ":"):
		return errors.New("the user name must not contain a colon")
	}
	return about("bearer token", checkValue(o.BearerToken.Reveal()))
}

// logins counts the ways to authenticate that are set.
func (o Options) logins() int {
	count := 0
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(o.Headers)), maps.Keys(o.MessageHeaders)) {
		if http.CanonicalHeaderKey(name) == "Authorization" {
			count++
		}
	}
	if o.BearerToken != "" {
		count++
	}
	if o.OAuth2.set() {
		count++
	}
	if o.Username != "" || o.Password != "" {
		count++
	}
	return count
}

var errMalformed = errors.New("is malformed: it must be like https://host/path")

// parseURL checks where requests go. Its errors complete "the url …" and show
// none of it.
func parseURL(text string) (*url.URL, error) {
	target, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errMalformed
	case target.Scheme != "http" && target.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case target.Hostname() == "":
		return nil, errors.New("has no host: it must be like https://host/path")
	case target.User != nil:
		return nil, errors.New("must not have a user name or password: set username and password instead")
	case target.Fragment != "":
		return nil, errors.New("must not have a fragment: write %23 for a # in the path")
	}
	return target, nil
}

// staticHeader is what every request has.
func (o Options) staticHeader() http.Header {
	header := http.Header{"User-Agent": {"rowrelay"}}
	for name, value := range o.Headers {
		header.Set(name, value.Reveal())
	}
	if o.BearerToken != "" {
		header.Set("Authorization", "Bearer "+o.BearerToken.Reveal())
	}
	if o.Username != "" || o.Password != "" {
		header.Set("Authorization", "Basic "+o.basic())
	}
	return header
}

func (o Options) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(o.Username + ":" + o.Password.Reveal()))
}

// secrets are those of the settings that an answer or an error must not repeat.
func (o Options) secrets() []sinks.Secret {
	secrets := []sinks.Secret{o.BearerToken, o.OAuth2.ClientSecret, o.Password}
	for _, secret := range strings.Fields(o.SigningSecret.Reveal()) {
		secrets = append(secrets, sinks.Secret(secret))
	}
	if o.Password != "" {
		secrets = append(secrets, sinks.Secret(o.basic()))
	}
	for _, value := range o.Headers {
		secrets = append(secrets, value)
	}
	return secrets
}

// secretsOf are a URL's path and query.
func secretsOf(u *url.URL) []sinks.Secret {
	secrets := []sinks.Secret{sinks.Secret(u.RawQuery), worthHiding(u.Path), worthHiding(u.EscapedPath())}
	for _, values := range u.Query() {
		for _, value := range values {
			secrets = append(secrets, worthHiding(value))
		}
	}
	return secrets
}

// worthHiding leaves out texts that are too short for a secret and would be
// found everywhere.
func worthHiding(text string) sinks.Secret {
	if len(text) < 6 {
		return ""
	}
	return sinks.Secret(text)
}
