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

// api is what programs and the page ask for, below /api/. Changes are the same calls as the
// command line's, and are written to the log of actions.
type api struct {
	options Options
	guard   *guard
	tables  map[string]*table
	jobs    *jobs
	state   *State
	reads   chan struct{} // has an element for each call that reads
	queue   chan struct{} // has an element for each of these and for each that waits
}

// table is a source with what is remembered of it from one request to the next.
type table struct {
	Source
	turn    chan struct{} // one counts at a time
	mu      sync.Mutex
	counted counted
	forgot  time.Time // when something was changed last, so that older counts aren't shown
}

// counted is what a table held at a time.
type counted struct {
	status storage.Status
	parked parkedGroups
	err    error
	at     time.Time
	took   time.Duration // to count it
}

// fresh says that it may be shown still.
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

// routes are those of the API. What changes nothing takes a reader, everything else an operator.
func (a *api) routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/session", a.session)
	mux.HandleFunc("POST /api/login", a.guard.login)
	mux.HandleFunc("POST /api/logout", a.guard.logout)
	for route, show := range map[string]func(http.ResponseWriter, *http.Request, *table){
		"overview":      a.overview, // counts once at a time
		"history":       a.history,
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
		"jobs":                a.beginJob,
		"jobs/{id}/stop":      a.stopJob,
		"replays/{name}/stop": a.stopReplay,
		"controls":            a.setControl,
		"controls/lift":       a.liftControl,
	} {
		mux.Handle("POST /api/"+route, a.guard.need(operator, a.ofTable(change)))
	}
	mux.Handle("/api/", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, http.StatusNotFound, "there is no such thing in the API")
	}))
}

// ofTable finds the source that a request is about: the one that it names, or the first.
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

// Bounds of reading. A reader of the page must not slow the database down for the relays by listings at the same time.
const (
	MostReads   = 4
	ReadTimeout = countTimeout
	mostQueued  = 12
	askAgain    = "2" // seconds
)

// inTurn lets at most MostReads requests read at the same time, and mostQueued wait for that.
func (a *api) inTurn(show func(http.ResponseWriter, *http.Request, *table)) func(http.ResponseWriter, *http.Request, *table) {
	return func(w http.ResponseWriter, request *http.Request, of *table) {
		busy := func() {
			w.Header().Set("Retry-After", askAgain)
			writeProblem(w, http.StatusTooManyRequests, "too many requests read at the same time: try again")
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

// session says who the client is, and what there is to see.
func (a *api) session(w http.ResponseWriter, request *http.Request) {
	if a.guard.wrongToken(w, request) { // else it would tell which are right
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
	writeJSON(w, http.StatusOK, map[string]any{"role": is.String(), "sources": names, "changeable": changeable, "logged_in": loggedIn})
}

// How long a count of a table is shown before it is counted again: at least so long, and so many
// times as long as counting took, so that a page that stays open costs little.
const (
	countedLasts = 2 * time.Second
	countedRest  = 20
)

// count returns what the table holds, counted a short while ago or now.
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
			return last // another request counts
		}
		select {
		case t.turn <- struct{}{}:
		case <-ctx.Done():
			return counted{err: ctx.Err(), at: time.Now()}
		}
	}
	defer func() { <-t.turn }()
	began := time.Now()
	now := t.Watch.lastCounted() // for the metrics, perhaps
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

// overview is the first look: what is wrong, what there is, and how it does.
func (a *api) overview(w http.ResponseWriter, request *http.Request, of *table) {
	c := a.hideCounted(of.count(request.Context()))
	answer := map[string]any{"source": of.Name, "problems": a.problems(of, c), "sinks": []sinkReport{}, "parked": append([]parkedGroup{}, c.parked.groups...)}
	if c.err == nil {
		answer["status"], answer["counted_at"] = NewReport(c.status), c.at
	}
	if of.Watch != nil {
		reports := append([]sinkReport{}, of.Watch.sinkReports(c.status.Controls)...)
		for i := range reports {
			reports[i].Detail = a.hideText(reports[i].Detail)
		}
		answer["sinks"] = reports
	}
	writeJSON(w, http.StatusOK, answer)
}

// history is the charts.
func (a *api) history(w http.ResponseWriter, _ *http.Request, of *table) {
	points := []Point{}
	if of.Watch != nil {
		points = append(points, of.Watch.History()...)
	}
	writeJSON(w, http.StatusOK, points)
}

// Bounds of a listing.
const (
	listedByDefault = 50
	mostListed      = 500
)

// messages lists messages by id, lowest first, without what they carry.
func (a *api) messages(w http.ResponseWriter, request *http.Request, of *table) {
	query := request.URL.Query()
	selection := operate.Selection{IDs: query["id"], Topic: query.Get("topic"), Key: query.Get("key"), Sink: query.Get("sink"), State: query.Get("state"), Since: query.Get("since"), Error: query.Get("error"), Holds: query.Get("holds") != ""}
	var err, limitErr error
	selection.Limit = listedByDefault
	if text := query.Get("limit"); text != "" {
		selection.Limit, limitErr = strconv.Atoi(text)
	}
	if text := query.Get("after"); text != "" {
		selection.After, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || limitErr != nil || selection.Limit < 1 || selection.Limit > mostListed {
		writeProblem(w, http.StatusBadRequest, fmt.Sprintf("after is an id, and limit a number from 1 to %d", mostListed))
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
	if query.Get("all") == "" && !filter.Holds { // those that hold keys are few, and may be behind very many
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
		Next     int64             `json:"next,omitempty"` // after, for the next page

		// LookedThrough: no more than about so many messages of each kind were looked at, so there
		// may be others; ?all=yes finds them, however long it takes.
		LookedThrough int `json:"looked_through,omitempty"`

		// LookedUntil: by a message's id rows were looked at up to this id, and there may be others above it;
		// ?after= goes on there, and ?all=yes looks for longer.
		LookedUntil int64 `json:"looked_until,omitempty"`
	}{Messages: []operate.Message{}}
	payloads := 0
	for _, info := range found {
		a.hideInfo(&info)
		answer.Messages = append(answer.Messages, operate.NewMessage(info))
		payloads += len(info.Message.Payload)
	}
	if len(found) >= selection.Limit || payloads >= storage.ListBytes { // a page of large ones is shorter
		answer.Next = found[len(found)-1].ID
	} else if len(selection.IDs) == 0 && selection.Selects() {
		answer.LookedThrough = filter.LookThrough
	}
	if !sought.All() {
		answer.LookedUntil = sought.Until
	}
	writeJSON(w, http.StatusOK, answer)
}

// errHiddenErrors: what an error has could be found out by searching for it.
var errHiddenErrors = errors.New("errors can't be searched here: they may repeat payloads, which are hidden")

// findPatience is for how long messages are looked for by their ids, beyond the rows that were written with them. The
// server gives up soon after the longer one.
func findPatience(query url.Values) time.Duration {
	if query.Get("all") != "" {
		return countTimeout
	}
	return operate.FindPatience
}

// mostPayload is how much of a payload is shown.
const mostPayload = 256 << 10

// shownMessage is a message with what it carries, as far as it is to be shown, and its failed attempts.
type shownMessage struct {
	operate.FullMessage
	PayloadBytes  int       `json:"payload_bytes"`
	PayloadCut    bool      `json:"payload_cut,omitempty"`    // there is more than is shown
	PayloadHidden bool      `json:"payload_hidden,omitempty"` // it wasn't asked for, or is never shown
	Attempted     []attempt `json:"attempted"`                // by this process, the first one first
	LookedUntil   int64     `json:"looked_until,omitempty"`   // the message may have more rows above this id, as a replay's copies
}

type attempt struct {
	At     time.Time `json:"at"`
	Sink   string    `json:"sink"`
	Number int       `json:"number"`
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`
	Became string    `json:"became"`
}

// message shows the rows of one message: several where its sinks differ.
func (a *api) message(w http.ResponseWriter, request *http.Request, of *table) {
	id := request.PathValue("id")
	filter, err := operate.Selection{IDs: []string{id}}.Filter("")
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	sought, err := of.Reads.Find(request.Context(), filter, findPatience(request.URL.Query()))
	if err != nil {
		a.failed(w, "read message "+id, err)
		return
	}
	found := sought.Infos
	if len(found) == 0 && !sought.All() {
		writeProblem(w, http.StatusNotFound, fmt.Sprintf("there is no message %s among the rows up to the id %d of %d: ?all=yes looks for longer, rowrelay messages show --all at all of them", id, sought.Until, sought.Last))
		return
	}
	if len(found) == 0 {
		writeProblem(w, http.StatusNotFound, "there is no message "+id)
		return
	}
	hide := a.options.HidePayloads || request.URL.Query().Get("payload") == "no"
	shown := []shownMessage{}
	for _, info := range found {
		each := shownMessage{PayloadBytes: len(info.Message.Payload), PayloadHidden: hide, PayloadCut: len(info.Message.Payload) > mostPayload, Attempted: []attempt{}}
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

// cutPayload is the beginning of a payload that is too long to be shown. A text stays one: it isn't cut within a character.
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

// actions is the log of what operators have done.
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

// noJob answers that a job isn't there, or whose it is.
func noJob(w http.ResponseWriter, err error) {
	if errors.Is(err, errElsewhere) {
		writeJSON(w, http.StatusConflict, map[string]any{"error": err.Error(), "elsewhere": true})
		return
	}
	writeProblem(w, http.StatusNotFound, err.Error())
}

// beginJob does something with many messages, or with one.
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
	by := author(request, asked.By)
	begun, err := a.jobs.begin(of.Name, asked, by, work(storage.Logged(of.Operator, by, asked.Reason, target)))
	if err != nil {
		writeProblem(w, http.StatusTooManyRequests, err.Error())
		return
	}
	a.jobs.answer(w, request, begun)
}

// work checks what is asked for, and says how it is done and what the log calls it.
func (a *api) work(ctx context.Context, of *table, asked *jobRequest) (work work, target string, err error) {
	switch {
	case len(asked.Reason) > 255 || len(asked.By) > 150:
		return nil, "", errors.New("who does it has at most 150 bytes, and the reason 255")
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
		return nil, "", errors.New("say which messages: by ids or filters, or all; not both")
	case asked.Rate < 0 || asked.Select.Limit != 0 || asked.Select.After != 0:
		return nil, "", errors.New("a rate isn't negative, and a job has neither limit nor after")
	case asked.To != "" && !a.hasSink(of, asked.To):
		return nil, "", fmt.Errorf("there is no sink %q", asked.To)
	}
	switch asked.Action {
	case operate.Requeue, operate.Skip, operate.Discard:
		if filter.State != "" && filter.State != storage.StateError && filter.State != storage.StateRetry {
			return nil, "", errors.New("only parked messages, those in state error, can be requeued, skipped or discarded, and those in state retry")
		}
		if filter.State == storage.StateRetry && (asked.To != "" || asked.InOrder) {
			return nil, "", errors.New("messages in state retry keep their sinks and their order: to and in_order are for parked ones")
		}
		if asked.To != "" && asked.Action != operate.Requeue || asked.Until != "" || asked.Name != "" {
			return nil, "", errors.New("to is for requeue and replay, until and name are for replay")
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
	return nil, "", fmt.Errorf("%.40q is no action: it is requeue, skip, discard or replay", asked.Action)
}

// workByPlan is work where another job has found the messages.
func (a *api) workByPlan(of *table, asked *jobRequest) (work work, target string, err error) {
	if asked.Action+asked.To+asked.Name+asked.Until != "" || asked.All || asked.Select.Selects() || asked.Preview || asked.InOrder || asked.Rate < 0 {
		return nil, "", errors.New("with a plan give nothing but the rate, by and the reason: the plan has the rest")
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

// sinks are those of the relay of this process.
func (t *table) sinks() []string {
	if t.Watch == nil {
		return nil
	}
	return slices.Collect(maps.Keys(t.Watch.sinks))
}

func (a *api) hasSink(of *table, name string) bool {
	return of.Watch != nil && of.Watch.sinks[name] != nil
}

// beginReplay stores a new replay, or has the one of the name go on.
func beginReplay(ctx context.Context, of *table, asked *jobRequest, filter storage.Filter) (storage.Replay, error) {
	if filter.State != "" && filter.State != storage.StateDone || filter.Error != "" || asked.Preview || asked.InOrder {
		return storage.Replay{}, errors.New("a replay is of delivered messages: it has no other state, no error, no preview and no order of its own")
	}
	until, err := operate.Moment("until", asked.Until)
	if err != nil {
		return storage.Replay{}, err
	}
	if len(filter.IDs) > operate.MostReplayIDs {
		return storage.Replay{}, fmt.Errorf("a replay names at most %d messages", operate.MostReplayIDs)
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
	asked.Name, asked.Select, asked.All = begun.Name, operate.Selection{}, false // asked again it goes on
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

// controlRequest is a pause or a limit that is to be put in force, or lifted.
type controlRequest struct {
	Kind   storage.ControlKind `json:"kind"`
	Name   string              `json:"name"`
	Rate   int                 `json:"rate,omitempty"`
	For    string              `json:"for,omitempty"` // how long; empty: until it is lifted
	By     string              `json:"by,omitempty"`
	Reason string              `json:"reason,omitempty"`
}

func (a *api) setControl(w http.ResponseWriter, request *http.Request, of *table) {
	var asked controlRequest
	if !readJSON(w, request, &asked) {
		return
	}
	control := storage.Control{Kind: asked.Kind, Name: asked.Name, Rate: asked.Rate, By: author(request, asked.By), Reason: asked.Reason}
	err := control.Validate()
	var lasts time.Duration
	if asked.For != "" && err == nil {
		var parsed any
		if parsed, err = (settings.Field{Type: settings.TypeDuration, Min: "1s", Max: "3650d"}).Parse(asked.For); err == nil {
			lasts = parsed.(time.Duration)
		} else {
			err = fmt.Errorf("for: %q is no duration such as 90m or 2d", asked.For)
		}
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := operate.SetControl(request.Context(), of.Operator, control, lasts, of.sinks()...); err != nil {
		if errors.Is(err, operate.ErrNoKeys) || errors.Is(err, operate.ErrUnknown) {
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
	control := storage.Control{Kind: asked.Kind, Name: asked.Name, Rate: 1, By: author(request, asked.By), Reason: asked.Reason}
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

// forget has the table counted anew when it is asked for next, as something was changed.
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

// author is who the log says it was.
func author(request *http.Request, by string) string {
	host, _, err := net.SplitHostPort(request.RemoteAddr)
	if err != nil {
		host = request.RemoteAddr
	}
	return strings.TrimSpace(cmp.Or(by, "admin")) + " from " + host
}

// mostBody is the longest body of a request.
const mostBody = 64 << 10

// readJSON reads a request strictly, or answers what is wrong with it. A form of another site
// can't be JSON.
func readJSON(w http.ResponseWriter, request *http.Request, into any) bool {
	kind, _, err := mime.ParseMediaType(request.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		writeProblem(w, http.StatusUnsupportedMediaType, "send application/json")
		return false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, mostBody))
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err == nil {
		err = decoder.Decode(into)
	}
	if err == nil && decoder.Decode(&struct{}{}) != io.EOF {
		err = errors.New("there is more than one value")
	}
	if err == nil && (!utf8.Valid(body) || bytes.Contains(body, []byte(`\u0000`))) { // which databases refuse
		err = errors.New("it isn't UTF-8, or has a zero character")
	}
	if err != nil {
		writeProblem(w, http.StatusBadRequest, "the body isn't what is expected: "+err.Error())
		return false
	}
	return true
}

// failed answers that the database didn't do it. Its own words are for operators as well.
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
