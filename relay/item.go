package relay

import "github.com/rowrelay/rowrelay/sinks"

// item is a row in the relay's memory, from the read that brought it until a
// read that began after its settle had committed. All of it belongs to the
// engine's loop; a batch under way is lent to a worker.
type item struct {
	row    Row
	lane   *lane
	outlet *outlet // nil for a row that is only put away
	key    *key    // nil without order
	stage  stage

	unwritable bool // the database refuses its outcome

	doubted bool     // its handler's transaction may have been committed
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
		ID: i.row.ID, Lane: i.row.Lane, Fence: i.lane.Fence, Token: i.lane.token, Held: i.row.Held,
		State: state, Attempts: i.row.Attempts, Crashes: i.row.Crashes,
	}
}
