package httpsink

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// call is a request to make.
type call struct {
	url    *url.URL
	header http.Header
	body   []byte
	status *int   // if not nil, exchange stores the status of the answer here
	of     string // the id of the message, or of the array
	again  bool   // the message, or one of the array's messages, was tried before
}

// deliver sends one message.
func (s *Sink) deliver(ctx context.Context, r *round, m sinks.Message) sinks.Outcome {
	c := call{of: m.ID, again: m.Attempt > 1}
	var err error
	if c.url, err = s.target.of(&m); err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "the url "+err.Error())
	}
	event, err := s.events.Message(m)
	if err == nil {
		c.header, err = s.header(m, event)
	}
	if err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	c.body = event.Payload
	return s.orGiveUp(m, s.make(ctx, r, c))
}

// orGiveUp parks a message that is older than EndpointMaxAge and whose endpoint is still unavailable.
func (s *Sink) orGiveUp(m sinks.Message, o sinks.Outcome) sinks.Outcome {
	waits := o.Result == sinks.Unsent && o.RetryAfter > 0 && o.Reason != sinks.ReasonBusy
	if !waits || s.giveUp == 0 || m.CreatedAt.IsZero() || time.Since(m.CreatedAt) < s.giveUp {
		return o
	}
	return sinks.Fail(sinks.Reject, sinks.ReasonExhausted, fmt.Sprintf("endpoint unavailable and message older than %v: %s", s.giveUp, o.Detail))
}

// make waits until the endpoint's limits allow a request, makes the request and returns its outcome.
func (s *Sink) make(ctx context.Context, r *round, c call) sinks.Outcome {
	token, err := s.authorize(ctx, c.header)
	if err != nil {
		return sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, s.sanitize(err.Error()))
	}
	o := s.endpoints.call(ctx, r, c.url, c.of, func() sinks.Outcome {
		o := s.exchange(ctx, c, token)
		if token.Secret == "" || o.Result != sinks.Unavailable || o.Reason != sinks.ReasonAuth {
			return o
		}
		c.header = c.header.Clone()                // the transport may still read the old header
		another, err := s.authorize(ctx, c.header) // gets a new token, because exchange has dropped the refused one
		if err != nil || another == token {
			return o
		}
		return s.exchange(ctx, c, another)
	})
	if s.endpoints != nil {
		o.Destination = nameOf(c.url)
	}
	return o
}

func (s *Sink) exchange(ctx context.Context, c call, token oauth2.Token) sinks.Outcome {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var on wire
	body := bytes.NewReader(bytes.Clone(c.body)) // the transport may read the body after RoundTrip has returned
	request, err := http.NewRequestWithContext(on.traced(limited), s.method, c.url.String(), body)
	var response *http.Response
	if err == nil {
		request.Header = c.header
		response, err = s.secrets.Load().transport.RoundTrip(request)
	}
	if err != nil {
		arrived := on.mayHaveArrived()
		if arrived {
			s.unanswered.add(c.of)
		}
		return s.noAnswer(ctx, limited, arrived, s.sanitize(c.redact(err.Error())), err)
	}
	if c.status != nil {
		*c.status = response.StatusCode
	}
	text := c.redact(read(response, cancel))
	if token.Secret != "" { // an answer may repeat the token
		text = settings.NewRedactor(token.Secret).Redact(text)
	}
	ended := token.Secret != "" || s.login && !slices.Contains(s.rejects, http.StatusUnauthorized)
	if response.StatusCode == http.StatusUnauthorized && ended {
		if token.Secret != "" { // the token may have been revoked
			s.secrets.Load().tokens.Forget(token)
		}
		return sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, s.describe(response.StatusCode, ""))
	}
	o := s.answered(response, text, c.again || s.unanswered.has(c.of))
	if o.Reason != sinks.ReasonBusy {
		s.unanswered.remove(c.of)
	}
	return o
}

// redact removes the path and query of this request's URL from a text.
func (c call) redact(text string) string {
	if text == "" {
		return ""
	}
	return settings.NewRedactor(secretsOf(c.url)...).Redact(text)
}

// authorize adds an OAuth 2.0 token to the header, if the settings require one, and returns it.
func (s *Sink) authorize(ctx context.Context, header http.Header) (token oauth2.Token, err error) {
	tokens := s.secrets.Load().tokens
	if tokens == nil {
		return token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if token, err = tokens.Token(ctx); err == nil {
		header.Set("Authorization", "Bearer "+token.Secret.Reveal())
	}
	return token, err
}

// noAnswer returns the outcome of a request that got no answer.
func (s *Sink) noAnswer(ctx, limited context.Context, arrived bool, detail string, err error) sinks.Outcome {
	switch {
	case errors.As(err, new(insideError)) && s.endpoints != nil:
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, detail) // the message chose the address
	case errors.As(err, new(insideError)):
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, detail)
	case refusesCertificate(err): // also if arrived is true, because the server checks the certificate before it reads the request
		return sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, detail)
	case arrived && limited.Err() != nil:
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, detail)
	case arrived:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, detail)
	case strings.Contains(detail, "header list larger than"): // the HTTP/2 client checks this limit before it writes the request
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, detail)
	case ctx.Err() != nil:
		return sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, detail)
	}
	return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, detail)
}

// refusesCertificate reports whether one side doesn't trust the other's certificate.
func refusesCertificate(err error) bool {
	text := err.Error()
	return errors.As(err, new(*tls.CertificateVerificationError)) ||
		strings.Contains(text, "remote error: tls: ") && (strings.Contains(text, "certificate") || strings.Contains(text, "access denied"))
}

// mostRead limits how many bytes of an answer's body the sink reads, and readTime limits how long it reads. If a body
// exceeds one of these limits, the sink closes the connection.
const (
	mostRead = 64 << 10
	readTime = time.Second
)

// read reads the body to its end, so that the connection can be reused. If the request failed, it returns the beginning of
// the body.
func read(response *http.Response, cancel func()) string {
	timer := time.AfterFunc(readTime, cancel)
	defer timer.Stop()
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return "" // the following data is not HTTP and may be endless
	}
	body := io.LimitReader(response.Body, mostRead)
	var shown int64 // more than excerptLength, because secrets are removed before the text is cut
	if !isSuccess(response.StatusCode) {
		shown = 8 << 10
	}
	text, _ := io.ReadAll(io.LimitReader(body, shown))
	_, _ = io.Copy(io.Discard, body) // an error doesn't matter: the status is known
	return string(text)
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }

// answered returns the outcome of an answer, as listed in README.md. The argument again is true if the endpoint
// may still be processing an earlier request for the same message.
func (s *Sink) answered(response *http.Response, body string, again bool) sinks.Outcome {
	status := response.StatusCode
	detail := s.describe(status, body)
	wait := retryAfter(response.Header, time.Now())
	switch {
	case isSuccess(status):
		return sinks.Ok(strconv.Itoa(status))
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		// The body is left out: it could contain a payload, and the details of
		// outages are logged.
		return waiting(sinks.Unavailable, sinks.ReasonThrottled, s.describe(status, ""), wait)
	case status == http.StatusProxyAuthRequired, status == http.StatusNetworkAuthenticationRequired:
		return waiting(sinks.Unavailable, sinks.ReasonAuth, s.describe(status, ""), wait) // a proxy answered, not the endpoint
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly,
		again && (status == http.StatusConflict || status == http.StatusLocked):
		return waiting(sinks.Retry, sinks.ReasonBusy, detail, wait)
	case slices.Contains(s.rejects, status):
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, detail)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return waiting(sinks.Retry, sinks.ReasonAuth, detail, wait)
	case status == http.StatusNotFound:
		return waiting(sinks.Retry, sinks.ReasonConfig, detail, wait)
	case status == http.StatusBadGateway, status == http.StatusGatewayTimeout: // a gateway answered, not the endpoint
		return waiting(sinks.Retry, sinks.ReasonConnection, detail, wait)
	case status == http.StatusMisdirectedRequest:
		return waiting(sinks.Retry, sinks.ReasonRefused, detail, wait)
	case status >= 500, status < 200: // below 200, only 101 arrives here, from a server that switches protocols although the sink didn't ask for it
		return waiting(sinks.Retry, sinks.ReasonServerError, detail, wait)
	case status == http.StatusRequestEntityTooLarge:
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, detail)
	case status >= 300 && status <= 399:
		if s.endpoints != nil { // the message chose the address
			return sinks.Fail(sinks.Reject, sinks.ReasonRefused, s.redirect(response))
		}
		// The cause is usually the configured URL (a missing slash, http for https) and not the message.
		return waiting(sinks.Retry, sinks.ReasonRefused, s.redirect(response), wait)
	}
	return sinks.Fail(sinks.Reject, sinks.ReasonRefused, detail)
}

func waiting(result sinks.Result, reason sinks.Reason, detail string, wait time.Duration) sinks.Outcome {
	return sinks.Outcome{Result: result, Reason: reason, Detail: detail, RetryAfter: wait}
}

// describe returns a status and an excerpt of the body. It uses the standard text of the status, not the server's.
func (s *Sink) describe(status int, body string) string {
	text := strings.TrimSpace(fmt.Sprint(status, " ", http.StatusText(status)))
	if excerpt := s.sanitize(body); excerpt != "" {
		text += ": " + excerpt
	}
	return text
}

// redirect describes a redirect. It shows only the host of the new location, because the rest may contain a secret.
// The text doesn't begin with the status, because the log would then omit the rest of the text.
func (s *Sink) redirect(response *http.Response) string {
	text := "redirected: " + s.describe(response.StatusCode, "") + "; redirects are not followed"
	if location, err := response.Location(); err == nil && location.Host != "" {
		text += ". This one leads to " + s.sanitize(location.Host) + ": set the url to that address"
	}
	return text
}

// longestRetryAfter is the longest wait that an answer can request.
const longestRetryAfter = 5 * time.Minute

// retryAfter reads the Retry-After header, in seconds or as a date, and limits it to longestRetryAfter. A date is
// compared with the answer's own Date header, if it has one, because the two clocks may differ.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, longestRetryAfter.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), longestRetryAfter)
}

// excerptLength is the maximum length of an answer's or an error's text in an outcome.
const excerptLength = 200

// sanitize makes the text of an answer or an error safe for an operator's terminal: one short line without secrets.
func (s *Sink) sanitize(text string) string {
	held := s.secrets.Load()
	return held.redactor.Present(held.previous.Redact(text), excerptLength)
}
