package admin

import (
	"github.com/rowrelay/rowrelay/relay"
)

// Report is a relay.Status in the form that is shown as JSON, by /status and
// by the command line.
type Report struct {
	Claim                relay.Claim       `json:"claim"` // empty before the first relay
	Pending              int64             `json:"pending"`
	Claimed              int64             `json:"claimed"`
	Scheduled            int64             `json:"scheduled"`
	Retry                int64             `json:"retry"`
	Error                int64             `json:"error"`
	Done                 int64             `json:"done"`
	OldestPendingSeconds float64           `json:"oldest_pending_seconds"`
	Lanes                int               `json:"lanes"` // leased now
	Relays               []relay.RelayInfo `json:"relays"`

	// PendingTopics counts the first 1,000 pending messages by topic.
	PendingTopics map[string]int64 `json:"pending_topics"`
}

// NewReport returns a status as it is shown. Lists are empty rather than null.
func NewReport(status relay.Status) Report {
	report := Report{
		Claim:                status.Claim,
		Pending:              status.Counts[relay.StatePending],
		Claimed:              status.Counts[relay.StateClaimed],
		Scheduled:            status.Counts[relay.StateScheduled],
		Retry:                status.Counts[relay.StateRetry],
		Error:                status.Counts[relay.StateError],
		Done:                 status.Counts[relay.StateDone],
		OldestPendingSeconds: status.OldestPending.Seconds(),
		Lanes:                status.LanesLeased,
		Relays:               append([]relay.RelayInfo{}, status.Relays...),
		PendingTopics:        map[string]int64{},
	}
	for topic, count := range status.Topics {
		report.PendingTopics[topic] = count
	}
	return report
}
