package admin

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// hidden replaces a text that may repeat a payload.
const hidden = "(hidden)"

// reasoned matches the reason at the beginning of a relay's error.
var reasoned = regexp.MustCompile(`^[a-z][a-z_ ]{0,30}: `)

// hideText hides an error except for its reason, because the destination may have repeated a payload in the rest.
func (a *api) hideText(text string) string {
	if !a.options.HidePayloads || text == "" {
		return text
	}
	return reasoned.FindString(text) + hidden
}

// hideInfo hides the receipt, the text of Malformed and the values of headers. It reduces the error and the answers of failed
// attempts to their reasons.
func (a *api) hideInfo(info *storage.Info) {
	if !a.options.HidePayloads {
		return
	}
	info.LastError = a.hideText(info.LastError)
	if info.Receipt != "" {
		info.Receipt = hidden
	}
	if info.Malformed != "" {
		info.Malformed = hidden
	}
	info.AttemptLog = slices.Clone(info.AttemptLog)
	for i := range info.AttemptLog {
		info.AttemptLog[i].Answer = a.hideText(info.AttemptLog[i].Answer)
	}
	info.Message.Headers = maps.Clone(info.Message.Headers)
	for name := range info.Message.Headers {
		info.Message.Headers[name] = hidden
	}
}

// hideReason removes a destination's answer from a reason. Only pauses that relays have set have such an answer in their
// reasons. Other reasons are returned unchanged.
func (a *api) hideReason(text string) string {
	const answer = "the last answer: "
	numbers, _, found := strings.Cut(text, answer)
	if !a.options.HidePayloads || !found {
		return text
	}
	return numbers + answer + hidden
}

func (a *api) hideControls(controls []storage.Control) []storage.Control {
	var shown []storage.Control
	for _, control := range controls {
		control.Reason = a.hideReason(control.Reason)
		shown = append(shown, control)
	}
	return shown
}

// hideCounted hides the errors and reasons in the result of a count, because they may repeat a payload. It then merges groups of
// parked messages that have become equal.
func (a *api) hideCounted(c counted) counted {
	if !a.options.HidePayloads {
		return c
	}
	c.status.Controls = a.hideControls(c.status.Controls)
	var groups []parkedGroup
	for _, group := range c.parked.groups {
		group.Error, group.Example = "", a.hideText(group.Example)
		at := len(groups)
		for i := range groups {
			if groups[i].Topic == group.Topic && groups[i].Sinks == group.Sinks && groups[i].Example == group.Example {
				at = i
			}
		}
		if at == len(groups) {
			groups = append(groups, group)
			continue
		}
		groups[at].Count += group.Count
		groups[at].Newest = groups[at].Newest || group.Newest
	}
	c.parked.groups = groups
	return c
}
