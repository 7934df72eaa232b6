package sinks

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// shownFrames is the maximum number of calls in the description of a panic. Eight calls
// are enough to find the cause, and fit into a message's last error.
const shownFrames = 8

// DescribePanic returns the cause of a panic and the calls that led to it, the most
// recent call first. It must be called in the deferred function that recovered from
// the panic. It omits functions of the runtime. It also omits the function whose name
// has the given suffix (until), and the callers of that function.
func DescribePanic(cause any, until string) string {
	counters := make([]uintptr, 64)
	frames := runtime.CallersFrames(counters[:runtime.Callers(2, counters)])
	var text strings.Builder
	fmt.Fprintf(&text, "panic: %v", cause)
	for shown, panicking := 0, false; shown < shownFrames; {
		frame, more := frames.Next()
		panicking = panicking || frame.Function == "runtime.gopanic"
		if !more || strings.HasSuffix(frame.Function, until) {
			break
		}
		if panicking && !strings.HasPrefix(frame.Function, "runtime.") {
			fmt.Fprintf(&text, "\n%s (%s:%d)", frame.Function, filepath.Base(frame.File), frame.Line)
			shown++
		}
	}
	return text.String()
}
