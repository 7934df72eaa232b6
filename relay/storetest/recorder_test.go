package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// recorder is a test that may fail: it records failures, and passes other calls on to the real
// test.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

// record runs a check and returns its failures.
func record(t testing.TB, check func(t testing.TB)) []string {
	r := &recorder{TB: t}
	var run sync.WaitGroup
	run.Go(func() { check(r) }) // in its own goroutine, since FailNow may end it
	run.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

func (r *recorder) note(failure string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, failure)
}

func (r *recorder) Fail()                             { r.note("failed") }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}
