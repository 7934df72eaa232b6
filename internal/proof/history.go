// Package proof reads, writes and checks histories. A history records what happened in one scene, a
// test in internal/e2e with real processes: what was written, what arrived, which faults happened, and
// what the table contained at the end. Each line of a history's file is JSON: the first line is a
// Header, and each other line is an Event.
package proof

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Header is the first line of a history's file.
type Header struct {
	History   int       `json:"history"` // the version of the format: 1
	Scene     string    `json:"scene"`
	Server    string    `json:"server"`   // the database's product and version
	Topology  string    `json:"topology"` // how the servers are arranged
	Sink      string    `json:"sink"`
	Broker    string    `json:"broker,omitempty"`    // the destination's product and version; empty: not a broker, or not known
	Claim     string    `json:"claim"`               // lanes or rows
	Ordered   bool      `json:"ordered"`             // the messages of each key must arrive in order
	Exact     bool      `json:"exact,omitempty"`     // no duplicate may occur
	Unsettled int       `json:"unsettled,omitempty"` // the maximum number of messages that one fault may cause to be sent again; 0: not known
	Commit    string    `json:"commit"`
	Command   string    `json:"command"` // the command that repeats the scene
	Began     time.Time `json:"began"`
}

// The kinds of events.
const (
	Wrote   = "wrote"   // a transaction that wrote the message ended, with this Outcome
	Arrived = "arrived" // the destination accepted the message
	Fault   = "fault"   // the scene caused a fault of the kind Kind
	Symptom = "symptom" // a relay's log reports an effect of a fault or of a slow machine; Kind is the kind of the effect
	Lane    = "lane"    // a query found that this Relay leased the Lane, with this Fence
	Row     = "row"     // at the end, the table contains the message, with this State
	Undone  = "undone"  // the database no longer has the transaction that had written the message
)

// The outcomes of a transaction.
const (
	Committed  = "committed"
	RolledBack = "rolled_back"
	Unknown    = "unknown" // the commit returned an error, but may have succeeded
)

// The kinds of faults.
const (
	RelayKilled     = "relay_killed"
	RelaySuspended  = "relay_suspended"
	RelaySuperseded = "relay_superseded" // another relay with the same name was started
	BrokerCut       = "broker_cut"
	BrokerKilled    = "broker_killed"
	DatabaseCut     = "database_cut"
	DatabaseKilled  = "database_killed"
	DatabaseCrashed = "database_crashed" // one of the server's processes died, and the server recovered
	Failover        = "failover"
	Switchover      = "database_switchover" // the standby had all commits when it became the primary
	ClockJump       = "clock_jump"
	SinkDown        = "sink_down" // the destination refused everything for some time
)

// The kinds of symptoms.
const (
	LeaseLost  = "lease_lost"  // the relay could not renew its leases in time
	AnswerLost = "answer_lost" // the relay doesn't know whether the destination accepted messages
)

// Event is any line of a history's file except the first.
type Event struct {
	Event    string  `json:"event"`
	At       float64 `json:"at,omitempty"` // seconds since the history began; 0: not known
	ID       string  `json:"id,omitempty"`
	Key      string  `json:"key,omitempty"`
	Number   int     `json:"number,omitempty"` // the message's position among the messages of its key
	Outcome  string  `json:"outcome,omitempty"`
	Kind     string  `json:"kind,omitempty"`
	Relay    string  `json:"relay,omitempty"` // the relay that sent the message, was hit by the fault, leased the lane, or marked the row
	State    string  `json:"state,omitempty"`
	Attempts int     `json:"attempts,omitempty"` // failed attempts that were charged to the message
	Reason   string  `json:"reason,omitempty"`   // the reason for the last failure
	Lane     *int    `json:"lane,omitempty"`
	Fence    int64   `json:"fence,omitempty"`
}

// History is a scene's history. Arrivals at one destination are in the order in which they arrived.
type History struct {
	Header
	Events []Event
}

// Write writes the history as a compressed file.
func (h *History) Write(path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	compressed := gzip.NewWriter(file)
	to := json.NewEncoder(compressed)
	if err := to.Encode(h.Header); err != nil {
		return err
	}
	for _, e := range h.Events {
		if err := to.Encode(e); err != nil {
			return err
		}
	}
	return compressed.Close()
}

// Read reads a compressed file.
func Read(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	plain, err := gzip.NewReader(bufio.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := Decode(plain)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// Decode reads the lines of a history.
func Decode(lines io.Reader) (*History, error) {
	from := json.NewDecoder(lines)
	from.DisallowUnknownFields()
	var h History
	if err := from.Decode(&h.Header); err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	if h.History != 1 {
		return nil, fmt.Errorf("line 1: the format's version is %d, not 1", h.History)
	}
	for {
		var e Event
		err := from.Decode(&e)
		if errors.Is(err, io.EOF) {
			return &h, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(h.Events)+2, err)
		}
		h.Events = append(h.Events, e)
	}
}
