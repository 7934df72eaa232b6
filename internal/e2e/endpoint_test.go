package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// arrival is a POST that the endpoint has accepted.
type arrival struct {
	sink     string
	id       string
	from     string // the path, which identifies the relay
	customer int
	number   int
	attempt  string
	at       time.Time
}

// endpoint accepts messages, and records them in the order of their arrival.
type endpoint struct {
	*httptest.Server
	answer func(*http.Request) int                // nil: the answer is 200
	read   func(body []byte, into *arrival) error // finds the order in a body; nil: the body is JSON

	mu       sync.Mutex
	arrivals []arrival
	refused  int
}

func newEndpoint(t testing.TB) *endpoint {
	e := &endpoint{read: readJSON}
	e.Server = httptest.NewServer(http.HandlerFunc(e.receive))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender died before it had sent the complete body
	}
	a := arrival{sink: "http", id: r.Header.Get("Idempotency-Key"), from: r.URL.Path, attempt: r.Header.Get("Rowrelay-Attempt"), at: time.Now()}
	if err := e.read(body, &a); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	status := http.StatusOK
	if e.answer != nil {
		status = e.answer(r)
	}
	if status == http.StatusOK {
		e.arrivals = append(e.arrivals, a)
	} else {
		e.refused++
	}
	w.WriteHeader(status)
}

func readJSON(body []byte, into *arrival) error {
	var order struct{ Customer, Number int }
	err := json.Unmarshal(body, &order)
	into.customer, into.number = order.Customer, order.Number
	return err
}

// answering sets the function that answers requests.
func (e *endpoint) answering(answer func(*http.Request) int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = answer
}

func always(status int) func(*http.Request) int {
	return func(*http.Request) int { return status }
}

func (e *endpoint) received() []arrival {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]arrival(nil), e.arrivals...)
}

// verdict is the result of judging a list of arrivals.
type verdict struct {
	distinct   int
	duplicates []duplicate
}

// duplicate is a message that arrived again. The fields first and before have its first arrival and the one before this one.
type duplicate struct{ first, before, again arrival }

// judge checks that each customer's orders arrived in order, and returns their number and the
// duplicates. A duplicate may arrive only after the first arrival of its order, and no order
// may arrive before its predecessor.
func judge(t testing.TB, arrivals []arrival) verdict {
	t.Helper()
	last, seen := map[int]int{}, map[string]bool{}
	for _, a := range arrivals {
		if seen[a.id] {
			continue
		}
		if a.number <= last[a.customer] {
			t.Errorf("customer %d: order %d arrived for the first time after order %d", a.customer, a.number, last[a.customer])
		}
		seen[a.id], last[a.customer] = true, a.number
	}
	keep(t, arrivals, true)
	return counted(t, arrivals)
}

// tally counts arrivals and duplicates without checking the order.
func tally(t testing.TB, arrivals []arrival) verdict {
	t.Helper()
	keep(t, arrivals, false)
	return counted(t, arrivals)
}

func counted(t testing.TB, arrivals []arrival) (v verdict) {
	t.Helper()
	first, latest := map[string]arrival{}, map[string]arrival{}
	for _, a := range arrivals {
		if a.id == "" {
			t.Errorf("order %d of customer %d arrived without an Idempotency-Key", a.number, a.customer)
		}
		if began, ok := first[a.id]; ok {
			v.duplicates = append(v.duplicates, duplicate{began, latest[a.id], a})
		} else {
			first[a.id] = a
		}
		latest[a.id] = a
	}
	v.distinct = len(first)
	return v
}
