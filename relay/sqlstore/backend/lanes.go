package backend

import (
	"context"
	"encoding/json"

	"github.com/rowrelay/rowrelay/relay"
)

// Grants reads leases that were taken: lane, fence, marks, crashes, journal, and the
// transaction's number.
func Grants(ctx context.Context, q Querier, query Query) (grants []relay.Grant, xid uint64, err error) {
	var grant relay.Grant
	var marks, written text
	err = All(ctx, q, query, func() {
		grant.Marks = readMarks(marks)
		journal := readJournal(written)
		grant.Suspects, grant.Tickets = journal.Suspects, journal.Tickets
		grants = append(grants, grant)
	}, &grant.Lane, &grant.Fence, &marks, &grant.Crashes, &written, &xid)
	return grants, xid, err
}

// Leases reads leases that hold: lane, fence, and the transaction's number.
func Leases(ctx context.Context, q Querier, query Query) (held []relay.Lease, xid uint64, err error) {
	var lease relay.Lease
	err = All(ctx, q, query, func() { held = append(held, lease) }, &lease.Lane, &lease.Fence, &xid)
	return held, xid, err
}

// Journals reads lane, fence and journal of each lane.
func Journals(ctx context.Context, q Querier, query Query) (journals []relay.Journal, err error) {
	var lease relay.Lease
	var written text
	err = All(ctx, q, query, func() {
		j := readJournal(written)
		journals = append(journals, relay.Journal{Lease: lease, Suspects: j.Suspects, Tickets: j.Tickets})
	}, &lease.Lane, &lease.Fence, &written)
	return journals, err
}

// Marks reads lane and marks of each lane.
func Marks(ctx context.Context, q Querier, query Query) (map[int]relay.Marks, error) {
	found := map[int]relay.Marks{}
	var lane int
	var marks text
	err := All(ctx, q, query, func() { found[lane] = readMarks(marks) }, &lane, &marks)
	return found, err
}

// readMarks takes marks that can't be read for none: everything is read again then.
func readMarks(written text) (marks relay.Marks) {
	_ = json.Unmarshal([]byte(written), &marks)
	return marks
}

// journal is what stands in the table of lanes.
type journal struct {
	Suspects []relay.Suspect `json:"suspects,omitempty"`
	Tickets  []relay.Ticket  `json:"tickets,omitempty"`
}

// JournalText is what is stored of a journal.
func JournalText(j relay.Journal) (string, error) {
	written, err := json.Marshal(journal{j.Suspects, j.Tickets})
	return string(written), err
}

// readJournal takes one that can't be read for an empty one.
func readJournal(written text) (j journal) {
	if err := json.Unmarshal([]byte(written), &j); err != nil {
		return journal{}
	}
	return j
}

// HeldKeys reads lane, key, topic and id of each.
func HeldKeys(ctx context.Context, q Querier, query Query) (keys []relay.HeldKey, err error) {
	var key relay.HeldKey
	err = All(ctx, q, query, func() { keys = append(keys, key) }, &key.Lane, &key.Key, &key.Topic, &key.ID)
	return keys, err
}
