package backend

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// DeliveredRow is a done row.
type DeliveredRow struct {
	ID                               int64
	Lane                             int
	MessageID, Topic, Headers, Sinks string
}

// ReplayChange is a change of a stored replay. Replays are stored as JSON.
type ReplayChange struct {
	Name   string
	Was    string // the text to replace; if another text is stored, the change fails; empty if the replay is new
	Copies []storage.Settlement
	Is     func(written int) string // returns the new text, which contains the number of written copies
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

// ReadReplays reads the name and the text of each replay. It omits replays whose text it can't decode, because a newer
// version may have written them.
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

// WriteReplay implements a backend's ChangeReplay. If the change has copies, WriteReplay calls the function `write`, which
// writes them and returns their lanes and ids, and the number of written copies. If `write` finds the copies by their
// message ids, it may also return copies that another replay is writing concurrently. The arguments of the statement
// "begin replay" are the replay's name and text; the arguments of "change replay" are the replay's new text, its name and
// its stored text.
func WriteReplay(ctx context.Context, inTx func(context.Context, func(*sql.Tx) error) error, statements Statements, change ReplayChange,
	write func(tx *sql.Tx) (copies []storage.RowID, written int, err error)) (copies []storage.RowID, err error) {
	err = inTx(ctx, func(tx *sql.Tx) error {
		written := 0
		if len(change.Copies) > 0 {
			if copies, written, err = write(tx); err != nil {
				return err
			}
		}
		if change.Is(written) == change.Was { // write nothing, since MySQL would count no row as changed
			return nil
		}
		query := statements.Query("change replay", change.Is(written), change.Name, change.Was)
		if change.Was == "" {
			query = statements.Query("begin replay", change.Name, change.Is(written))
		}
		changed, err := Exec(ctx, tx, query)
		if err == nil && changed != 1 {
			err = storage.ErrReplayChanged
		}
		return err
	})
	return copies, err
}

// PendingAmong returns a query that counts how many of the rows are pending.
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
