package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// problem describes something that an operator should look at.
type problem struct {
	Level  string `json:"level"` // bad, warn or info
	Kind   string `json:"kind"`
	Title  string `json:"title"`
	Detail string `json:"detail,omitempty"`

	// Select is a filter for the messages that the problem concerns. It is empty if the problem doesn't concern messages.
	Select map[string]string `json:"select,omitempty"`
}

// The page reports pending messages that are older than lateAfter, and messages in the state retry that are older than
// lateRetryAfter.
const (
	lateAfter      = 30 * time.Second
	lateRetryAfter = 10 * time.Minute
)

// problems returns the problems of a table, the worst first.
func (a *api) problems(of *table, c counted) []problem {
	found := []problem{}
	add := func(level, kind, title, detail string, selects map[string]string) {
		found = append(found, problem{level, kind, title, detail, selects})
	}
	if err := of.Healthy(); err != nil {
		add("bad", "relay", "The relay of this process doesn't work", err.Error(), nil)
	}
	if c.err != nil {
		add("bad", "status", "The messages couldn't be counted", c.err.Error(), nil)
		return found
	}
	status := c.status
	why := a.sinkProblems(of, c, add)
	alive := 0
	for _, relay := range status.Relays {
		if relay.Alive {
			alive++
			if relay.Config.Membership == storage.Standby {
				add("warn", "waits", "The relay "+relay.Name+" takes no messages", "It has other sinks or routes than the relays that work on this table, and waits until they have stopped. Start it with --join to share the messages.", nil)
			}
			continue
		}
		add("warn", "dead", "The relay "+relay.Name+" is dead", fmt.Sprintf("It ran on %s. Its last heartbeat was %s ago.", relay.Host, ago(c.at.Sub(relay.LastHeartbeat))), nil)
	}
	if alive == 0 && status.Has(storage.GaugeRelays) {
		add("bad", "relay", "No relay is alive", "No message is delivered until a relay runs.", nil)
		why = append(why, "no relay is alive")
	}
	for _, control := range status.Controls {
		detail := "for " + ago(c.at.Sub(control.Since))
		if control.By != "" {
			detail += ", by " + isolated(control.By)
		}
		if control.Reason != "" {
			detail += ": " + isolated(control.Reason)
		}
		if control.Kind == storage.LimitSink {
			add("info", "limit", fmt.Sprintf("The sink %s is limited to %d messages/s", control.Name, control.Rate), detail, nil)
			why = append(why, "sink "+control.Name+" is limited")
			continue
		}
		add("warn", "paused", fmt.Sprintf("The %s %s is paused", control.Kind, isolated(control.Name)), detail, nil)
		why = append(why, control.String()+" is paused")
	}
	if status.HeldKeys > 0 {
		add("warn", "held", plural(status.HeldKeys, "key is blocked by a parked message", "keys are blocked by parked messages"), "The oldest one has been blocked for "+ago(status.OldestHeld)+". Requeue, skip or discard the message to unblock the key.",
			map[string]string{"state": "error", "holds": "yes"})
	}
	if status.OldestPending > lateAfter {
		detail := "The backlog is " + plural(status.Counts[storage.StatePending]+status.Counts[storage.StateClaimed], "message", "messages") + "."
		if len(why) > 0 {
			detail = "Probable cause: " + strings.Join(why, "; ") + ". " + detail
		}
		add("warn", "late", "Messages are late: the oldest has waited for "+ago(status.OldestPending), detail, map[string]string{"state": "pending"})
	}
	if status.OldestRetry > lateRetryAfter {
		add("info", "retry", "The oldest message with failed attempts was written "+ago(status.OldestRetry)+" ago", "", map[string]string{"state": "retry"})
	}
	for _, group := range c.parked.groups {
		sink := ""
		if group.Sinks != "" {
			sink = " for " + group.Sinks
		}
		title := plural(int64(group.Count), "message", "messages") + " of " + isolated(group.Topic) + sink + " parked"
		if group.Of > 0 {
			title = fmt.Sprintf("%d of the newest %d parked messages have the topic %s%s", group.Count, group.Of, isolated(group.Topic), sink)
		}
		if group.Newest && len(c.parked.groups) > 1 {
			title += map[bool]string{true: ", the newest of all", false: ", including the newest"}[group.Count == 1]
		}
		selects := map[string]string{"state": "error", "topic": group.Topic}
		if group.Error != "" {
			selects["error"] = group.Error
		}
		if group.Sinks != "" && !strings.Contains(group.Sinks, ",") {
			selects["sink"] = group.Sinks
		}
		add("warn", "parked", title, group.Example, selects)
	}
	if c.parked.others > 0 {
		add("warn", "parked", plural(int64(c.parked.others), "more message", "more messages")+" parked, with other topics or errors", "", map[string]string{"state": "error"})
	}
	order := []string{"bad", "warn", "info"}
	slices.SortStableFunc(found, func(a, b problem) int { return slices.Index(order, a.Level) - slices.Index(order, b.Level) })
	return found
}

// sinkProblems adds the problems that only this process knows, and returns the possible causes of late messages.
func (a *api) sinkProblems(of *table, c counted, add func(level, kind, title, detail string, selects map[string]string)) (why []string) {
	if of.Watch == nil {
		return nil
	}
	for _, sink := range of.Watch.sinkReports(nil) {
		if sink.Down {
			add("bad", "sink", "The sink "+sink.Name+" has been unavailable for "+ago(time.Since(sink.DownSince)), strings.Trim(sink.Reason+": "+a.hideText(sink.Detail), ": "), nil)
			why = append(why, "sink "+sink.Name+" is unavailable")
		}
	}
	unrouted, failed := of.Watch.troubles(time.Now())
	for _, topic := range unrouted {
		add("bad", "unrouted", "Messages of the topic "+isolated(topic)+" have no destination", "They wait, and no attempt is charged. The relay's log says whether a route, a handler or the sink's destination is missing. If they wait for a sink that no longer exists, send them to another one: rowrelay messages requeue --sink GONE --to ANOTHER.", map[string]string{"state": "pending", "topic": topic})
		why = append(why, "topic "+topic+" has no destination")
	}
	for _, stage := range slices.Sorted(maps.Keys(failed)) {
		add("warn", "failed", "The relay retries a failing operation: "+stage, failed[stage].text, nil)
	}
	return why
}

// isolated encloses a name that has right-to-left letters or marks in Unicode isolates, so that they don't change the
// direction of the text around it.
func isolated(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool {
		return r >= 0x590 && r <= 0x8ff || r >= 0x200e && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r >= 0xfb1d && r <= 0xfefc || r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
	}) {
		return "\u2068" + name + "\u2069"
	}
	return name
}

// ago formats a duration for people.
func ago(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "a moment"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

func plural(count int64, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", count, many)
}
