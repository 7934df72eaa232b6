package inproc

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// recovered runs f and makes an error of its panic.
func recovered(f func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &verdict{result: sinks.Retry, reason: sinks.ReasonPanic, err: fmt.Errorf("panic: %v%s", cause, panickedAt())}
		}
	}()
	return f()
}

// shownFrames is how many calls a panic is described with: enough to find it,
// few enough for a table's column.
const shownFrames = 4

// panickedAt describes the calls that led to the panic that is being recovered,
// the last one first.
func panickedAt() string {
	counters := make([]uintptr, 64)
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters)])
	var text strings.Builder
	for shown, panicking := 0, false; shown < shownFrames; {
		frame, more := frames.Next()
		panicking = panicking || frame.Function == "runtime.gopanic"
		if !more || strings.HasSuffix(frame.Function, "/inproc.recovered") {
			break
		}
		if panicking && !strings.HasPrefix(frame.Function, "runtime.") {
			fmt.Fprintf(&text, "\n%s (%s:%d)", frame.Function, filepath.Base(frame.File), frame.Line)
			shown++
		}
	}
	return text.String()
}
