package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// api serves /api/ for the page and for programs. It makes changes through the same calls as the command line, and writes
// them to the log of actions.
type api struct {
	options Options
	guard   *guard
	tables  map[string]*table
	jobs    *jobs
	state   *State
	reads   chan struct{} // has an element for each request that reads
	queue   chan struct{} // has an element for each request that reads or waits to read
}

// table is a source and the last count of its messages.
type table struct {
	Source
	turn    chan struct{} // has an element while a request counts the table; only one request at a time may count it
	mu      sync.Mutex
	counted counted
	forgot  time.Time // the time of the last call of forget; earlier counts are not used
}

// counted is the result of counting a table's messages.
type counted struct {
	status storage.Status
	parked parkedGroups
	err    error
	at     time.Time
	took   time.Duration // the time that counting took
}

// fresh reports whether the count is recent enough to be reused.
func (c *counted) fresh() bool {
	return !c.at.IsZero() && time.Since(c.at) < max(countedLasts, countedRest*c.took)
}

func newAPI(options Options) *api {
	state := options.State
	if state == nil {
		state = NewState()
	}
	a := &api{options: options, guard: newGuard(options, state), tables: map[string]*table{}, jobs: &state.jobs, state: state, reads: make(chan struct{}, MostReads), queue: make(chan struct{}, MostReads+mostQueued)}
	for _, source := range options.Sources {
		if source.Reads == nil {
			source.Reads = source.Operator
		}
		a.tables[source.Name] = &table{Source: source, turn: make(chan struct{}, 1)}
	}
	return a
}

// routes adds the routes of the API and of the probes. GET routes require the role reader, and POST routes the role operator.
// The routes session, login, logout, healthz and readyz require no role. openapi.yaml describes all routes.
func (a *api) routes(mux interface {
	Handle(pattern string, handler http.Handler)
}) {
	mux.Handle("GET /metrics", a.guard.need(reader, a.options.Metrics))
	mux.Handle("GET /healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "ok\n") }))
	mux.Handle("GET /readyz", ready(a.options.Sources, a.guard))
	mux.Handle("GET /status", a.guard.need(reader, a.status(a.options.Sources)))
	mux.Handle("GET /api/session", http.HandlerFunc(a.session))
	mux.Handle("POST /api/login", http.HandlerFunc(a.guard.login))
	mux.Handle("POST /api/logout", http.HandlerFunc(a.guard.logout))
	for route, show := range map[string]func(http.ResponseWriter, *http.Request, *table){
		"overview":      a.overview, // needs no inTurn: one request at a time counts the table, and the others return the last count
		"history":       a.history,
		"keys":          a.inTurn(a.key),
		"messages":      a.inTurn(a.messages),
		"messages/{id}": a.inTurn(a.message),
		"actions":       a.inTurn(a.actions),
		"replays":       a.inTurn(a.replays),
	} {
		mux.Handle("GET /api/"+route, a.guard.need(reader, a.ofTable(show)))
	}
	mux.Handle("GET /api/jobs", a.guard.need(reader, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, a.jobs.shown("")) })))
	mux.Handle("GET /api/jobs/{id}", a.guard.need(reader, http.HandlerFunc(a.showJob)))
	for route, change := range map[string]func(http.ResponseWriter, *http.Request, *table){
		"messages":            a.copyMessage,
		"jobs":                a.beginJob,
		"jobs/{id}/stop":      a.stopJob,
		"replays/{name}/stop": a.stopReplay,
		"controls":            a.setControl,
		"controls/lift":       a.liftControl,
	} {
		mux.Handle("POST /api/"+route, a.guard.need(operator, a.ofTable(change)))
	}
	mux.Handle("/api/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, http.StatusNotFound, "the API has no such route or method")
	}))
}

// ofTable returns a handler that calls `next` with the source that is named in the request, or with the first source if none is named.
func (a *api) ofTable(next func(http.ResponseWriter, *http.Request, *table)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		name := request.URL.Query().Get("source")
		if name == "" && len(a.options.Sources) > 0 {
			name = a.options.Sources[0].Name
		}
		of := a.tables[name]
		if of == nil || of.Operator == nil {
			writeProblem(w, http.StatusNotFound, fmt.Sprintf("there is no source %q", name))
			return
		}
		ctx, cancel := context.WithTimeout(request.Context(), countTimeout)
		defer cancel()
		next(w, request.WithContext(ctx), of)
	})
}

// These constants limit concurrent reads, so that the page's requests don't slow down the database for the relays.
const (
	MostReads   = 4
	ReadTimeout = countTimeout
	mostQueued  = 12
	askAgain    = "2" // the Retry-After of a refused request, in seconds
)

// inTurn lets at most MostReads requests read concurrently, and at most mostQueued wait for their turn.
func (a *api) inTurn(show func(http.ResponseWriter, *http.Request, *table)) func(http.ResponseWriter, *http.Request, *table) {
	return func(w http.ResponseWriter, request *http.Request, of *table) {
		busy := func() {
			w.Header().Set("Retry-After", askAgain)
			writeProblem(w, http.StatusTooManyRequests, "too many concurrent requests: try again")
		}
		select {
		case a.queue <- struct{}{}:
			defer func() { <-a.queue }()
		default:
			busy()
			return
		}
		select {
		case a.reads <- struct{}{}:
			defer func() { <-a.reads }()
		case <-request.Context().Done():
			busy()
			return
		}
		show(w, request, of)
	}
}

// sessionAnswer describes a client.
type sessionAnswer struct {
	Role       string   `json:"role"`
	Sources    []string `json:"sources"`    // the sources that the client may see
	Changeable bool     `json:"changeable"` // the server has an operator's token
	LoggedIn   bool     `json:"logged_in"`
	User       string   `json:"user,omitempty"` // the name that a trusted proxy has set
}

// session returns the client's role, and the sources that it may see.
func (a *api) session(w http.ResponseWriter, request *http.Request) {
	if a.guard.wrongToken(w, request) { // without this check, tokens could be guessed here without a delay
		return
	}
	names := []string{}
	is := a.guard.roleOf(request)
	for _, source := range a.options.Sources {
		if is >= reader && source.Operator != nil {
			names = append(names, source.Name)
		}
	}
	_, changeable := a.guard.tokens()[operator]
	cookie, err := request.Cookie(a.guard.cookieName)
	loggedIn := err == nil && a.guard.byCookie(cookie.Value) > nobody
	writeJSON(w, http.StatusOK, sessionAnswer{Role: is.String(), Sources: names, Changeable: changeable, LoggedIn: loggedIn, User: a.user(request)})
}

// A count is reused for countedLasts, or for countedRest times the time that counting took, whichever is longer. This limits the
// load that an open page puts on the database.
const (
	countedLasts = 2 * time.Second
	countedRest  = 20
)

// count returns the last count of the table if it is fresh or another request is counting. Otherwise it counts the table.
func (t *table) count(ctx context.Context) counted {
	t.mu.Lock()
	last := t.counted
	t.mu.Unlock()
	if last.fresh() {
		return last
	}
	select {
	case t.turn <- struct{}{}:
	default:
		if !last.at.IsZero() {
			return last // another request is counting
		}
		select {
		case t.turn <- struct{}{}:
		case <-ctx.Done():
			return counted{err: ctx.Err(), at: time.Now()}
		}
	}
	defer func() { <-t.turn }()
	began := time.Now()
	now := t.Watch.lastCounted() // the last count for the metrics may be recent enough
	if !now.fresh() || now.err != nil || now.at.Before(t.changed()) {
		now = counted{}
		now.status, now.err = t.Status(ctx)
		now.at = time.Now()
	}
	if now.err == nil && now.status.Counts[storage.StateError] > 0 {
		now.parked, now.err = groupParked(ctx, t.Reads)
	}
	now.took += time.Since(began)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted = now
	return now
}

// overview returns the problems, the counts, the sinks and the groups of parked messages.
func (a *api) overview(w http.ResponseWriter, request *http.Request, of *table) {
	c := a.hideCounted(of.count(request.Context()))
	answer := map[string]any{"source": of.Name, "problems": a.problems(of, c), "sinks": append([]sinkReport{}, a.sinkReports(of.Watch, c.status.Controls)...), "parked": append([]parkedGroup{}, c.parked.groups...)}
	if c.err == nil {
		answer["status"], answer["counted_at"] = NewReport(c.status), c.at
	}
	writeJSON(w, http.StatusOK, answer)
}

// sinkReports returns the state of the sinks of a relay of this process. The argument controls has the table's pauses and limits.
func (a *api) sinkReports(watch *Watch, controls []storage.Control) (reports []sinkReport) {
	if watch == nil {
		return nil
	}
	reports = watch.sinkReports(controls)
	for i := range reports {
		reports[i].Detail = a.hideText(reports[i].Detail)
	}
	return reports
}

// history returns the points of the charts for the relay, or for one of its sinks.
func (a *api) history(w http.ResponseWriter, request *http.Request, of *table) {
	points := []Point{}
	switch sink := request.URL.Query().Get("sink"); {
	case sink != "" && !a.hasSink(of, sink):
		writeProblem(w, http.StatusNotFound, fmt.Sprintf("there is no sink %q", sink))
		return
	case sink != "":
		points = append(points, of.Watch.HistoryOf(sink)...)
	case of.Watch != nil:
		points = append(points, of.Watch.History()...)
	}
	writeJSON(w, http.StatusOK, points)
}

// These constants are the default and the maximum of a list's parameter `limit`.
const (
	listedByDefault = 50
	mostListed      = 500
)

// messages lists messages by id, lowest first, without payloads and headers.
func (a *api) messages(w http.ResponseWriter, request *http.Request, of *table) {
	query := request.URL.Query()
	selection := operate.Selection{IDs: query["id"], Topic: query.Get("topic"), TopicPrefix: query.Get("topic_prefix"), Key: query.Get("key"), Sink: query.Get("sink"), State: query.Get("state"), Since: query.Get("since"), Error: query.Get("error"), Holds: query.Get("holds") != ""}
	var err, limitErr error
	selection.Limit = listedByDefault
	if text := query.Get("limit"); text != "" {
		selection.Limit, limitErr = strconv.Atoi(text)
	}
	if text := query.Get("after"); text != "" {
		selection.After, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || limitErr != nil || selection.Limit < 1 || selection.Limit > mostListed {
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf("\"after\" must be an id, and \"limit\" a number from 1 to %d", mostListed))
		return
	}
	filter, err := selection.Filter("")
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	if a.options.HidePayloads && filter.Error != "" {
		writeProblem(w, http.StatusBadRequest, errHiddenErrors.Error())
		return
	}
	filter.NoPayloads = true
	if query.Get("all") == "" && !filter.Holds { // few messages hold keys, so a search that LookThrough limits might end before it finds one
		filter.LookThrough = operate.LookThrough
	}
	var sought storage.Found
	if len(filter.IDs) > 0 {
		sought, err = of.Reads.Find(request.Context(), filter, findPatience(query))
	} else {
		sought.Infos, err = of.Reads.List(request.Context(), filter)
	}
	found := sought.Infos
	if err != nil {
		a.failed(w, "list messages", err)
		return
	}
	answer := struct {
		Messages []operate.Message `json:"messages"`
		Next     int64             `json:"next,omitempty"` // the value of the parameter `after` for the next page

		// If LookedThrough isn't 0, the search examined at most about this number of messages in each table, and more messages may
		// match: ?all=yes searches the whole table.
		LookedThrough int `json:"looked_through,omitempty"`

		// LookedUntil is the row id at which the search for a message's id ended early, or 0 if it read all rows. Rows with higher
		// ids may match, too: ?after= continues the search there, and ?all=yes searches for longer.
		LookedUntil int64 `json:"looked_until,omitempty"`
	}{Messages: []operate.Message{}}
	payloads := 0
	for _, info := range found {
		a.hideInfo(&info)
		answer.Messages = append(answer.Messages, operate.NewMessage(info))
		payloads += len(info.Message.Payload)
	}
	if len(found) >= selection.Limit || payloads >= storage.ListBytes { // a page of large messages may end before the limit
		answer.Next = found[len(found)-1].ID
	} else if len(selection.IDs) == 0 && selection.Selects() {
		answer.LookedThrough = filter.LookThrough
	}
	if !sought.All() {
		answer.LookedUntil = sought.Until
	}
	writeJSON(w, http.StatusOK, answer)
}

// errHiddenErrors is the response to a search for the text of an error while payloads are hidden. Errors can repeat payloads, so the
// search could reveal them.
var errHiddenErrors = errors.New("errors can't be searched: they may repeat payloads, which are hidden")

// findPatience returns the approximate time limit of a search for a message's id. With ?all=yes the limit is countTimeout,
// after which the request ends anyway.
func findPatience(query url.Values) time.Duration {
	if query.Get("all") != "" {
		return countTimeout
	}
	return operate.FindPatience
}

// mostPayload is the maximum number of bytes of a payload that are shown.
const mostPayload = 256 << 10

// shownMessage is a message with its payload, headers and failed attempts.
type shownMessage struct {
	operate.FullMessage
	PayloadBytes  int       `json:"payload_bytes"`
	PayloadCut    bool      `json:"payload_cut,omitempty"`    // only the first bytes are shown
	PayloadHidden bool      `json:"payload_hidden,omitempty"` // the request has payload=no, or HidePayloads is set
	Attempted     []attempt `json:"attempted"`                // failed attempts of this process, oldest first
	TraceURL      string    `json:"trace_url,omitempty"`      // a link to its trace; empty without Options.TraceURL or without a traceparent header
	Copyable      bool      `json:"copyable,omitempty"`       // the server can write a copy of it
	LookedUntil   int64     `json:"looked_until,omitempty"`   // the row id at which the search ended early, or 0; rows with higher ids may belong to the message, too, such as a replay's copies
}

type attempt struct {
	At     time.Time `json:"at"`
	Sink   string    `json:"sink"`
	Number int       `json:"number"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Became string    `json:"became"`
}

// find finds the rows of the message with this id. If it finds none, it writes the response and returns false.
func (a *api) find(w http.ResponseWriter, request *http.Request, of *table, id string, filter storage.Filter) (sought storage.Found, ok bool) {
	sought, err := of.Reads.Find(request.Context(), filter, findPatience(request.URL.Query()))
	switch {
	case err != nil:
		a.failed(w, "read message "+id, err)
	case len(sought.Infos) > 0:
		return sought, true
	case !sought.All():
		writeProblem(w, http.StatusNotFound, fmt.Sprintf("message %s was not found in the rows up to id %d of %d: ?all=yes searches for longer, rowrelay messages show --all searches all rows", id, sought.Until, sought.Last))
	default:
		writeProblem(w, http.StatusNotFound, "message "+id+" doesn't exist")
	}
	return sought, false
}

// message returns the rows of one message. A message may have one row for each of its sinks.
func (a *api) message(w http.ResponseWriter, request *http.Request, of *table) {
	id := request.PathValue("id")
	filter, err := operate.Selection{IDs: []string{id}}.Filter("")
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	sought, ok := a.find(w, request, of, id, filter)
	if !ok {
		return
	}
	hide := a.options.HidePayloads || request.URL.Query().Get("payload") == "no"
	shown := []shownMessage{}
	for _, info := range sought.Infos {
		each := shownMessage{PayloadBytes: len(info.Message.Payload), PayloadHidden: hide, PayloadCut: len(info.Message.Payload) > mostPayload, Attempted: []attempt{}, TraceURL: a.traceURL(info.Message.Headers), Copyable: of.Write != nil}
		if each.PayloadCut {
			info.Message.Payload = cutPayload(info.Message.Payload)
		}
		if hide {
			info.Message.Payload, each.PayloadCut = nil, false
		}
		a.hideInfo(&info)
		each.FullMessage = operate.NewFullMessage(info)
		if !sought.All() {
			each.LookedUntil = sought.Until
		}
		if of.Watch != nil {
			for _, was := range of.Watch.attemptsOf(info.ID, info.Message.ID) {
				each.Attempted = append(each.Attempted, attempt{was.At.UTC(), was.Sink, was.Number, string(was.Reason), a.hideText(was.Detail), was.Became})
			}
		}
		shown = append(shown, each)
	}
	writeJSON(w, http.StatusOK, shown)
}

// cutPayload returns the beginning of a payload that is too long to be shown. It doesn't cut a UTF-8 text in the middle of a
// character.
func cutPayload(payload []byte) []byte {
	at := mostPayload
	for at > mostPayload-utf8.UTFMax && !utf8.RuneStart(payload[at]) {
		at--
	}
	if utf8.Valid(payload[:at]) {
		return payload[:at]
	}
	return payload[:mostPayload]
}

// actions returns the log of actions.
func (a *api) actions(w http.ResponseWriter, request *http.Request, of *table) {
	actions, err := of.Reads.Actions(request.Context(), 50)
	if err != nil {
		a.failed(w, "read the log of actions", err)
		return
	}
	for i := range actions {
		actions[i].Reason = a.hideReason(actions[i].Reason)
	}
	writeJSON(w, http.StatusOK, append([]storage.Action{}, actions...))
}

func (a *api) replays(w http.ResponseWriter, request *http.Request, of *table) {
	type named struct {
		Name  string `json:"name"`
		State string `json:"state"`
		storage.Replay
	}
	known, err := of.Reads.Replays(request.Context())
	if err != nil {
		a.failed(w, "read the replays", err)
		return
	}
	shown := []named{}
	for _, replay := range known {
		shown = append(shown, named{replay.Name, operate.ReplayState(replay), replay})
	}
	writeJSON(w, http.StatusOK, shown)
}

func (a *api) showJob(w http.ResponseWriter, request *http.Request) {
	found, err := a.jobs.find(request.PathValue("id"))
	if err != nil {
		noJob(w, err)
		return
	}
	writeJSON(w, http.StatusOK, found)
}

// noJob responds that a job doesn't exist, or that it belongs to another process.
func noJob(w http.ResponseWriter, err error) {
	if errors.Is(err, errElsewhere) {
		writeJSON(w, http.StatusConflict, map[string]any{"error": err.Error(), "elsewhere": true})
		return
	}
	writeProblem(w, http.StatusNotFound, err.Error())
}

// beginJob starts a job that changes or replays messages.
func (a *api) beginJob(w http.ResponseWriter, request *http.Request, of *table) {
	var asked jobRequest
	if !readJSON(w, request, &asked) {
		return
	}
	work, target, err := a.work(request.Context(), of, &asked)
	if errors.Is(err, errElsewhere) {
		noJob(w, err)
		return
	}
	if errors.Is(err, errNoPlan) {
		writeProblem(w, http.StatusConflict, err.Error())
		return
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	by := a.author(request, asked.By)
	begun, err := a.jobs.begin(of.Name, asked, by, work(storage.Logged(of.Operator, by, asked.Reason, target)))
	if err != nil {
		writeProblem(w, http.StatusTooManyRequests, err.Error())
		return
	}
	a.jobs.answer(w, request, begun)
}

// work checks a request for a job. It returns the job's work, and its target, which the log of actions shows.
func (a *api) work(ctx context.Context, of *table, asked *jobRequest) (work work, target string, err error) {
	switch {
	case len(asked.Reason) > 255 || len(asked.By) > 150:
		return nil, "", errors.New("\"by\" must have at most 150 bytes, and \"reason\" at most 255")
	case asked.Plan != "":
		return a.workByPlan(of, asked)
	}
	filter, err := asked.Select.Filter("")
	switch {
	case err != nil:
		return nil, "", err
	case a.options.HidePayloads && filter.Error != "":
		return nil, "", errHiddenErrors
	case asked.All == asked.Select.Selects() && (asked.Action != "replay" || asked.Name == ""):
		return nil, "", errors.New("select messages by ids or filters, or select every message with \"all\"")
	case asked.Rate < 0 || asked.Select.Limit != 0 || asked.Select.After != 0:
		return nil, "", errors.New("\"rate\" must not be negative, and \"limit\" and \"after\" can't be given for a job")
	case asked.To != "" && !a.hasSink(of, asked.To):
		return nil, "", fmt.Errorf("there is no sink %q", asked.To)
	}
	switch asked.Action {
	case operate.Requeue, operate.Skip, operate.Discard:
		if filter.State != "" && filter.State != storage.StateError && filter.State != storage.StateRetry {
			return nil, "", errors.New("only messages in the states error (parked) and retry can be requeued, skipped or discarded")
		}
		if filter.State == storage.StateRetry && (asked.To != "" || asked.InOrder) {
			return nil, "", errors.New("\"to\" and \"in_order\" can't be given for messages in the state retry, which keep their sinks and their order")
		}
		if asked.To != "" && asked.Action != operate.Requeue || asked.Until != "" || asked.Name != "" {
			return nil, "", errors.New("\"to\" can be given only for requeue and replay, and \"until\" and \"name\" only for replay")
		}
		b := operate.Bulk{Action: asked.Action, Filter: filter, Rate: asked.Rate, To: asked.To, InOrder: asked.InOrder}
		if asked.Action == operate.Requeue {
			b.Within = operate.FirstDelivered
			if asked.InOrder {
				b.Within = operate.EveryDelivered
			}
		}
		return func(o storage.Operator) task {
			return bulk(o, b, asked.Preview)
		}, filter.Describe(), nil
	case "replay":
		begun, err := beginReplay(ctx, of, asked, filter)
		if err != nil {
			return nil, "", err
		}
		return func(o storage.Operator) task { return replay(o, begun) }, "replay " + begun.Name, nil
	}
	return nil, "", fmt.Errorf("%.40q isn't an action: use requeue, skip, discard or replay", asked.Action)
}

// workByPlan returns the work of a job that carries out the plan of an earlier job, such as a preview: it changes only the messages
// in that plan.
func (a *api) workByPlan(of *table, asked *jobRequest) (work work, target string, err error) {
	if asked.Action+asked.To+asked.Name+asked.Until != "" || asked.All || asked.Select.Selects() || asked.Preview || asked.InOrder || asked.Rate < 0 {
		return nil, "", errors.New("with \"plan\", only \"rate\", \"by\" and \"reason\" can be given: the plan has all other values")
	}
	if _, err := a.jobs.find(asked.Plan); errors.Is(err, errElsewhere) {
		return nil, "", err
	}
	was, found := a.jobs.plan(asked.Plan, of.Name)
	if found == nil {
		return nil, "", errNoPlan
	}
	was.Plan, was.Preview, was.Rate, was.By, was.Reason = asked.Plan, false, asked.Rate, asked.By, asked.Reason
	*asked = was
	again := *found
	again.bulk.Rate = asked.Rate
	return func(o storage.Operator) task { return carryOut(o, again) }, again.bulk.Filter.Describe(), nil
}

// sinks returns the sinks of this process's relay.
func (t *table) sinks() []string {
	if t.Watch == nil {
		return nil
	}
	return slices.Collect(maps.Keys(t.Watch.sinks))
}

func (a *api) hasSink(of *table, name string) bool {
	return of.Watch != nil && of.Watch.sinks[name] != nil
}

// beginReplay stores a new replay, or loads the replay that the request names, to continue it.
func beginReplay(ctx context.Context, of *table, asked *jobRequest, filter storage.Filter) (storage.Replay, error) {
	if filter.State != "" && filter.State != storage.StateDone || filter.Error+filter.TopicPrefix != "" || asked.Preview || asked.InOrder {
		return storage.Replay{}, errors.New("a replay sends delivered messages: \"state\" can only be done, and \"topic_prefix\", \"error\", \"preview\" and \"in_order\" can't be given")
	}
	until, err := operate.Moment("until", asked.Until)
	if err != nil {
		return storage.Replay{}, err
	}
	if len(filter.IDs) > operate.MostReplayIDs {
		return storage.Replay{}, fmt.Errorf("a replay can have at most %d ids", operate.MostReplayIDs)
	}
	begun := storage.Replay{
		Name: cmp.Or(asked.Name, operate.NameReplay(time.Now())), IDs: filter.IDs, Topic: filter.Topic, Key: filter.Key, Sink: filter.Sink,
		Since: filter.Since, Until: until, To: asked.To, Rate: cmp.Or(asked.Rate, 100),
	}
	if err := operate.CheckReplayName(begun.Name); err != nil {
		return begun, err
	}
	isNew := asked.All || asked.Select.Selects()
	begun, err = operate.BeginReplay(ctx, of.Operator, begun, isNew, asked.Rate > 0)
	asked.Name, asked.Select, asked.All = begun.Name, operate.Selection{}, false // so that a repeated request continues the replay and doesn't start another one
	return begun, err
}

func (a *api) stopJob(w http.ResponseWriter, request *http.Request, of *table) {
	id := request.PathValue("id")
	found, err := a.jobs.find(id)
	if err != nil {
		noJob(w, err)
		return
	}
	if replay := found.Replay; replay != nil && found.Ended.IsZero() && found.Source == of.Name {
		if _, err := operate.StopReplay(request.Context(), of.Operator, replay.Name); err != nil {
			a.failed(w, "stop the replay", err)
			return
		}
	}
	found.stop()
	select {
	case <-found.ended:
	case <-request.Context().Done():
	}
	a.showJob(w, request)
}

func (a *api) stopReplay(w http.ResponseWriter, request *http.Request, of *table) {
	stopped, err := operate.StopReplay(request.Context(), of.Operator, request.PathValue("name"))
	if errors.Is(err, operate.ErrNoReplay) {
		writeProblem(w, http.StatusNotFound, err.Error())
		return
	}
	if err != nil {
		a.failed(w, "stop the replay", err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"name": stopped.Name, "state": operate.ReplayState(stopped)})
}

// controlRequest is a request to set or lift a pause or a limit.
type controlRequest struct {
	Kind   storage.ControlKind `json:"kind"`
	Name   string              `json:"name"`
	Rate   int                 `json:"rate,omitempty"`
	For    string              `json:"for,omitempty"` // a duration; empty if the control stays in force until it is lifted
	By     string              `json:"by,omitempty"`
	Reason string              `json:"reason,omitempty"`
}

func (a *api) setControl(w http.ResponseWriter, request *http.Request, of *table) {
	var asked controlRequest
	if !readJSON(w, request, &asked) {
		return
	}
	control := storage.Control{Kind: asked.Kind, Name: asked.Name, Rate: asked.Rate, By: a.author(request, asked.By), Reason: asked.Reason}
	err := control.Validate()
	var lasts time.Duration
	if asked.For != "" && err == nil {
		var parsed any
		if parsed, err = (settings.Field{Type: settings.TypeDuration, Min: "1s", Max: "3650d"}).Parse(asked.For); err == nil {
			lasts = parsed.(time.Duration)
		} else {
			err = fmt.Errorf("for: %q isn't a duration of a second or more, such as 90m or 2d", asked.For)
		}
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := operate.SetControl(request.Context(), of.Operator, control, lasts, of.sinks()...); err != nil {
		if errors.Is(err, operate.ErrNoKeys) || errors.Is(err, operate.ErrUnknown) || errors.Is(err, operate.ErrWildcard) {
			writeProblem(w, http.StatusBadRequest, err.Error())
			return
		}
		a.failed(w, "control the "+control.String(), err)
		return
	}
	of.forget()
	writeJSON(w, http.StatusOK, map[string]string{"set": control.Set(lasts).Target})
}

func (a *api) liftControl(w http.ResponseWriter, request *http.Request, of *table) {
	var asked controlRequest
	if !readJSON(w, request, &asked) {
		return
	}
	control := storage.Control{Kind: asked.Kind, Name: asked.Name, Rate: 1, By: a.author(request, asked.By), Reason: asked.Reason}
	if err := control.Validate(); err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	was, err := of.Operator.LiftControl(request.Context(), control)
	if err != nil {
		a.failed(w, "lift the control", err)
		return
	}
	if !was {
		writeProblem(w, http.StatusNotFound, control.Lifted().Target+" is neither paused nor limited")
		return
	}
	of.forget()
	writeJSON(w, http.StatusOK, map[string]string{"lifted": control.Lifted().Target})
}

// forget makes the next request count the table again. The API calls it after it has set or lifted a control, or copied a message.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted.at, t.forgot = time.Time{}, time.Now()
}

func (t *table) changed() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forgot
}

// author returns the text that the log of actions shows as the author of a change. A name that a trusted proxy has set replaces
// the name in the request.
func (a *api) author(request *http.Request, by string) string {
	host, _, err := net.SplitHostPort(request.RemoteAddr)
	if err != nil {
		host = request.RemoteAddr
	}
	return strings.TrimSpace(cmp.Or(a.user(request), by, "admin")) + " from " + host
}

// mostBody is the maximum size of a request's body.
const mostBody = 64 << 10

// readJSON reads the body of a request strictly, and reports whether that succeeded. If it fails, it responds with
// an error. The content type must be JSON, because an HTML form of another site can't send that type.
func readJSON(w http.ResponseWriter, request *http.Request, into any) bool {
	return readBody(w, request, into, mostBody)
}

// readBody is readJSON with a given maximum size.
func readBody(w http.ResponseWriter, request *http.Request, into any, most int64) bool {
	kind, _, err := mime.ParseMediaType(request.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		writeProblem(w, http.StatusUnsupportedMediaType, "send application/json")
		return false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, most))
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err == nil {
		err = decoder.Decode(into)
	}
	if err == nil && decoder.Decode(&struct{}{}) != io.EOF {
		err = errors.New("it has more than one value")
	}
	if err == nil && (!utf8.Valid(body) || bytes.Contains(body, []byte(`\u0000`))) { // databases refuse such text
		err = errors.New("it isn't UTF-8, or has a zero character")
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, "the body is invalid: "+err.Error())
		return false
	}
	return true
}

// failed logs an error of the database, and responds with it.
func (a *api) failed(w http.ResponseWriter, what string, err error) {
	a.options.Logger.Warn("admin: a request failed", "request", what, "error", err)
	code := http.StatusInternalServerError
	if errors.Is(err, context.DeadlineExceeded) {
		code = http.StatusGatewayTimeout
	}
	writeProblem(w, code, what+": "+err.Error())
}

func writeProblem(w http.ResponseWriter, code int, text string) {
	writeJSON(w, code, map[string]string{"error": text})
}
