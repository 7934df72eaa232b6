package storage

import (
	"context"
	"errors"
	"time"
)

// ErrReplayChanged means that the stored replay differs from the given one: somebody else has started
// a replay of the same name, or continued or stopped this one.
var ErrReplayChanged = errors.New("the replay was changed concurrently")

// ReplayedHeader is a header that a replay adds to the copy of a message. Its value is the name of the
// replay.
const ReplayedHeader = "rowrelay-replayed"

// CopyOfHeader is a header of a message that an operator has written as a copy of another one, with
// another payload. Its value is the other message's id.
const CopyOfHeader = "copy-of"

// Replay is an operation that sends delivered messages again, if they are still in the table. It is
// stored in the settings of the table and updated in the transaction that writes the copies. So a replay
// that is interrupted and continued writes each copy exactly once.
type Replay struct {
	Name string `json:"-"`

	// IDs, Topic, Key, Sink, Since and Until select the messages to replay. A message must match all
	// fields that are set. Since and Until apply to the time of delivery, which must be at or after
	// Since and before Until.
	IDs   []string  `json:"ids,omitempty"` // as in a Filter
	Topic string    `json:"topic,omitempty"`
	Key   string    `json:"key,omitempty"`
	Sink  string    `json:"sink,omitempty"` // as in a Filter
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`

	// To is the sink that receives the copies. If To is empty, a copy goes to the sinks that the
	// original names, or to all sinks of the topic if the original names none.
	To string `json:"to,omitempty"`

	// Rate is the desired number of copies a second. A store saves the rate but does not enforce it.
	Rate int `json:"rate,omitempty"`

	UntilID  int64 `json:"until_id"`           // highest id of a delivered message when the replay began; the replay's copies have higher ids and are not copied again
	AfterID  int64 `json:"after_id,omitempty"` // the id up to which messages were processed
	Written  int64 `json:"written,omitempty"`  // number of copies written
	Refused  int64 `json:"refused,omitempty"`  // messages that were skipped because the table's constraints reject their copies
	Stopped  bool  `json:"stopped,omitempty"`  // an operator stopped it
	Finished bool  `json:"finished,omitempty"` // no messages are left
}

// Replayer is the part of an Operator that sends delivered messages again.
type Replayer interface {
	// Replays returns the stored replays, sorted by name.
	Replays(ctx context.Context) ([]Replay, error)

	// StoreReplay stores the state `is` of a replay in place of the state `was`, which is nil to start a
	// replay. It returns the stored state, which includes the UntilID of a new replay. It returns
	// ErrReplayChanged if the state in the store differs from `was`.
	StoreReplay(ctx context.Context, was *Replay, is Replay) (Replay, error)

	// Replay copies the next messages: at most limit, or more if several delivered rows have the same
	// id, because these rows are found together. The copies are new messages in
	// the order of the original ids. They have the originals' message ids and headers, and in addition
	// the header named ReplayedHeader. Replay returns the updated replay and the rows of the copies. If
	// no messages are left, the replay is marked Finished. It returns ErrReplayChanged if the stored
	// replay differs from the given one.
	Replay(ctx context.Context, was Replay, limit int) (is Replay, copies []RowID, err error)

	// CountPending returns how many of these rows are still to be delivered. Rows that wait for another
	// attempt are not counted.
	CountPending(ctx context.Context, rows []RowID) (int, error)
}
