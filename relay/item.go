package relay

import (
	"hash/crc32"

	"github.com/rowrelay/rowrelay/sinks"
)

// item is a row in the relay's memory, from the read that brought it until a
// read that began after its settle had committed. All of it belongs to the
// engine's loop; a batch under way is lent to a worker.
type item struct {
	row    Row
	lane   *lane
	outlet *outlet // nil for a row that is only put away
	key    *key    // nil without order
	stage  stage

	numbering  int  // of ids, in which no other pending row has its id
	unwritable bool // the database refuses its outcome
	doubled    bool // a pending row has the same id and another message: it is looked for once this one has left
	doubted    bool // its handler's transaction may have been committed

	lost    string   // the last answer that was lost, or came too late: it may have been delivered then
	refusal *refusal // nil unless it was refused and not parked
}

// stage is how far an item has come.
type stage int

const (
	inQueue  stage = iota // in a queue, or waiting behind its key
	inFlight              // lent to a worker
	inSettle              // its outcome is being written back
	dropped               // out of memory; queues pass it over
)

// rowRef names a row where that is written down: with a checksum of its message, as an
// id may be given out again.
type rowRef struct {
	lane  int
	id    int64
	check uint32
}

func (r *Row) ref() rowRef {
	return rowRef{r.Lane, r.ID, crc32.ChecksumIEEE([]byte(r.Message.ID))}
}

// ticket returns the item's, if it has one.
func (i *item) ticket() *ticket {
	if len(i.lane.tickets) == 0 {
		return nil
	}
	return i.lane.tickets[i.row.ref()]
}

// size is what an item counts for in a buffer, in bytes.
func (i *item) size() int {
	m := &i.row.Message
	n := len(m.Payload) + len(m.Topic) + len(m.Key)
	for name, value := range m.Headers {
		n += len(name) + len(value)
	}
	return n
}

// message is what the sink gets.
func (i *item) message() sinks.Message {
	return sinks.Message{
		Message:   i.row.Message,
		Sequence:  i.row.ID,
		Attempt:   i.row.Attempts + 1,
		CreatedAt: i.row.CreatedAt,
	}
}

// settlement is the start of what is written back for the item.
func (i *item) settlement(state State) Settlement {
	return Settlement{
		ID: i.row.ID, Lane: i.row.Lane, MessageID: i.row.Message.ID, Fence: i.lane.Fence, Token: i.lane.token, Held: i.row.Held,
		State: state, Attempts: i.row.Attempts, Crashes: i.row.Crashes,
	}
}
