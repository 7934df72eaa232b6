package httpsink

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

// OAuth2 configures how a sink gets its bearer tokens: with the client credentials of
// OAuth 2.0 (RFC 6749, section 4.4). The zero value disables OAuth 2.0.
type OAuth2 struct {
	TokenURL     string // http or https
	ClientID     string
	ClientSecret settings.Secret
	Scopes       []string
}

func (o OAuth2) set() bool { return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" }

func (o OAuth2) check() error {
	if !o.set() {
		return nil
	}
	if _, err := parseURL(o.TokenURL); err != nil {
		return settings.PrefixError("OAuth 2.0 token url", err)
	}
	if o.ClientID == "" || o.ClientSecret == "" {
		return errors.New("OAuth 2.0 needs a client id and a client secret")
	}
	return nil
}

// tokens holds the current token and replaces it before it expires. Its methods may
// be called concurrently; one caller requests a token while the others wait.
type tokens struct {
	options OAuth2
	client  *http.Transport
	turn    chan struct{} // used as a mutex, so that a context can end the wait; holds one value while unlocked
	token   string
	until   time.Time
}

// earlier is how long before its expiry a token is replaced.
// lasting is the assumed lifetime of a token if the answer that contains the token
// has no expires_in.
const (
	earlier = 30 * time.Second
	lasting = 5 * time.Minute
)

func newTokens(options OAuth2, client *http.Transport) *tokens {
	if !options.set() {
		return nil
	}
	t := &tokens{options: options, client: client, turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	return t
}

func (t *tokens) close() {
	if t != nil {
		t.client.CloseIdleConnections()
	}
}

// get returns the current token, or a new one if it expires soon.
func (t *tokens) get(ctx context.Context) (string, error) {
	select {
	case <-t.turn:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { t.turn <- struct{}{} }()
	if time.Now().Before(t.until) {
		return t.token, nil
	}
	token, lasts, err := t.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("get a token: %w", err)
	}
	t.token, t.until = token, time.Now().Add(lasts-min(earlier, lasts/2))
	return token, nil
}

// forget marks a token as expired, so that the next call of get replaces it. It does
// nothing if the token was already replaced.
func (t *tokens) forget(token string) {
	<-t.turn
	if t.token == token {
		t.until = time.Time{}
	}
	t.turn <- struct{}{}
}

func (t *tokens) ask(ctx context.Context) (token string, lasts time.Duration, err error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	if len(t.options.Scopes) > 0 {
		form.Set("scope", strings.Join(t.options.Scopes, " "))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.options.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Accept", "application/json")
	request.SetBasicAuth(url.QueryEscape(t.options.ClientID), url.QueryEscape(t.options.ClientSecret.Reveal()))
	response, err := t.client.RoundTrip(request)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	return readToken(response)
}

// readToken reads an answer of the token endpoint (RFC 6749, sections 5.1 and 5.2).
// If the endpoint refuses the request, the error contains only the status and the error code.
func readToken(response *http.Response) (token string, lasts time.Duration, err error) {
	var answer struct {
		Token   string          `json:"access_token"`
		Expires json.RawMessage `json:"expires_in"` // in seconds, as a number or as a string
		Error   any             `json:"error"`
	}
	err = json.NewDecoder(io.LimitReader(response.Body, mostRead)).Decode(&answer)
	errorCode, _ := answer.Error.(string)
	seconds, notNumber := strconv.ParseFloat(strings.Trim(string(answer.Expires), "\" "), 64)
	switch {
	case response.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("the token url answers %d %.40q", response.StatusCode, errorCode)
	case err != nil:
		return "", 0, errors.New("the token url's answer is not a JSON object")
	case answer.Token == "" || checkValue(answer.Token) != nil:
		return "", 0, errors.New("the token url's answer has no access_token that a header can carry")
	case notNumber != nil || !(seconds > 0):
		return answer.Token, lasting, nil
	}
	return answer.Token, time.Duration(min(seconds, 86400) * float64(time.Second)), nil
}
