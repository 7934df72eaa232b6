package relay

import (
	"strings"
	"testing"
	"time"
)

// A job that sends unresolved batches again has no items. If it is stuck, the text says nevertheless that Send has not returned.
func TestDescribeStuckCall(t *testing.T) {
	t.Parallel()
	q, now := &sinkQueue{name: "main"}, time.Now()
	first := &item{}
	first.row.Message.Topic = "orders"
	for call, f := range map[string]*flight{
		"from Open": {job: &opening{}, began: now.Add(-time.Minute)},
		"from Send for 1m0s, with messages that may have been sent before": {job: &resolving{}, began: now.Add(-time.Minute)},
		`from Send for 1m0s, with 2 messages, the first of topic "orders"`: {job: &batch{}, items: []*item{first, first}, began: now.Add(-time.Minute)},
	} {
		if text := q.describe(f, now); !strings.Contains(text, call) {
			t.Errorf("the text is %q, want that the sink has not returned %s", text, call)
		}
	}
}
