package backend

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Delivered selects done rows.
type Delivered struct {
	Filter
	UntilID      int64 // only ids up to this one
	Since, Until time.Time
}

// DeliveredRow is one of them.
type DeliveredRow struct {
	ID                               int64
	Lane                             int
	MessageID, Topic, Headers, Sinks string
}

// ReplayChange is a change of a stored replay from what it was to what it is then.
type ReplayChange struct {
	Name   string
	Was    string // as text of JSON; empty if there is none
	Copies []storage.Settlement
	Is     func(written int) string
}

// ReadDelivered reads id, lane, message_id, topic, headers and sinks of each row.
func ReadDelivered(ctx context.Context, q Querier, query Query) (rows []DeliveredRow, err error) {
	var row DeliveredRow
	var id, lane number
	err = All(ctx, q, query, func() {
		row.ID, row.Lane = int64(id), int(lane)
		rows = append(rows, row)
	}, &id, &lane, (*text)(&row.MessageID), (*text)(&row.Topic), (*text)(&row.Headers), (*text)(&row.Sinks))
	return rows, err
}

// ReadReplays reads the name and the text of each replay. One that can't be read, as a newer
// version has written it, is left out.
func ReadReplays(ctx context.Context, q Querier, query Query) (replays []storage.Replay, err error) {
	var name, value string
	err = All(ctx, q, query, func() {
		var replay storage.Replay
		if json.Unmarshal([]byte(value), &replay) == nil {
			replay.Name = name
			replays = append(replays, replay)
		}
	}, &name, &value)
	return replays, err
}

// ReadPlaces reads the lane and id of each row.
func ReadPlaces(ctx context.Context, q Querier, query Query) (rows []storage.RowID, err error) {
	var lane, id number
	err = All(ctx, q, query, func() { rows = append(rows, storage.RowID{Lane: int(lane), ID: int64(id)}) }, &lane, &id)
	return rows, err
}

// SetReplay stores what a replay is by now: begin is a statement with its name and text, change
// one with its new text, its name and the one that it was.
func SetReplay(ctx context.Context, q Querier, statements Statements, change ReplayChange, written int) error {
	query := statements.Query("change replay", change.Is(written), change.Name, change.Was)
	if change.Was == "" {
		query = statements.Query("begin replay", change.Name, change.Is(written))
	}
	changed, err := Exec(ctx, q, query)
	if err == nil && changed != 1 {
		err = storage.ErrReplayChanged
	}
	return err
}

// PendingAmong counts those of the rows that a table has.
func PendingAmong(hot string, rows []storage.RowID) Query {
	byLane := map[int][]int64{}
	for _, row := range rows {
		byLane[row.Lane] = append(byLane[row.Lane], row.ID)
	}
	var among Alternatives
	for _, lane := range slices.Sorted(maps.Keys(byLane)) {
		among.Add(lane, "t.lane = "+strconv.Itoa(lane)+" AND t.id IN "+NumberList(byLane[lane]))
	}
	return Query{SQL: "SELECT count(*) FROM " + hot + " t WHERE " + among.Condition()}
}
