package relay

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// withDefaults fills in what was left empty and reports all that is wrong.
func (o Options) withDefaults(store Store) (Options, error) {
	o.Name = or(o.Name, defaultName())
	o.Claim = or(o.Claim, ByLanes)
	o.Pick = or(o.Pick, Oldest)
	o.Lease = or(o.Lease, 15*time.Second)
	o.Poll = or(o.Poll, 200*time.Millisecond)
	o.Retention = or(o.Retention, 24*time.Hour)
	o.DrainTimeout = or(o.DrainTimeout, 10*time.Second)
	o.Observer = or[Observer](o.Observer, NoObserver{})
	o.Logger = or(o.Logger, slog.Default())
	problems := o.check()
	configured := make(map[string]SinkOptions, len(o.Sinks))
	for name, s := range o.Sinks {
		s, err := s.withDefaults(store, o.Claim)
		if err != nil {
			problems = append(problems, fmt.Errorf("sink %q: %w", name, err))
		}
		configured[name] = s
	}
	o.Sinks = configured
	return o, errors.Join(problems...)
}

func (o Options) check() []error {
	var problems []error
	reject := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	reject(strings.TrimSpace(o.Name) == "" || len(o.Name) > 255, "name %q: must be 1 to 255 bytes", o.Name)
	reject(o.Claim != ByLanes && o.Claim != ByRows, "claim %q: must be %q or %q", o.Claim, ByLanes, ByRows)
	reject(o.Pick != Oldest && o.Pick != Newest && o.Pick != Priority, "pick %q: must be %q, %q or %q", o.Pick, Oldest, Newest, Priority)
	reject(o.Claim == ByLanes && o.Pick != Oldest, "pick %q: only a relay that claims by rows can pick; lanes are read in their order", o.Pick)
	reject(o.Claim == ByLanes && len(o.Topics) > 0, "topics: only a relay that claims by rows can be limited to some; by lanes it must see every message of a lane")
	reject(o.Lease < time.Second, "lease %v: must be at least 1s", o.Lease)
	reject(o.Poll < time.Millisecond, "poll %v: must be at least 1ms", o.Poll)
	reject(o.Retention < 0 && o.Retention != KeepNothing, "retention %v: must not be negative", o.Retention)
	reject(o.DrainTimeout < 0, "drain timeout %v: must not be negative", o.DrainTimeout)
	reject(len(o.Sinks) == 0, "sinks: there is none")
	return problems
}

func (s SinkOptions) withDefaults(store Store, claim Claim) (SinkOptions, error) {
	if isNil(s.Sink) {
		return s, fmt.Errorf("there is no sink (%T): give what its New returned, once its error was looked at", s.Sink)
	}
	if _, isTx := s.Sink.(sinks.TxSink); isTx {
		if _, ok := store.(TxStore); !ok {
			return s, errors.New("a transactional handler needs a store over a SQL database")
		}
		s.Batch = or(s.Batch, 1) // each message has a transaction of its own
	}
	if _, isExact := s.Sink.(sinks.Exact); isExact {
		if _, ok := store.(Journaler); !ok || claim != ByLanes {
			return s, errors.New("a sink that is exact needs a relay that claims by lanes, and a store that keeps journals")
		}
	}
	var limits sinks.Limits
	if limited, ok := s.Sink.(sinks.Limited); ok {
		limits = limited.Limits()
	}
	s.Batch = atMost(or(s.Batch, 500), limits.Messages)
	s.BatchBytes = atMost(or(s.BatchBytes, 4<<20), limits.Bytes)
	s.Workers = atMost(or(s.Workers, 2), limits.Workers)
	s.Buffer = or(s.Buffer, max(s.Batch, min(bufferedBatches(claim)*s.Batch*s.Workers, 8000)))
	s.BufferBytes = or(s.BufferBytes, 16<<20)
	s.Timeout = or(s.Timeout, 30*time.Second)
	s.MaxAttempts = or(s.MaxAttempts, 20)
	s.TroubleAfter = or(s.TroubleAfter, 5)
	s.RejectAfter = or(s.RejectAfter, 5*time.Second)
	s.Backoff = Backoff{Min: or(s.Backoff.Min, 500*time.Millisecond), Max: or(s.Backoff.Max, max(5*time.Minute, s.Backoff.Min))}
	s.Reopen = Backoff{Min: or(s.Reopen.Min, 500*time.Millisecond), Max: or(s.Reopen.Max, max(15*time.Second, s.Reopen.Min))}
	return s, s.check()
}

// bufferedBatches are those of a worker that are in memory. By rows what one relay
// has claimed no other one can have.
func bufferedBatches(claim Claim) int {
	if claim == ByRows {
		return 4
	}
	return 8
}

func (s SinkOptions) check() error {
	for _, n := range []struct {
		name  string
		value int
	}{{"batch", s.Batch}, {"batch bytes", s.BatchBytes}, {"workers", s.Workers}, {"buffer", s.Buffer}, {"buffer bytes", s.BufferBytes}} {
		if n.value < 1 {
			return fmt.Errorf("%s %d: must be at least 1", n.name, n.value)
		}
	}
	if s.Timeout <= 0 {
		return fmt.Errorf("timeout %v: must be positive", s.Timeout)
	}
	return errors.Join(s.Backoff.check("backoff"), s.Reopen.check("reopen"))
}

func (b Backoff) check(name string) error {
	if b.Min <= 0 || b.Max < b.Min {
		return fmt.Errorf("%s: min %v must be positive and not above max %v", name, b.Min, b.Max)
	}
	return nil
}

// isNil also knows a nil pointer in an interface.
func isNil(value any) bool {
	v := reflect.ValueOf(value)
	return value == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// atMost bounds value by a limit, of which 0 means none.
func atMost(value, limit int) int {
	if limit > 0 {
		return min(value, limit)
	}
	return value
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), randomHex(4))
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}
