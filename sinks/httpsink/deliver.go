package httpsink

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// deliver makes the request of one message.
func (s *Sink) deliver(ctx context.Context, m sinks.Message) sinks.Outcome {
	header, err := s.header(m)
	if err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var on wire
	request, err := s.request(on.traced(limited), header, m.Payload)
	if err != nil {
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, s.presentable(err.Error()))
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return s.noAnswer(ctx, limited, on.arrived(request), err)
	}
	return s.answered(response, read(response, cancel))
}

// request copies the payload: the client may still read it when Send is over.
func (s *Sink) request(ctx context.Context, header http.Header, payload []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, s.method, s.url.String(), bytes.NewReader(bytes.Clone(payload)))
	if err != nil {
		return nil, err
	}
	request.Header = header
	return request, nil
}

// wire knows how far a request has come. The client calls it from goroutines of
// its own.
type wire struct {
	wrote, broke atomic.Bool
}

func (w *wire) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// Once more after the client found that nothing of the request had gone out.
		GotConn: func(httptrace.GotConnInfo) { w.set(false, false) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			w.set(info.Err == nil, info.Err != nil)
		},
	})
}

func (w *wire) set(wrote, broke bool) {
	w.wrote.Store(wrote)
	w.broke.Store(broke)
}

// arrived says that the request may have reached the endpoint: it was written,
// or it broke off and was too large to have been written at once. An endpoint
// that closes the connection on large requests must not look like an outage,
// which would be waited for without end.
func (w *wire) arrived(request *http.Request) bool {
	return w.wrote.Load() || w.broke.Load() && size(request) >= writeBuffer
}

// size is about how many bytes the request has, rather too many than too few.
func size(request *http.Request) int {
	const startLine = 256
	total := startLine + len(request.URL.RequestURI()) + int(request.ContentLength)
	for name, values := range request.Header {
		for _, value := range values {
			total += len(name) + len(value) + len(": \r\n")
		}
	}
	return total
}

// noAnswer is the outcome of a request without an answer.
func (s *Sink) noAnswer(ctx, limited context.Context, arrived bool, err error) sinks.Outcome {
	detail := s.presentable(err.Error())
	switch {
	case arrived && limited.Err() != nil:
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, detail)
	case arrived:
		return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, detail)
	case strings.Contains(detail, "header list larger than"): // HTTP/2 knows before it writes
		return sinks.Fail(sinks.Reject, sinks.ReasonTooLarge, detail)
	case ctx.Err() != nil:
		return sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, detail)
	}
	return sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, detail)
}

// mostRead and readTime bound what is read of an answer's body. A body that
// goes on is cut off, and its connection closed.
const (
	mostRead = 64 << 10
	readTime = time.Second
)

// read empties the body, so that the connection can be used again, and returns
// the beginning of it where the answer is not a success.
func read(response *http.Response, cancel func()) string {
	timer := time.AfterFunc(readTime, cancel)
	defer timer.Stop()
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return "" // what follows is no body, and may never end
	}
	body := io.LimitReader(response.Body, mostRead)
	text, _ := io.ReadAll(io.LimitReader(body, mostShown(response.StatusCode)))
	_, _ = io.Copy(io.Discard, body) // the answer is known without it
	return string(text)
}

// mostShown is enough for an excerpt, also after secrets were taken out.
func mostShown(status int) int64 {
	if isSuccess(status) {
		return 0
	}
	return 8 << 10
}

func isSuccess(status int) bool { return status >= 200 && status <= 299 }
