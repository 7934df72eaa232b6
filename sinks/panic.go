package sinks

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// shownFrames is how many calls a panic is described with: enough to find it,
// few enough for a table's column.
const shownFrames = 8

// DescribePanic describes, within a deferred function that has recovered from a
// panic, its cause and the calls that led to it, the last one first. Calls of the
// runtime are left out, as is what lies below the function named until.
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
