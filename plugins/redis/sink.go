package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// sink adds messages to streams.
type sink struct {
	server    server
	stream    settings.Template
	maxLength int64         // 0: doesn't trim by length
	maxAge    time.Duration // 0: doesn't trim by age
	remember  time.Duration // how long the server remembers ids; 0: not at all
	replicas  int           // the number of replicas that must have received a message
	window    int
	redactor  settings.Redactor

	link *link // set by Open; nil if the sink isn't open
}

// Open connects if the sink isn't connected, and checks that the server answers.
func (s *sink) Open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.server.timeout)
	defer cancel()
	if s.link == nil {
		s.link = dial(s.server)
	}
	stop := context.AfterFunc(ctx, s.link.cut)
	defer stop()
	err := s.link.ping(ctx)
	if err == nil {
		return nil
	}
	s.drop()
	return &sinks.OpenError{Reason: reasonToOpen(err), Detail: s.redactor.Present("connect to Redis: "+err.Error(), maxDetail)}
}

const maxDetail = 500

// Close ends the connections.
func (s *sink) Close(context.Context) error {
	s.drop()
	return nil
}

func (s *sink) drop() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}

// Destination describes the server.
func (s *sink) Destination() string {
	return strings.TrimSpace("redis " + strings.Join(s.server.addresses, ",") + " " + s.server.master)
}

// Order returns sinks.OrderPrefix: a message is sent only after the server has added the previous message of its key.
func (s *sink) Order() sinks.Order { return sinks.OrderPrefix }

// Send sends the batch in rounds. A round has at most one message of each key, so that a message is added only after
// all earlier messages of its key. If the context ends before the server has answered, Send closes all connections, so that
// the client sends nothing later.
func (s *sink) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	if s.link == nil {
		return sinks.All(len(batch), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "not connected to Redis"))
	}
	r := &run{sink: s, batch: batch, outcomes: make([]sinks.Outcome, len(batch)), stopped: map[string]bool{}}
	if ctx.Err() == nil {
		stop := context.AfterFunc(ctx, s.link.cut)
		defer stop()
	}
	for left := indexes(len(batch)); len(left) > 0; {
		var now []int
		now, left = r.choose(left)
		r.send(ctx, now)
	}
	return r.outcomes
}

func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// run is the state of one Send.
type run struct {
	sink     *sink
	batch    []sinks.Message
	outcomes []sinks.Outcome
	stopped  map[string]bool // keys with a message that was not delivered
	down     bool            // the server is unavailable
}

// choose divides the remaining messages into the messages of the next round and the messages for later rounds.
// Messages that must no longer be sent get their outcome here.
func (r *run) choose(left []int) (now, later []int) {
	chosen := map[string]bool{}
	for _, i := range left {
		key := r.batch[i].Key
		switch {
		case r.down || r.stopped[key]:
			r.outcomes[i] = sinks.Blocked()
		case len(now) == r.sink.window || chosen[key]:
			later = append(later, i)
		default:
			chosen[key] = key != ""
			now = append(now, i)
		}
	}
	return now, later
}

// send sends the messages of a round, in one pipeline for each node.
func (r *run) send(ctx context.Context, round []int) {
	nodes := map[*redis.Client][]entry{}
	for _, i := range round {
		e, node, o := r.sink.prepare(ctx, r.sink.link, &r.batch[i])
		if node == nil {
			r.outcomes[i] = o
			continue
		}
		e.index = i
		nodes[node] = append(nodes[node], e)
	}
	var all sync.WaitGroup
	for node, entries := range nodes {
		all.Go(func() {
			for i, err := range r.sink.add(ctx, node, entries) {
				r.outcomes[entries[i].index] = r.sink.outcome(ctx, &r.batch[entries[i].index], entries[i], err)
			}
		})
	}
	all.Wait()
	for _, i := range round {
		r.down = r.down || r.outcomes[i].Result == sinks.Unavailable
		if key := r.batch[i].Key; key != "" && r.outcomes[i].Result != sinks.Delivered {
			r.stopped[key] = true
		}
	}
}

// entry is a stream entry with one message.
type entry struct {
	index  int // the index of the message in the batch
	stream string
	values []any  // the fields: name, value, name, value, …
	marker string // the key by which the server remembers the message; empty without duplicate_window
	id     string // the entry's id, after the server has added it
}

// prepare encodes a message and finds the node that has its stream. If it returns no node, the message can't be
// sent, and the last result is its outcome.
func (s *sink) prepare(ctx context.Context, link *link, m *sinks.Message) (entry, *redis.Client, sinks.Outcome) {
	if ctx.Err() != nil {
		return entry{}, nil, sinks.Cancelled()
	}
	e, err := s.encode(m)
	if err != nil {
		return entry{}, nil, sinks.Fail(sinks.Reject, sinks.ReasonInvalid, err.Error())
	}
	node, err := link.node(ctx, e.stream)
	if err != nil {
		return entry{}, nil, s.outcome(ctx, m, e, unreached{fmt.Errorf("find the node of the stream: %w", err)})
	}
	return e, node, sinks.Outcome{}
}

// appendSource is a script that adds an entry, unless the server remembers the marker. It returns the
// entry's id in both cases.
const appendSource = `
local known = redis.call('GET', KEYS[2])
if known then return known end
local id = redis.call('XADD', KEYS[1], unpack(ARGV, 2))
redis.call('SET', KEYS[2], id, 'PX', ARGV[1])
return id`

var appendOnce = redis.NewScript(appendSource)

// add adds the entries in one pipeline, sets their ids, and returns an error or nil for each entry.
func (s *sink) add(ctx context.Context, node *redis.Client, entries []entry) []error {
	errs := make([]error, len(entries))
	for _, eval := range []string{"EVALSHA", "EVAL"} { // EVALSHA does nothing if the server doesn't have the script
		pipe, answers := node.Pipeline(), make([]*redis.Cmd, len(entries))
		for i, e := range entries {
			if eval == "EVALSHA" || redis.HasErrorPrefix(errs[i], "NOSCRIPT") {
				answers[i] = pipe.Do(ctx, s.command(eval, e)...)
			}
		}
		var waited *redis.Cmd
		if s.replicas > 0 {
			waited = pipe.Do(ctx, "WAIT", s.replicas, waitFor.Milliseconds())
		}
		_, _ = pipe.Exec(ctx)
		missing := false
		for i, answer := range answers {
			if answer == nil {
				continue
			}
			entries[i].id, errs[i] = answer.Text()
			missing = missing || redis.HasErrorPrefix(errs[i], "NOSCRIPT")
			if errs[i] == nil && waited != nil {
				errs[i] = replicated(waited, s.replicas)
			}
		}
		if !missing {
			break
		}
	}
	return errs
}

// waitFor limits how long the server waits for its replicas.
const waitFor = 2 * time.Second

// replicated returns an error if too few replicas have received the entries.
func replicated(waited *redis.Cmd, replicas int) error {
	has, err := waited.Int64()
	if err == nil && has < int64(replicas) {
		err = fmt.Errorf("only %d of %d replicas have received the entry in time", has, replicas)
	}
	if err != nil {
		return unreplicated{err}
	}
	return nil
}

// unreplicated is the error if the server has added an entry, but too few replicas may have received it.
type unreplicated struct{ error }

// command returns the name and the arguments of the command that adds an entry.
func (s *sink) command(eval string, e entry) []any {
	xadd := make([]any, 0, len(e.values)+5)
	switch {
	case s.maxLength > 0:
		xadd = append(xadd, "MAXLEN", "~", s.maxLength)
	case s.maxAge > 0:
		xadd = append(xadd, "MINID", "~", time.Now().Add(-s.maxAge).UnixMilli())
	}
	xadd = append(append(xadd, "*"), e.values...)
	if e.marker == "" {
		return append([]any{"XADD", e.stream}, xadd...)
	}
	script := appendOnce.Hash()
	if eval == "EVAL" {
		script = appendSource
	}
	return append([]any{eval, script, 2, e.stream, e.marker, strconv.FormatInt(s.remember.Milliseconds(), 10)}, xadd...)
}
