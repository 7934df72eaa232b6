package httpsink

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// answered is the outcome that an answer means. README.md has the table.
func (s *Sink) answered(response *http.Response, body string) sinks.Outcome {
	status := response.StatusCode
	detail := s.describe(status, body)
	wait := s.retryAfter(response.Header, time.Now())
	switch {
	case isSuccess(status):
		return sinks.Ok(strconv.Itoa(status))
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		// The detail of an outage is logged; the body could repeat a payload.
		return waiting(sinks.Unavailable, sinks.ReasonThrottled, s.describe(status, ""), wait)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly:
		return waiting(sinks.Retry, sinks.ReasonBusy, detail, wait)
	case status >= 500:
		return waiting(sinks.Retry, sinks.ReasonServerError, detail, wait)
	case status == http.StatusRequestEntityTooLarge:
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, detail)
	case status >= 300 && status <= 399:
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, s.redirect(response))
	}
	return sinks.Fail(sinks.Reject, sinks.ReasonRefused, detail)
}

func waiting(result sinks.Result, reason sinks.Reason, detail string, wait time.Duration) sinks.Outcome {
	return sinks.Outcome{Result: result, Reason: reason, Detail: detail, RetryAfter: wait}
}

// describe doesn't use the status line's own words, which are the server's.
func (s *Sink) describe(status int, body string) string {
	text := strings.TrimSpace(fmt.Sprint(status, " ", http.StatusText(status)))
	if excerpt := s.presentable(body); excerpt != "" {
		text += ": " + excerpt
	}
	return text
}

// redirect says where a redirect leads: the host alone, since the rest may hold
// a secret.
func (s *Sink) redirect(response *http.Response) string {
	text := s.describe(response.StatusCode, "") + ": redirects are not followed"
	if location, err := response.Location(); err == nil && location.Host != "" {
		text += "; this one leads to " + s.presentable(location.Host) + ": set the url to where it leads"
	}
	return text
}

// retryAfter reads the header of that name, as seconds or as a date, up to the
// longest wait. A date counts from the answer's own, if it has one, so that the
// two clocks may differ.
func (s *Sink) retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, s.maxWait.Seconds()) * float64(time.Second))
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), s.maxWait)
}

// excerptLength is how much of a text from elsewhere an outcome repeats.
const excerptLength = 200

// presentable makes text from elsewhere fit for an operator's screen.
func (s *Sink) presentable(text string) string { return s.redactor.Present(text, excerptLength) }
