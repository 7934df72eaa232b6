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
	ErrNoReplay      = errors.New("there is no such replay")
	ErrReplayIsThere = errors.New("there is a replay of this name already")
)

var replayName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,22}$`)

// MostReplayIDs fit into the line that a replay is stored as, on every database.
const MostReplayIDs = 50

// CheckReplayName says what is wrong with the name of a replay.
func CheckReplayName(name string) error {
	if !replayName.MatchString(name) {
		return fmt.Errorf("%.40q is no name of a replay: at most 23 small letters, digits, dots, hyphens and underscores", name)
	}
	return nil
}

// NameReplay is the name of a replay that nobody has named.
func NameReplay(now time.Time) string { return now.UTC().Format("20060102-150405") }

// FindReplay returns what is known of the replay with the name; nil if there is none.
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

// BeginReplay stores a new replay; or has an old one go on, at this one's rate if newRate says so.
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
		return replay, fmt.Errorf("begin the replay %s: %w", replay.Name, err)
	}
	return replay, nil
}

// StopReplay has a replay end wherever it is carried out. It may go on in between.
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

// ReplayState is a replay's in a word or two.
func ReplayState(replay storage.Replay) string {
	switch {
	case replay.Finished:
		return "finished"
	case replay.Stopped:
		return "stopped"
	default:
		return "goes on"
	}
}

// Replaying is a replay at work.
type Replaying struct {
	Replay   storage.Replay
	Progress func(storage.Replay) // after each step; may be nil
	Waits    func(storage.Replay) // once, where earlier copies aren't delivered for long; may be nil

	outstanding []copied
}

// copied are copies that were written together, and how many of them were pending when last
// asked.
type copied struct {
	rows    []storage.RowID
	pending int
	at      time.Time
}

// How a replay keeps out of the way of other messages. The bounds are times at its rate.
const (
	stepsASecond = 10
	mostAStep    = 200

	// Of the copies that were written lately no more are pending than in this time. They stand
	// before messages that are new, so this is about how much later these are.
	mostLately = 200 * time.Millisecond

	// What is pending for longer waits for its key, or its sink is down. It isn't in the way, up
	// to this much: an outage doesn't fill the table.
	lately   = 5 * time.Second
	mostEver = 2 * time.Second

	waitingPause = 50 * time.Millisecond
)

// Run writes copies until there are no more, or it is stopped.
func (r *Replaying) Run(ctx context.Context, operator storage.Operator) error {
	size := min(mostAStep, max(1, r.Replay.Rate/stepsASecond))
	pace := newPace(r.Replay.Rate)
	for !r.Replay.Finished && !r.Replay.Stopped {
		due := pace.due()
		if err := r.wait(ctx, operator, size, due); err != nil {
			return err
		}
		if late := time.Since(due); late > time.Second { // it waited, and doesn't make up for it
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

// wait waits until it is time for the next step, and the earlier ones are out of the way.
func (r *Replaying) wait(ctx context.Context, operator storage.Operator, size int, due time.Time) error {
	if err := sleep(ctx, time.Until(due)); err != nil {
		return err
	}
	for told := false; r.inTheWay(size); {
		for i := range r.outstanding {
			pending, err := operator.CountPending(ctx, r.outstanding[i].rows)
			if err != nil {
				return err
			}
			r.outstanding[i].pending = pending
		}
		r.outstanding = slices.DeleteFunc(r.outstanding, func(c copied) bool { return c.pending == 0 })
		if !r.inTheWay(size) {
			return nil
		}
		if !told && r.Waits != nil && time.Since(due) > lately {
			told = true
			r.Waits(r.Replay)
		}
		if err := sleep(ctx, waitingPause); err != nil {
			return err
		}
	}
	return nil
}

// inTheWay says that too many copies are pending for another step.
func (r *Replaying) inTheWay(size int) bool {
	ever, late := 0, 0
	for _, c := range r.outstanding {
		ever += c.pending
		if time.Since(c.at) < lately {
			late += c.pending
		}
	}
	return late >= max(size, int(float64(r.Replay.Rate)*mostLately.Seconds())) || ever >= max(size, int(float64(r.Replay.Rate)*mostEver.Seconds()))
}
