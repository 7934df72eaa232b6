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
	jobLooks   = "looking" // searching for messages
	jobRuns    = "running"
	jobDone    = "done"
	jobStopped = "stopped" // by an operator, or because the server stopped
	jobFailed  = "failed"
)

// job is an operation of this process on many messages.
type job struct {
	ID      string     `json:"id"`
	Source  string     `json:"source"`
	Request jobRequest `json:"request"`
	By      string     `json:"by"`
	State   string     `json:"state"`
	Error   string     `json:"error,omitempty"`
	Began   time.Time  `json:"began"`
	Ended   time.Time  `json:"ended,omitzero"`
	Total   int        `json:"total"` // number of messages to change; 0 for a replay, whose total is unknown
	Done    int        `json:"done"`

	// These fields are set for jobs that requeue, skip or discard.
	Topics    []operate.TopicCount `json:"topics,omitempty"`
	Overtaken int                  `json:"overtaken,omitempty"` // messages that were overtaken: a later message of the same key was delivered
	Left      int                  `json:"left,omitempty"`      // overtaken messages that stay parked
	Unfit     int                  `json:"unfit,omitempty"`     // messages that the action can't change

	Replay *storage.Replay `json:"replay,omitempty"`

	stop    context.CancelFunc
	ended   chan struct{}
	planned *planned // the plan of a preview, or of a job that did not finish; another job can carry it out
}

// planned is the plan of a job. The plan also records which messages have been changed.
type planned struct {
	bulk operate.Bulk
	plan operate.Plan
}

// jobRequest is a request for a job. The job carries out the plan of another job, or it requeues, skips, discards or replays
// messages. Requeue, skip and discard change parked messages or, if the selection's state is retry, messages that wait for their next
// attempt.
type jobRequest struct {
	// Plan is the id of a preview, or of a job that did not finish. The new job changes exactly the messages that the other job
	// found and has not changed. It takes the values of action, select, to and in_order from the other job.
	Plan string `json:"plan,omitempty"`

	Action  string            `json:"action"`
	Select  operate.Selection `json:"select"`
	All     bool              `json:"all,omitempty"`      // select every message, without ids and filters
	Preview bool              `json:"preview,omitempty"`  // change nothing
	Rate    int               `json:"rate,omitempty"`     // messages per second; 0 means no limit
	To      string            `json:"to,omitempty"`       // send to this sink instead of the messages' own sinks
	InOrder bool              `json:"in_order,omitempty"` // leave overtaken messages parked

	// Name and Until are used only in replays. In a replay, Until and Select.Since apply to the time of delivery.
	Name  string `json:"name,omitempty"`
	Until string `json:"until,omitempty"`

	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Bounds of jobs.
const (
	mostJobs    = 50              // jobs in the list
	mostRunning = 8               // jobs that run
	mostPlans   = 10              // plans in memory
	quickJob    = 2 * time.Second // how long a request waits for its job to end
)

// task is the work of a job. It calls show to update the job.
type task func(ctx context.Context, show func(func(*job))) error

// work returns a job's task, which changes messages through the given operator.
type work func(storage.Operator) task

// jobs has the jobs of this process.
type jobs struct {
	process string // identifies this process in the ids of its jobs
	mu      sync.Mutex
	ctx     context.Context // ends when the State is closed
	list    []*job          // the oldest first
	last    int
	working sync.WaitGroup
}

var errNoPlan = errors.New("the plan of this job doesn't exist any more: only the plans of the last previews and of the last unfinished jobs are kept. Request a new preview")

// plan returns the request and the plan of a job of the source. The plan is nil if the job or its plan doesn't exist.
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

// forgetPlans keeps only the newest mostPlans plans. A plan stores ranges of ids, so it takes megabytes if its messages' ids are not
// consecutive. The caller holds mu.
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

var errTooManyJobs = fmt.Errorf("%d jobs are running: stop one, or wait", mostRunning)

// begin starts a job. It calls the job's task with a context that ends when the job must stop, and with
// a function that updates the job.
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
		return nil, errors.New("the server is stopping")
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

// Errors of find.
var (
	errNoJob     = errors.New("the job doesn't exist")
	errElsewhere = errors.New("the job belongs to another process")
)

// find returns the job with the id.
func (j *jobs) find(id string) (job, error) {
	if found := j.shown(id); id != "" && len(found) > 0 {
		return found[0], nil
	}
	if _, process, named := strings.Cut(id, "."); named && process != j.process {
		return job{}, fmt.Errorf("%w, %s: send the request to that process; if both processes have the same address, send it again", errElsewhere, process)
	}
	return job{}, errNoJob
}

// shown returns copies of the jobs, newest first. If id isn't empty, it returns only the job with that id.
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

// answer responds with the job when it has ended, or after quickJob.
func (j *jobs) answer(w http.ResponseWriter, request *http.Request, begun *job) {
	select {
	case <-begun.ended:
	case <-time.After(quickJob):
	case <-request.Context().Done():
	}
	writeJSON(w, http.StatusAccepted, j.shown(begun.ID)[0])
}

// bulk returns a task that finds messages and, unless it is a preview, changes them.
func bulk(table storage.Operator, b operate.Bulk, preview bool) task {
	return func(ctx context.Context, show func(func(*job))) error {
		plan, err := b.Plan(ctx, table)
		if err != nil {
			return err
		}
		found := planned{bulk: b, plan: *plan}
		if preview {
			show(func(j *job) { j.showPlan(plan); j.planned = &found })
			return nil
		}
		return carryOut(table, found)(ctx, show)
	}
}

// carryOut returns a task that changes the messages of a plan that have not been changed yet.
func carryOut(table storage.Operator, found planned) task {
	return func(ctx context.Context, show func(func(*job))) error {
		show(func(j *job) { j.showPlan(&found.plan) })
		done, err := found.bulk.Run(ctx, table, &found.plan, func(done int) { show(func(j *job) { j.Done = done }) })
		show(func(j *job) {
			if j.Done = done; err != nil {
				j.planned = &found
			}
		})
		return err
	}
}

// showPlan copies the counts of a plan to the job.
func (j *job) showPlan(plan *operate.Plan) {
	j.State, j.Total, j.Topics, j.Overtaken, j.Left, j.Unfit = jobRuns, plan.Rest(), plan.Topics, plan.Overtaken, plan.Left.Len(), plan.Unfit
}

// replay returns a task that sends delivered messages again.
func replay(table storage.Operator, begun storage.Replay) task {
	return func(ctx context.Context, show func(func(*job))) error {
		update := func(is storage.Replay) {
			show(func(j *job) { j.State, j.Done, j.Replay = jobRuns, int(is.Written), &is })
		}
		update(begun)
		work := operate.Replaying{Replay: begun, Progress: update}
		err := work.Run(ctx, table)
		update(work.Replay)
		if work.Replay.Stopped {
			show(func(j *job) { j.State = jobStopped })
		}
		return err
	}
}
