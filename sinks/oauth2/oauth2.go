// Package oauth2 obtains access tokens with the client credentials of OAuth 2.0 (RFC 6749, section 4.4), for sinks that
// log in with bearer tokens.
package oauth2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// Options describe a client and the server that issues its tokens. With the zero value, a sink requests no tokens.
type Options struct {
	TokenURL     string // http or https
	ClientID     string
	ClientSecret settings.Secret
	Scopes       []string
	Audience     string // the parameter audience, which some servers require; empty: none

	// SecretInBody sends the client's id and secret as parameters of the request instead of in its Authorization header. Most
	// servers accept both.
	SecretInBody bool
}

// IsSet reports whether the token URL, the client id or the client secret is set.
func (o Options) IsSet() bool { return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" }

// Check returns an error if a part of the options is missing or invalid. It returns nil for the zero Options. The error contains
// no secret.
func (o Options) Check() error {
	if !o.IsSet() {
		if len(o.Scopes) > 0 || o.Audience != "" || o.SecretInBody {
			return errors.New("OAuth 2.0 needs a token url, a client id and a client secret")
		}
		return nil
	}
	at, err := url.Parse(o.TokenURL)
	switch {
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Hostname() == "" || at.Fragment != "":
		return errors.New("the OAuth 2.0 token url must have the form https://host/path")
	case at.User != nil:
		return errors.New("the OAuth 2.0 token url must not have a user name or password")
	case o.ClientID == "" || o.ClientSecret == "":
		return errors.New("OAuth 2.0 needs a client id and a client secret")
	}
	return nil
}

// Fields returns the settings that begin with oauth2_. Kinds of sinks that can log in with OAuth 2.0 include them in their settings,
// and [FromSettings] evaluates them.
func Fields() []settings.Field {
	return []settings.Field{
		{Name: "oauth2_token_url", Type: settings.TypeString, Help: "The URL that issues bearer tokens for OAuth 2.0 client credentials."},
		{Name: "oauth2_client_id", Type: settings.TypeString, Help: "The OAuth 2.0 client id."},
		{Name: "oauth2_client_secret", Type: settings.TypeSecret, Help: "The OAuth 2.0 client secret."},
		{Name: "oauth2_client_auth", Type: settings.TypeString, Default: "header", Choices: []string{"header", "body"}, Help: "Whether a request for a token has the client id and secret in its header or in its body."},
		{Name: "oauth2_scopes", Type: settings.TypeList, Help: "The OAuth 2.0 scopes to request."},
		{Name: "oauth2_audience", Type: settings.TypeString, Help: "The audience to request, for servers that require one."},
	}
}

// FromSettings returns the options for the settings of [Fields].
func FromSettings(s settings.Values) Options {
	return Options{
		TokenURL: s.Text("oauth2_token_url"), ClientID: s.Text("oauth2_client_id"), ClientSecret: s.Secret("oauth2_client_secret"),
		Scopes: s.List("oauth2_scopes"), Audience: s.Text("oauth2_audience"), SecretInBody: s.Text("oauth2_client_auth") == "body",
	}
}

// Token is an access token.
type Token struct {
	Secret  settings.Secret
	Expires time.Time // when it expires, on this machine's clock
}

// Source has the current token of a client, and replaces it before it expires. Its methods may be called concurrently.
type Source struct {
	options Options
	client  *http.Transport
	turn    chan struct{} // a mutex in the form of a channel, so that a context can end the wait; has one element while unlocked
	token   Token
	renewAt time.Time
}

const (
	// renewBefore is how long before its expiry a token is replaced. A token whose lifetime is shorter than twice renewBefore is
	// replaced after half of its lifetime.
	renewBefore = time.Minute

	// unknownLifetime is the assumed lifetime of a token if the server doesn't state it.
	unknownLifetime = 5 * time.Minute

	longestLifetime = 24 * time.Hour

	// While the current token is valid, a request for another token may take at most renewTimeout. If the request fails,
	// the Source waits for renewPause before the next one.
	renewTimeout = 3 * time.Second
	renewPause   = 5 * time.Second
)

// NewSource returns a Source that makes its requests over the given transport. The Source owns the
// transport. NewSource makes no request.
func NewSource(options Options, client *http.Transport) *Source {
	s := &Source{options: options, client: client, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	return s
}

// Token returns the current token. It requests another token if the current one expires soon. While that request runs, other
// callers get the current token. If the request fails, Token returns the current token until it expires. The error contains no
// secret.
func (s *Source) Token(ctx context.Context) (Token, error) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return Token{}, fmt.Errorf("get a token from oauth2_token_url: %w", ctx.Err())
	}
	now, current := time.Now(), s.token
	if now.Before(s.renewAt) {
		s.turn <- struct{}{}
		return current, nil
	}
	valid := now.Before(current.Expires)
	if valid {
		s.renewAt = now.Add(renewPause)
		s.turn <- struct{}{} // others use the current token meanwhile
		limited, cancel := context.WithTimeout(ctx, renewTimeout)
		defer cancel()
		ctx = limited
	} else {
		defer func() { s.turn <- struct{}{} }()
	}
	token, err := s.request(ctx)
	switch {
	case err != nil && valid:
		return current, nil
	case err != nil:
		return Token{}, fmt.Errorf("get a token from oauth2_token_url: %w", err)
	case valid:
		<-s.turn
		defer func() { s.turn <- struct{}{} }()
	}
	lifetime := token.Expires.Sub(now)
	s.token, s.renewAt = token, token.Expires.Add(-min(renewBefore, lifetime/2))
	return token, nil
}

// Forget makes the next call to Token request another token, because a destination has refused the given token. It does nothing
// if the token has already been replaced.
func (s *Source) Forget(token Token) {
	<-s.turn
	if s.token.Secret == token.Secret {
		s.token, s.renewAt = Token{}, time.Time{}
	}
	s.turn <- struct{}{}
}

// Close closes the idle connections. On a nil Source it does nothing.
func (s *Source) Close() {
	if s != nil {
		s.client.CloseIdleConnections()
	}
}

// request requests a token. The token's lifetime, which the answer states in seconds, counts from the time of the request on this
// machine's clock. So the server's clock doesn't matter.
func (s *Source) request(ctx context.Context) (Token, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(s.options.Scopes) > 0 {
		form.Set("scope", strings.Join(s.options.Scopes, " "))
	}
	if s.options.Audience != "" {
		form.Set("audience", s.options.Audience)
	}
	if s.options.SecretInBody {
		form.Set("client_id", s.options.ClientID)
		form.Set("client_secret", s.options.ClientSecret.Reveal())
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.options.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return Token{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	if !s.options.SecretInBody {
		request.SetBasicAuth(url.QueryEscape(s.options.ClientID), url.QueryEscape(s.options.ClientSecret.Reveal()))
	}
	asked := time.Now()
	response, err := s.client.RoundTrip(request)
	if err != nil {
		return Token{}, err
	}
	defer response.Body.Close()
	return read(response, asked)
}

// mostRead limits the size of an answer.
const mostRead = 64 << 10

// read reads an answer of the server (RFC 6749, sections 5.1 and 5.2). If the server refuses the request, the error contains
// only the status and the error code.
func read(response *http.Response, asked time.Time) (Token, error) {
	var answer struct {
		Token   string          `json:"access_token"`
		Expires json.RawMessage `json:"expires_in"` // the lifetime in seconds, as a number or as a string
		Error   any             `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(response.Body, mostRead)).Decode(&answer)
	errorCode, _ := answer.Error.(string)
	seconds, notNumber := strconv.ParseFloat(strings.Trim(string(answer.Expires), "\" "), 64)
	lifetime := unknownLifetime
	switch {
	case response.StatusCode != http.StatusOK:
		return Token{}, fmt.Errorf("the token url answers %d %.40q", response.StatusCode, errorCode)
	case err != nil:
		return Token{}, errors.New("the token url's answer is not a JSON object")
	case CheckToken(settings.Secret(answer.Token)) != nil:
		return Token{}, errors.New("the token url's answer has no usable access_token")
	case notNumber == nil && seconds > 0:
		lifetime = time.Duration(min(seconds, longestLifetime.Seconds()) * float64(time.Second))
	}
	return Token{settings.Secret(answer.Token), asked.Add(lifetime)}, nil
}

// CheckToken returns an error if a text can't be a bearer token (RFC 6750, section 2.1): it is empty, or has blanks or characters
// other than printable ASCII. The error completes the sentence "the token …".
func CheckToken(token settings.Secret) error {
	if token == "" || strings.ContainsFunc(token.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("must consist of printable ASCII characters without blanks")
	}
	return nil
}
