package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// arrival is a request that the endpoint has accepted.
type arrival struct {
	id    string // the message's id
	order order
}

// endpoint receives the orders. It fails in three ways: some requests get an error; some
// get an error although the order was accepted, so the order arrives again; and for a
// while all requests get "service unavailable".
type endpoint struct {
	listener net.Listener
	server   *http.Server
	downFrom time.Time
	downTo   time.Time

	mu       sync.Mutex
	requests int
	failures int
	arrivals []arrival
}

func newEndpoint(lasts time.Duration) (*endpoint, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	now := time.Now()
	e := &endpoint{listener: listener, downFrom: now.Add(lasts / 2), downTo: now.Add(lasts/2 + min(time.Second, lasts/5))}
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = e.server.Serve(listener) }() // returns http.ErrServerClosed after close
	return e, nil
}

func (e *endpoint) url() string { return "http://" + e.listener.Addr().String() + "/orders" }

func (e *endpoint) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := e.server.Shutdown(ctx); err != nil {
		return errors.Join(err, e.server.Close())
	}
	return nil
}

func (e *endpoint) counts() (arrived, failures int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.arrivals), e.failures
}

// ServeHTTP accepts an order, or fails.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(io.LimitReader(request.Body, 1<<20))
	var o order
	if err != nil || json.Unmarshal(body, &o) != nil {
		http.Error(w, "this isn't an order", http.StatusBadRequest)
		return
	}
	if code := e.take(arrival{request.Header.Get("Idempotency-Key"), o}, time.Now()); code != http.StatusOK {
		http.Error(w, http.StatusText(code), code)
	}
}

// take records an order and returns the status to answer with.
func (e *endpoint) take(a arrival, now time.Time) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
	code := http.StatusOK
	switch {
	case now.After(e.downFrom) && now.Before(e.downTo):
		code = http.StatusServiceUnavailable
	case e.requests%17 == 0:
		code = http.StatusInternalServerError
	case e.requests%61 == 0: // the order is accepted, but the answer is an error
		code = http.StatusInternalServerError
		e.arrivals = append(e.arrivals, a)
	default:
		e.arrivals = append(e.arrivals, a)
	}
	if code != http.StatusOK {
		e.failures++
	}
	return code
}

func (e *endpoint) taken() []arrival {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.arrivals
}
