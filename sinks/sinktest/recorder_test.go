package sinktest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB that records the failures of a check, so that a failing
// check doesn't fail the test.
type recorder struct {
	testing.TB // nil; the other methods must not be called

	mu       sync.Mutex
	verdict  verdict
	cleanups []func()
}

type verdict struct {
	failed, skipped bool
	log             string
}

// record runs one check.
func record(c check, h Harness) verdict {
	r := &recorder{}
	r.run(func() { c.run(r, h) })
	for _, cleanup := range slices.Backward(r.cleanups) {
		r.run(cleanup)
	}
	return r.verdict
}

// run runs f in a goroutine that f may end, as FailNow does.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) note(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verdict.failed = r.verdict.failed || failed
	r.verdict.log += strings.TrimSpace(text) + "\n"
}

func (r *recorder) Helper()                           {}
func (r *recorder) Error(args ...any)                 { r.note(true, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(true, fmt.Sprintf(format, args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.note(false, fmt.Sprintf(format, args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Context() context.Context { return context.Background() }

func (r *recorder) Skipf(format string, args ...any) {
	r.note(false, fmt.Sprintf(format, args...))
	r.verdict.skipped = true
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
