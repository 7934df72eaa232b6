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
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func (o Options) withDefaults() Options {
	o.Method = cmp.Or(o.Method, http.MethodPost)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.EndpointConcurrency = cmp.Or(o.EndpointConcurrency, DefaultEndpointConcurrency)
	if o.Array {
		o.ArrayMax = cmp.Or(o.ArrayMax, DefaultArrayMax)
	} else {
		o.ArrayMax = 0
	}
	o.EndpointPause = cmp.Or(o.EndpointPause, DefaultEndpointPause)
	return o
}

// atOnce is the number of messages that all Sends together handle concurrently. If messages choose their endpoints, the
// number is large, because messages that wait for a slow endpoint must not block messages of other endpoints.
func (o Options) atOnce(t target) int {
	if t.chosen {
		return 1 << 16
	}
	return o.Concurrency
}

// check returns an error that lists everything that is wrong with the options.
func (o Options) check() error {
	problems := []error{o.checkURL(), validRejectStatuses(o.RejectStatuses)}
	if o.Method != http.MethodPost && o.Method != http.MethodPut {
		problems = append(problems, fmt.Errorf("the method %q must be POST or PUT", o.Method))
	}
	if o.Timeout < 0 || o.Concurrency < 0 {
		problems = append(problems, errors.New("the timeout and the concurrency must not be negative"))
	}
	if o.Array && o.CloudEvents.Mode == cloudevents.Binary {
		problems = append(problems, errors.New("an array can't have CloudEvents in binary mode: use structured"))
	}
	if o.ArrayMax < 0 {
		problems = append(problems, errors.New("the maximum length of an array must not be negative"))
	}
	if o.EndpointConcurrency < 0 || o.EndpointRate < 0 || o.EndpointPause < 0 || o.EndpointMaxAge < 0 {
		problems = append(problems, errors.New("an endpoint's concurrency, rate, pause and maximum age must not be negative"))
	}
	problems = append(problems, settings.PrefixError("headers", checkHeaders(o.Headers)), settings.PrefixError("content type", checkValue(o.ContentType)),
		settings.PrefixError("signing secret", checkSigning(o.SigningSecret)), o.OAuth2.Check(), o.checkLogin())
	_, err := parseNetworks(o.AllowedNetworks)
	problems = append(problems, settings.PrefixError("allowed networks", err), settings.PrefixError("message headers", o.checkMade()))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("make an http sink: %w", err)
	}
	return nil
}

// checkURL checks the URL. If the sink has credentials, it refuses a template in which a message can choose any host, because
// the credentials would be sent there.
func (o Options) checkURL() error {
	target, err := parseTarget(o.URL)
	if err == nil && !target.anchored && o.logins() > 0 {
		err = errors.New("lets messages send the credentials to any host: remove the credentials, or fix the scheme and the end of the host, as in https://{key}.example.com/")
	}
	return settings.PrefixError("url", err)
}

func (o Options) checkLogin() error {
	switch {
	case o.logins() > 1:
		return errors.New("set only one of bearer token, OAuth 2.0, user name with password, and an Authorization header")
	case strings.Contains(o.Username, ":"):
		return errors.New("the user name must not contain a colon")
	}
	return settings.PrefixError("bearer token", checkValue(o.BearerToken.Reveal()))
}

// logins counts the authentication methods that are set.
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
	if o.OAuth2.IsSet() {
		count++
	}
	if o.Username != "" || o.Password != "" {
		count++
	}
	return count
}

var errMalformed = errors.New("is malformed: it must have the form https://host/path")

// parseURL parses and checks a URL. An error completes the sentence "the url …" and doesn't contain the URL.
func parseURL(text string) (*url.URL, error) {
	if scheme, rest, found := strings.Cut(text, "://"); found {
		authority, path, query := cut(rest)
		text = scheme + "://" + authority + escapePath(path) + query
	}
	target, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errMalformed
	case target.Scheme != "http" && target.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case target.Hostname() == "":
		return nil, errors.New("has no host: it must have the form https://host/path")
	case target.User != nil:
		return nil, errors.New("must not have a user name or password: set username and password instead")
	case target.Fragment != "":
		return nil, errors.New("must not have a fragment: write %23 for a # in the path")
	}
	return target, nil
}

// escapePath escapes the characters that a path can have only in escaped form, for example spaces and letters outside of ASCII.
// It leaves fragments and control characters unchanged, because parseURL refuses them. url.URL could escape the path, too, but would
// also replace each %2F with a slash.
func escapePath(path string) string {
	var escaped strings.Builder
	for i := range len(path) {
		if c := path[i]; c > 0x7f || strings.IndexByte(" \"<>\\^`{|}", c) >= 0 {
			fmt.Fprintf(&escaped, "%%%02X", c)
		} else {
			escaped.WriteByte(c)
		}
	}
	return escaped.String()
}

// staticHeader returns the headers that every request has.
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

// secrets returns the secrets of the settings, which outcomes and errors must not contain.
func (o Options) secrets() []settings.Secret {
	secrets := []settings.Secret{o.BearerToken, o.OAuth2.ClientSecret, o.Password}
	for _, secret := range strings.Fields(o.SigningSecret.Reveal()) {
		secrets = append(secrets, settings.Secret(secret))
	}
	if o.Password != "" {
		secrets = append(secrets, settings.Secret(o.basic()))
	}
	for _, value := range o.Headers {
		secrets = append(secrets, value)
	}
	return secrets
}

// secretsOf returns the parts of a URL that may be secret: the path, the query, and each value in the query.
func secretsOf(u *url.URL) []settings.Secret {
	secrets := []settings.Secret{settings.Secret(u.RawQuery), worthHiding(u.Path), worthHiding(u.EscapedPath())}
	for _, values := range u.Query() {
		for _, value := range values {
			secrets = append(secrets, worthHiding(value))
		}
	}
	return secrets
}

// worthHiding returns a text as a secret, or "" if the text is so short that hiding it would also hide unrelated text.
func worthHiding(text string) settings.Secret {
	if len(text) < 6 {
		return ""
	}
	return settings.Secret(text)
}

// Kind describes the sink for a registry: the kind "http". A sink URL is the URL of the endpoint; its user name
// and password become settings.
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "http",
		Summary: "Sends each message as an HTTP request.",
		Schemes: []string{"http", "https"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields: slices.Concat([]settings.Field{
			{Name: "url", Type: settings.TypeString, Required: true, Check: settings.Parses(parseTarget), Help: "The URL that requests go to. It may contain {topic}, {key}, {id} and {header:NAME}, which the message's values replace. Errors hide its path and query."},
			{Name: "method", Type: settings.TypeString, Default: "POST", Choices: []string{"POST", "PUT"}, Help: "The method of the requests."},
			{Name: "headers", Type: settings.TypeSecretMap, Check: settings.Check(checkHeaders[settings.Secret]), Help: "Headers added to each request. A message can overwrite only Content-Type and User-Agent."},
			{Name: "message_headers", Type: settings.TypeMap, Check: settings.Parses(parseHeaders), Help: "Headers whose values may contain the same placeholders as url."},
			{Name: "content_type", Type: settings.TypeString, Check: checkText, Help: "The Content-Type of messages that have no such header. By default application/json for a JSON object or array, otherwise application/octet-stream."},
			{Name: "bearer_token", Type: settings.TypeSecret, Check: checkText, Help: "A bearer token to authenticate with."},
			{Name: "username", Type: settings.TypeString, Help: "The user name for HTTP basic authentication."},
			{Name: "password", Type: settings.TypeSecret, Help: "The password for HTTP basic authentication."},
			{Name: "signing_secret", Type: settings.TypeSecret, Check: settings.Parses(parseSecrets), Help: "Sign requests according to Standard Webhooks 1.0, with a shared secret (whsec_…) or an ed25519 private key (whsk_…). Separate several secrets with spaces; each of them adds a signature."},
			{Name: "request_timeout", Type: settings.TypeDuration, Default: DefaultTimeout.String(), Min: "1ms", Max: "10m", Help: "The time limit of one request. Keep it below the sink's timeout for a batch."},
			{Name: "concurrency", Type: settings.TypeInt, Default: fmt.Sprint(DefaultConcurrency), Min: "1", Max: "1000", Help: "The maximum number of concurrent requests. Only one message of each key is sent at a time."},
			{Name: "array", Type: settings.TypeBool, Default: "false", Help: "Send the messages of a batch that go to one URL as one JSON array."},
			{Name: "array_max", Type: settings.TypeInt, Default: fmt.Sprint(DefaultArrayMax), Min: "1", Max: "10000", Help: "The maximum number of messages in an array."},
			{Name: "endpoint_concurrency", Type: settings.TypeInt, Default: fmt.Sprint(DefaultEndpointConcurrency), Min: "1", Max: "1000", Help: "If messages choose the endpoint: the maximum number of concurrent requests to one endpoint."},
			{Name: "endpoint_rate", Type: settings.TypeInt, Default: "0", Min: "0", Max: "100000", Help: "If messages choose the endpoint: the maximum number of requests per second to one endpoint. 0 means no limit."},
			{Name: "endpoint_pause", Type: settings.TypeDuration, Default: DefaultEndpointPause.String(), Min: "1s", Max: "24h", Help: "If messages choose the endpoint: the longest pause before an endpoint that fails is tried again."},
			{Name: "endpoint_max_age", Type: settings.TypeDuration, Default: "0s", Min: "0s", Help: "If messages choose the endpoint: the age at which a message is parked if its endpoint is unavailable. 0s means never."},
			{Name: "reject_statuses", Type: settings.TypeList, Check: settings.Check(checkRejectStatuses), Help: "The statuses among 401, 403 and 404 for which a message is parked. For the others, the message is retried."},
			{Name: "block_private_addresses", Type: settings.TypeBool, Default: "false", Help: "Connect to public addresses only, without a proxy. Always on if messages choose the scheme, host or port of the url."},
			{Name: "allowed_networks", Type: settings.TypeList, Check: settings.Parses(parseNetworks), Help: "Exceptions to block_private_addresses, such as 10.1.0.0/16."},
		}, oauth2.Fields(), settings.TLSFields(), cloudevents.Fields()),
	}
}

// accusing lists the statuses that have two possible meanings: the endpoint refuses all messages, because the
// credentials or the address are wrong, or it refuses only this message.
var accusing = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}

func checkRejectStatuses(texts []string) error { return validRejectStatuses(statusesOf(texts)) }

func validRejectStatuses(statuses []int) error {
	for _, status := range statuses {
		if !slices.Contains(accusing, status) {
			return errors.New("must be among 401, 403 and 404: no setting changes the outcome of other statuses")
		}
	}
	return nil
}

// statusesOf converts texts to statuses. A text that is not a number becomes 0, which
// validRejectStatuses refuses.
func statusesOf(texts []string) (statuses []int) {
	for _, text := range texts {
		status, _ := strconv.Atoi(text)
		statuses = append(statuses, status)
	}
	return statuses
}

func checkText(value any) error {
	if secret, ok := value.(settings.Secret); ok {
		return checkValue(secret.Reveal())
	}
	return checkValue(value.(string))
}

func fromSettings(s settings.Values) (sinks.Sink, error) {
	secured, err := s.TLS()
	if err != nil {
		return nil, err
	}
	return New(Options{
		URL:     s.Text("url"),
		Method:  s.Text("method"),
		Headers: s.SecretMap("headers"),

		MessageHeaders:  s.Map("message_headers"),
		AllowedNetworks: s.List("allowed_networks"),
		ContentType:     s.Text("content_type"),
		BearerToken:     s.Secret("bearer_token"),
		OAuth2:          oauth2.FromSettings(s),
		Username:        s.Text("username"),
		Password:        s.Secret("password"),
		Timeout:         s.Duration("request_timeout"),
		Concurrency:     s.Int("concurrency"),

		RejectStatuses: statusesOf(s.List("reject_statuses")),

		Array: s.Bool("array"), ArrayMax: s.Int("array_max"),

		EndpointConcurrency: s.Int("endpoint_concurrency"),
		EndpointRate:        s.Int("endpoint_rate"),
		EndpointPause:       s.Duration("endpoint_pause"),
		EndpointMaxAge:      s.Duration("endpoint_max_age"),

		SigningSecret:         s.Secret("signing_secret"),
		CloudEvents:           cloudevents.FromSettings(s),
		BlockPrivateAddresses: s.Bool("block_private_addresses"),
		TLS:                   secured,
	})
}

// fromURL converts a sink's URL to settings. The query of the URL is sent to the endpoint. A query parameter with
// the name of a setting is refused, because the user most likely meant the setting.
func fromURL(u *url.URL) (map[string]any, error) {
	query, _ := url.ParseQuery(u.RawQuery) // no error: a query that can't be parsed is sent to the endpoint unchanged
	for _, f := range Kind().Fields {
		if query.Has(f.Name) {
			return nil, fmt.Errorf("%s is a setting, but the query of an http URL is sent to the endpoint: use a configuration file; there, put %[1]s into the sink's settings or, if it is meant for the endpoint, into the query of its url", f.Name)
		}
	}
	settings, _ := settings.FromURL(&url.URL{User: u.User}) // only the user name and password
	endpoint := *u
	endpoint.User = nil
	settings["url"] = endpoint.String()
	if strings.Contains(u.RawPath, "{") { // URL.String would escape the braces of placeholders
		settings["url"] = strings.Replace(endpoint.String(), u.EscapedPath(), u.RawPath, 1)
	}
	return settings, nil
}
