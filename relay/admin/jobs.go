package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// States of a job.
const (
	jobLooks   = "looking" // for what it is to do
	jobRuns    = "running"
	jobDone    = "done"
	jobStopped = "stopped" // by an operator; or the server was
	jobFailed  = "failed"
)

// job is work of this process that may take long.
type job struct {
	ID      string     `json:"id"`
	Source  string     `json:"source"`
	Request jobRequest `json:"request"` // asked again, it goes on with the rest
	By      string     `json:"by"`
	State   string     `json:"state"`
	Error   string     `json:"error,omitempty"`
	Began   time.Time  `json:"began"`
	Ended   time.Time  `json:"ended,omitzero"`
	Total   int        `json:"total"` // messages; of a replay 0, as nobody knows
	Done    int        `json:"done"`

	// Of parked messages.
	Topics    []operate.TopicCount `json:"topics,omitempty"`
	Overtaken int                  `json:"overtaken,omitempty"` // later messages of their keys were delivered
	Left      int                  `json:"left,omitempty"`      // of these stay parked
	Unfit     int                  `json:"unfit,omitempty"`     // the action isn't for them

	Replay *storage.Replay `json:"replay,omitempty"`

	stop    context.CancelFunc
	ended   chan struct{}
	planned *planned // of a preview and of a job that did not finish: what a request with its id as the plan carries out
}

// planned is what a bulk job found, and how much of it was done.
type planned struct {
	bulk operate.Bulk
	plan operate.Plan
}

// jobRequest is what is to be done: the plan of another job; or requeue, skip or discard with parked messages or, as the selection's
// state says, with those that wait for their next attempt (retry); or replay.
type jobRequest struct {
	// Plan is the id of a preview, or of a job that did not finish. Exactly the messages that it found are changed, or the
	// rest of them. The action, the selection, to and in_order are that job's.
	Plan string `json:"plan,omitempty"`

	Action  string            `json:"action"`
	Select  operate.Selection `json:"select"`
	All     bool              `json:"all,omitempty"`      // without ids and filters: every one
	Preview bool              `json:"preview,omitempty"`  // change nothing
	Rate    int               `json:"rate,omitempty"`     // messages a second; 0 is no bound
	To      string            `json:"to,omitempty"`       // this sink instead of their own
	InOrder bool              `json:"in_order,omitempty"` // those that were overtaken stay parked

	// Of a replay. Since and Until are about when messages were delivered.
	Name  string `json:"name,omitempty"`
	Until string `json:"until,omitempty"`

	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Bounds of jobs.
const (
	mostJobs    = 50 // that are remembered
	mostRunning = 8
	mostPlans   = 10              // that are kept
	quickJob    = 2 * time.Second // an answer waits so long for a job that is soon over
)

// task is the work of a job: it shows on the job how far it is.
type task func(ctx context.Context, show func(func(*job))) error

// work makes the task, which changes messages by this operator.
type work func(storage.Operator) task

// jobs are those of this process.
type jobs struct {
	process string // of which the ids are
	mu      sync.Mutex
	ctx     context.Context // over when the server is
	list    []*job          // the first one first
	last    int
	working sync.WaitGroup
}

var errNoPlan = errors.New("the plan of this job is gone: plans are kept of the last previews and of the last jobs that did not finish. Ask for a new preview")

// plan returns what a job of the source has found. It returns nil if that is not known, or if all of it was done.
func (j *jobs) plan(id, source string) (jobRequest, *planned) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, each := range j.list {
		if each.ID == id && each.Source == source && !each.Ended.IsZero() && each.planned != nil {
			return each.Request, each.planned
		}
	}
	return jobRequest{}, nil
}

// forgetPlans keeps the last plans, as those of scattered messages take megabytes. It is called with mu held.
func (j *jobs) forgetPlans() {
	kept := 0
	for _, each := range slices.Backward(j.list) {
		if each.planned != nil {
			if kept++; kept > mostPlans {
				each.planned = nil
			}
		}
	}
}

var errTooManyJobs = fmt.Errorf("%d jobs run already: stop one, or wait", mostRunning)

// begin starts a job; work gets a context that is over when it is to stop, and a function by which
// it changes what is shown of the job.
func (j *jobs) begin(source string, request jobRequest, by string, work task) (*job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := 0
	for _, each := range j.list {
		if each.Ended.IsZero() {
			running++
		}
	}
	if running >= mostRunning {
		return nil, errTooManyJobs
	}
	if err := j.ctx.Err(); err != nil {
		return nil, errors.New("the server stops")
	}
	ctx, stop := context.WithCancel(j.ctx)
	j.last++
	begun := &job{ID: strconv.Itoa(j.last) + "." + j.process, Source: source, Request: request, By: by, State: jobLooks, Began: time.Now(), stop: stop, ended: make(chan struct{})}
	if len(j.list) >= mostJobs {
		if old := slices.IndexFunc(j.list, func(each *job) bool { return !each.Ended.IsZero() }); old >= 0 {
			j.list = slices.Delete(j.list, old, old+1)
		}
	}
	j.list = append(j.list, begun)
	j.forgetPlans()
	j.working.Go(func() {
		defer close(begun.ended)
		defer stop()
		err := work(ctx, func(change func(*job)) {
			j.mu.Lock()
			defer j.mu.Unlock()
			change(begun)
		})
		j.mu.Lock()
		defer j.mu.Unlock()
		begun.Ended = time.Now()
		switch {
		case ctx.Err() != nil && err != nil:
			begun.State = jobStopped
		case err != nil:
			begun.State, begun.Error = jobFailed, err.Error()
		case begun.State != jobStopped:
			begun.State = jobDone
		}
	})
	return begun, nil
}

// Why a job isn't shown.
var (
	errNoJob     = errors.New("there is no such job")
	errElsewhere = errors.New("this job is of another process")
)

// find returns the job with the id.
func (j *jobs) find(id string) (job, error) {
	if found := j.shown(id); id != "" && len(found) > 0 {
		return found[0], nil
	}
	if _, process, named := strings.Cut(id, "."); named && process != j.process {
		return job{}, fmt.Errorf("%w, %s: ask there, or again if both have one address", errElsewhere, process)
	}
	return job{}, errNoJob
}

// shown are copies of the jobs, the last one first; of one with the id only that.
func (j *jobs) shown(id string) []job {
	j.mu.Lock()
	defer j.mu.Unlock()
	shown := []job{}
	for _, each := range slices.Backward(j.list) {
		if id == "" || each.ID == id {
			shown = append(shown, *each)
		}
	}
	return shown
}

// answer shows a job once it is over, or after a short while as it is then.
func (j *jobs) answer(w http.ResponseWriter, request *http.Request, begun *job) {
	select {
	case <-begun.ended:
	case <-time.After(quickJob):
	case <-request.Context().Done():
	}
	writeJSON(w, http.StatusAccepted, j.shown(begun.ID)[0])
}

// bulk is the job of finding parked messages and, unless it is a preview, of changing them.
func bulk(table storage.Operator, b operate.Bulk, preview bool) task {
	return func(ctx context.Context, show func(func(*job))) error {
		plan, err := b.Plan(ctx, table)
		if err != nil {
			return err
		}
		found := planned{bulk: b, plan: *plan}
		if preview {
			show(func(j *job) { j.tell(plan); j.planned = &found })
			return nil
		}
		return carryOut(table, found)(ctx, show)
	}
}

// carryOut is the job of changing what was found, or the rest of it.
func carryOut(table storage.Operator, found planned) task {
	return func(ctx context.Context, show func(func(*job))) error {
		show(func(j *job) { j.tell(&found.plan) })
		done, err := found.bulk.Run(ctx, table, &found.plan, func(done int) { show(func(j *job) { j.Done = done }) })
		show(func(j *job) {
			if j.Done = done; err != nil {
				j.planned = &found
			}
		})
		return err
	}
}

func (j *job) tell(plan *operate.Plan) {
	j.State, j.Total, j.Topics, j.Overtaken, j.Left, j.Unfit = jobRuns, plan.Rest(), plan.Topics, plan.Overtaken, plan.Left.Len(), plan.Unfit
}

// replay is the job of sending delivered messages again.
func replay(table storage.Operator, begun storage.Replay) task {
	return func(ctx context.Context, show func(func(*job))) error {
		tell := func(is storage.Replay) {
			show(func(j *job) { j.State, j.Done, j.Replay = jobRuns, int(is.Written), &is })
		}
		tell(begun)
		work := operate.Replaying{Replay: begun, Progress: tell}
		err := work.Run(ctx, table)
		tell(work.Replay)
		if work.Replay.Stopped {
			show(func(j *job) { j.State = jobStopped })
		}
		return err
	}
}
