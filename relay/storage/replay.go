package storage

import (
	"context"
	"errors"
	"time"
)

// ErrReplayChanged means that a replay isn't what it is said to be: another has begun one of
// its name, has gone on with it, or has stopped it.
var ErrReplayChanged = errors.New("the replay was changed by another")

// ReplayedHeader is the name of the header that a copy has beside those of its message: the
// replay's name.
const ReplayedHeader = "rowrelay-replayed"

// Replay sends delivered messages again, as far as the table has them still. It is stored in the
// table's settings, and changed with the copies that it writes, in one transaction: so whoever
// goes on with it leaves none out, and writes none twice.
type Replay struct {
	Name string `json:"-"`

	// Which messages: those that match all of these that are set. Since and Until are about
	// the time when they were delivered: at or after the one, and before the other.
	IDs   []string  `json:"ids,omitempty"` // as in a Filter
	Topic string    `json:"topic,omitempty"`
	Key   string    `json:"key,omitempty"`
	Sink  string    `json:"sink,omitempty"` // as in a Filter
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// To is the sink that gets the copies; empty: those that their messages name, or else all of
	// the topic.
	To string `json:"to,omitempty"`

	// Rate is how many a second are wanted. A store only keeps it.
	Rate int `json:"rate,omitempty"`

	UntilID  int64 `json:"until_id"`           // the last that was delivered when it began: no copy is replayed
	AfterID  int64 `json:"after_id,omitempty"` // as far as it has come
	Written  int64 `json:"written,omitempty"`  // so many copies
	Refused  int64 `json:"refused,omitempty"`  // messages that were passed over, as the table's constraints refuse their copies
	Stopped  bool  `json:"stopped,omitempty"`  // by an operator
	Finished bool  `json:"finished,omitempty"` // there is nothing left
}

// Replayer is the part of an Operator that sends delivered messages again.
type Replayer interface {
	// Replays returns those that are known, by name.
	Replays(ctx context.Context) ([]Replay, error)

	// StoreReplay begins a replay, without was, and returns it with its UntilID; or changes it
	// from what it was. It fails with ErrReplayChanged if it is something else.
	StoreReplay(ctx context.Context, was *Replay, is Replay) (Replay, error)

	// Replay writes copies of the next messages, up to limit about: new messages in the order of
	// the old ones' ids, with their message ids and headers, and the replay's name in another
	// header. It returns what the replay is then, and the copies' rows; where there were no
	// more it is finished. It fails with ErrReplayChanged if it isn't what it was.
	Replay(ctx context.Context, was Replay, limit int) (is Replay, copies []RowID, err error)

	// CountPending says how many of these rows are to be delivered still, those aside that
	// wait for another attempt.
	CountPending(ctx context.Context, rows []RowID) (int, error)
}
