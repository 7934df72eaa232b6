package operate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Errors about the name of a replay.
var (
	ErrNoReplay      = errors.New("the replay doesn't exist")
	ErrReplayIsThere = errors.New("a replay of this name exists already")
)

var replayName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,22}$`)

// MostReplayIDs is the maximum number of ids of a replay. This number of ids fits into the row that stores the replay, on
// every database.
const MostReplayIDs = 50

// CheckReplayName returns an error if the name of a replay is invalid.
func CheckReplayName(name string) error {
	if !replayName.MatchString(name) {
		return fmt.Errorf("%.40q isn't a valid name of a replay: use at most 23 lower-case letters, digits, dots, hyphens and underscores", name)
	}
	return nil
}

// NameReplay returns the default name of a replay, which is the current time.
func NameReplay(now time.Time) string { return now.UTC().Format("20060102-150405") }

// FindReplay returns the replay with the name, or nil if no replay has it.
func FindReplay(ctx context.Context, operator storage.Operator, name string) (*storage.Replay, error) {
	known, err := operator.Replays(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for the replay %s: %w", name, err)
	}
	if at := slices.IndexFunc(known, func(replay storage.Replay) bool { return replay.Name == name }); at >= 0 {
		return &known[at], nil
	}
	return nil, nil
}

// BeginReplay stores a new replay if isNew is true. Otherwise it loads the stored replay with the name, to continue it. If
// newRate is true, the stored replay gets the rate of the given replay. BeginReplay returns
// [ErrReplayIsThere] if a new replay has the name of a stored one, and [ErrNoReplay] if no stored replay has the name.
func BeginReplay(ctx context.Context, operator storage.Operator, replay storage.Replay, isNew, newRate bool) (storage.Replay, error) {
	known, err := FindReplay(ctx, operator, replay.Name)
	switch {
	case err != nil:
		return replay, err
	case known == nil && !isNew:
		return replay, ErrNoReplay
	case known != nil && isNew:
		return replay, ErrReplayIsThere
	case known == nil:
		replay, err = operator.StoreReplay(ctx, nil, replay)
	default:
		is := *known
		is.Stopped = false
		if newRate {
			is.Rate = replay.Rate
		}
		replay = is
		if is.Stopped != known.Stopped || is.Rate != known.Rate {
			_, err = operator.StoreReplay(ctx, known, is)
		}
	}
	if err != nil {
		return replay, fmt.Errorf("start the replay %s: %w", replay.Name, err)
	}
	return replay, nil
}

// StopReplay stops a replay, whichever process carries it out. That process may write more copies before it notices the stop.
func StopReplay(ctx context.Context, operator storage.Operator, name string) (storage.Replay, error) {
	for {
		known, err := FindReplay(ctx, operator, name)
		if err != nil {
			return storage.Replay{}, err
		}
		if known == nil {
			return storage.Replay{}, ErrNoReplay
		}
		is := *known
		is.Stopped = true
		if !known.Stopped && !known.Finished {
			_, err = operator.StoreReplay(ctx, known, is)
		}
		if err == nil {
			return is, nil
		}
		if !errors.Is(err, storage.ErrReplayChanged) {
			return is, fmt.Errorf("stop the replay %s: %w", name, err)
		}
	}
}

// ReplayState returns "finished", "stopped" or "unfinished".
func ReplayState(replay storage.Replay) string {
	switch {
	case replay.Finished:
		return "finished"
	case replay.Stopped:
		return "stopped"
	default:
		return "unfinished"
	}
}

// Replaying carries out a replay.
type Replaying struct {
	Replay   storage.Replay
	Progress func(storage.Replay) // called after each step; may be nil
	Waits    func(storage.Replay) // called once per wait that lasts longer than 5 s; may be nil

	outstanding []copied
}

// copied has the copies that one step has written, and how many of them were pending at the last count.
type copied struct {
	rows    []storage.RowID
	pending int
	at      time.Time
}

// These constants keep a replay from delaying other messages for long. mostLately and mostEver limit the number of pending
// copies. Each is a duration: the limit is the number of copies that the replay writes during this time at its rate.
const (
	stepsASecond = 10
	mostAStep    = 200

	// mostLately limits the pending copies that were written within the last 5 s (lately). New messages are delivered
	// after these copies, so they are delayed by about mostLately at most.
	mostLately = 200 * time.Millisecond

	// mostEver limits all pending copies. If a copy is pending for longer than 5 s (lately), its key is blocked or its sink
	// is down, so it doesn't delay other messages. mostEver keeps the replay from filling the table during an outage.
	lately   = 5 * time.Second
	mostEver = 2 * time.Second

	waitingPause = 50 * time.Millisecond
)

// Run writes copies until the replay is finished or stopped.
func (r *Replaying) Run(ctx context.Context, operator storage.Operator) error {
	size := min(mostAStep, max(1, r.Replay.Rate/stepsASecond))
	pace := newPace(r.Replay.Rate)
	for !r.Replay.Finished && !r.Replay.Stopped {
		due := pace.due()
		if err := r.wait(ctx, operator, size, due); err != nil {
			return err
		}
		if late := time.Since(due); late > time.Second { // after a long wait, continue at the usual rate, without catching up
			pace.start = pace.start.Add(late)
		}
		is, rows, err := operator.Replay(ctx, r.Replay, size)
		switch {
		case errors.Is(err, storage.ErrReplayChanged):
			known, err := FindReplay(ctx, operator, r.Replay.Name)
			if err != nil {
				return err
			}
			if known == nil {
				return ErrNoReplay
			}
			r.Replay = *known
			continue
		case err != nil:
			return err
		}
		r.Replay = is
		pace.done += len(rows)
		if len(rows) > 0 {
			r.outstanding = append(r.outstanding, copied{rows, len(rows), time.Now()})
		}
		if r.Progress != nil {
			r.Progress(r.Replay)
		}
	}
	return nil
}

// wait waits until the next step is due and tooManyPending returns false.
func (r *Replaying) wait(ctx context.Context, operator storage.Operator, size int, due time.Time) error {
	if err := sleep(ctx, time.Until(due)); err != nil {
		return err
	}
	for reported := false; r.tooManyPending(size); {
		for i := range r.outstanding {
			pending, err := operator.CountPending(ctx, r.outstanding[i].rows)
			if err != nil {
				return err
			}
			r.outstanding[i].pending = pending
		}
		r.outstanding = slices.DeleteFunc(r.outstanding, func(c copied) bool { return c.pending == 0 })
		if !r.tooManyPending(size) {
			return nil
		}
		if !reported && r.Waits != nil && time.Since(due) > lately {
			reported = true
			r.Waits(r.Replay)
		}
		if err := sleep(ctx, waitingPause); err != nil {
			return err
		}
	}
	return nil
}

// tooManyPending reports whether another step of this size must wait, because too many copies are
// pending.
func (r *Replaying) tooManyPending(size int) bool {
	ever, late := 0, 0
	for _, c := range r.outstanding {
		ever += c.pending
		if time.Since(c.at) < lately {
			late += c.pending
		}
	}
	return late >= max(size, int(float64(r.Replay.Rate)*mostLately.Seconds())) || ever >= max(size, int(float64(r.Replay.Rate)*mostEver.Seconds()))
}
