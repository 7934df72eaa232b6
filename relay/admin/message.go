package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// This file has the API's features for a single message: a link to its trace, the timeline of its key, and a copy of it.

// traceparent matches the value of the W3C header traceparent, and captures the trace's id.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}`)

// traceURL returns the URL of the trace of a message with these headers. It returns "" if there is no trace or no TraceURL.
func (a *api) traceURL(headers map[string]string) string {
	isLink := strings.HasPrefix(a.options.TraceURL, "https://") || strings.HasPrefix(a.options.TraceURL, "http://")
	for name, value := range headers {
		if id := traceparent.FindStringSubmatch(value); isLink && id != nil && strings.EqualFold(name, "traceparent") {
			return strings.ReplaceAll(a.options.TraceURL, "{trace_id}", id[1])
		}
	}
	return ""
}

// Bounds of the timeline of a key.
const (
	mostOfAKey  = 20        // messages in each list
	deliveredIn = time.Hour // how far back delivered messages are searched by default
)

// keyLine is the timeline of a key: its last delivered messages, the messages that are parked or wait for another attempt, and
// the next messages to be sent. Each list is in the order of ids.
type keyLine struct {
	Key       string            `json:"key"`
	Delivered []operate.Message `json:"delivered"` // the last mostOfAKey messages since DeliveredSince
	Held      []operate.Message `json:"held"`      // parked, or waiting for another attempt or for their time
	Waiting   []operate.Message `json:"waiting"`   // pending or claimed

	DeliveredSince time.Time `json:"delivered_since"`
	MoreHeld       bool      `json:"more_held,omitempty"`    // more messages are held
	MoreWaiting    bool      `json:"more_waiting,omitempty"` // more messages wait

	// If LookedThrough isn't 0, each search for held or waiting messages examined at most about this number of messages, and more
	// may exist: ?all=yes searches the whole table.
	LookedThrough int `json:"looked_through,omitempty"`
}

// key returns the timeline of a key.
func (a *api) key(w http.ResponseWriter, request *http.Request, of *table) {
	query, ctx := request.URL.Query(), request.Context()
	selection := operate.Selection{Key: query.Get("key"), Since: query.Get("since"), Limit: mostOfAKey}
	filter, err := selection.Filter("")
	if err == nil && filter.Key == "" {
		err = errors.New("name the key in the parameter \"key\"")
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	line := keyLine{Key: filter.Key, DeliveredSince: filter.Since, Delivered: []operate.Message{}, Held: []operate.Message{}, Waiting: []operate.Message{}}
	if line.DeliveredSince.IsZero() {
		line.DeliveredSince = time.Now().Add(-deliveredIn)
	}
	filter.Since, filter.NoPayloads = time.Time{}, true
	if query.Get("all") == "" {
		filter.LookThrough, line.LookedThrough = operate.LookThrough, operate.LookThrough
	}
	list := func(into *[]operate.Message, more *bool, states ...storage.State) {
		for _, state := range states {
			if err != nil {
				return
			}
			var infos []storage.Info
			filter.State = state
			if infos, err = of.Reads.List(ctx, filter); len(infos) == filter.Limit {
				*more = true
			}
			a.addMessages(into, infos)
		}
	}
	list(&line.Held, &line.MoreHeld, storage.StateError, storage.StateRetry, storage.StateScheduled)
	list(&line.Waiting, &line.MoreWaiting, storage.StateClaimed, storage.StatePending)
	if follower, follows := of.Reads.(storage.Follower); follows && err == nil {
		var infos []storage.Info
		infos, err = follower.LastDelivered(ctx, storage.Filter{Key: filter.Key, Limit: mostOfAKey}, line.DeliveredSince)
		a.addMessages(&line.Delivered, infos)
	}
	if err != nil {
		a.failed(w, "read the messages of a key", err)
		return
	}
	writeJSON(w, http.StatusOK, line)
}

// addMessages adds messages in the order of their ids.
func (a *api) addMessages(to *[]operate.Message, infos []storage.Info) {
	for _, info := range infos {
		a.hideInfo(&info)
		*to = append(*to, operate.NewMessage(info))
	}
	slices.SortStableFunc(*to, func(a, b operate.Message) int { return cmp.Compare(a.ID, b.ID) })
}

// mostCopy is the maximum size of the body of a request for a copy.
const mostCopy = 1 << 20

// copyRequest asks for a new message that has the topic, key, headers and priority of another one, and the payload of the request.
type copyRequest struct {
	CopyOf        string  `json:"copy_of"` // the id of a row or of a message
	Payload       *string `json:"payload"`
	PayloadBase64 []byte  `json:"payload_base64,omitempty"` // instead of payload, for a payload that isn't text
	By            string  `json:"by,omitempty"`
	Reason        string  `json:"reason,omitempty"`
}

// copyMessage writes a copy of a message. The copy gets a header with the id of the original message.
func (a *api) copyMessage(w http.ResponseWriter, request *http.Request, of *table) {
	var asked copyRequest
	if !readBody(w, request, &asked, mostCopy) {
		return
	}
	filter, err := operate.Selection{IDs: []string{asked.CopyOf}}.Filter("")
	switch {
	case err != nil:
	case of.Write == nil:
		err = errors.New("this server can't write messages")
	case asked.Payload != nil && asked.PayloadBase64 != nil:
		err = errors.New("give the payload either in payload or in payload_base64")
	case len(asked.Reason) > 255 || len(asked.By) > 150:
		err = errors.New("\"by\" must have at most 150 bytes, and \"reason\" at most 255")
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	sought, ok := a.find(w, request, of, asked.CopyOf, filter)
	if !ok {
		return
	}
	from := sought.Infos[0].Message
	made := outbox.Message{ID: outbox.NewID(), Topic: from.Topic, Key: from.Key, Priority: from.Priority, Payload: asked.PayloadBase64, Headers: maps.Clone(from.Headers)}
	if asked.Payload != nil {
		made.Payload = []byte(*asked.Payload)
	}
	if made.Headers == nil {
		made.Headers = map[string]string{}
	}
	maps.DeleteFunc(made.Headers, func(name, _ string) bool { return strings.HasPrefix(strings.ToLower(name), "rowrelay-") }) // for example the headers of a dead letter, which describe only the original
	made.Headers[storage.CopyOfHeader] = from.ID
	action := storage.Action{By: a.author(request, asked.By), Action: "copy", Target: "message " + from.ID + " as " + made.ID, Reason: asked.Reason}
	if err := logged(request.Context(), of.Operator, action, func(ctx context.Context) error { return of.Write(ctx, made) }); err != nil {
		if invalid := new(outbox.ValidationError); errors.As(err, &invalid) {
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("the copy would be invalid: %s %s", strings.ToLower(invalid.Field), invalid.Rule))
			return
		}
		a.failed(w, "write a copy of message "+asked.CopyOf, err)
		return
	}
	of.forget()
	writeJSON(w, http.StatusOK, map[string]string{"message_id": made.ID})
}

// logged makes a change, and writes one entry about it to the log of actions.
func logged(ctx context.Context, operator storage.Operator, action storage.Action, change func(context.Context) error) error {
	id, err := operator.BeginAction(ctx, action)
	if err != nil {
		return err
	}
	changed := int64(1)
	err = change(ctx)
	if err != nil {
		changed = 0
	}
	return errors.Join(err, operator.EndAction(context.WithoutCancel(ctx), id, changed))
}

// user returns the name of the person who makes a request. It returns "" unless a trusted proxy has set a valid name.
func (a *api) user(request *http.Request) string {
	values := request.Header.Values(a.options.UserHeader)
	if a.options.UserHeader == "" || len(values) != 1 || !a.fromProxy(request) {
		return ""
	}
	name := strings.TrimSpace(values[0])
	if len(name) > mostUser || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return name
}

// fromProxy reports whether a request comes from a trusted proxy.
func (a *api) fromProxy(request *http.Request) bool {
	from, err := netip.ParseAddrPort(request.RemoteAddr)
	return err == nil && slices.ContainsFunc(a.options.TrustedProxies, func(network netip.Prefix) bool { return network.Contains(from.Addr().Unmap()) })
}

// mostUser is the maximum length of a user's name, in bytes.
const mostUser = 150
