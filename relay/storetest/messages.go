package storetest

import (
	"slices"
	"strconv"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// write inserts messages in one transaction.
func write(t testing.TB, table Table, messages ...outbox.Message) []int64 {
	tx := table.Begin(t)
	written := make([]int64, len(messages))
	for i, message := range messages {
		written[i] = tx.Insert(message)
	}
	tx.Commit()
	return written
}

// fill writes messages and discards their ids.
func fill(t testing.TB, table Table, messages ...outbox.Message) {
	tx := table.Begin(t)
	if filler, able := tx.(Filler); able {
		filler.Fill(messages)
	} else {
		for _, message := range messages {
			tx.Insert(message)
		}
	}
	tx.Commit()
}

// lockRow locks a row from another session.
func lockRow(t testing.TB, table Table, id int64) (waiting func() bool, unlock func()) {
	t.Helper()
	locker, able := table.(RowLocker)
	if !able {
		t.Fatal("the harness's tables can't lock rows: implement RowLocker, or set OneWriter")
	}
	return locker.LockRow(t, id)
}

// plain returns messages without keys, which are in different lanes.
func plain(count int) []outbox.Message {
	messages := make([]outbox.Message, count)
	for i := range messages {
		messages[i] = outbox.Message{Topic: "plain", Payload: []byte(strconv.Itoa(i))}
	}
	return messages
}

// keyed returns messages with the same key, which are therefore in the same lane.
func keyed(key string, count int) []outbox.Message {
	messages := plain(count)
	for i := range messages {
		messages[i].Key = key
	}
	return messages
}

func lanes() []int {
	all := make([]int, storage.Lanes)
	for i := range all {
		all[i] = i
	}
	return all
}

// everything returns positions that together include all rows: one position at the start of each
// lane.
func everything() []storage.Position {
	positions := make([]storage.Position, storage.Lanes)
	for i := range positions {
		positions[i].Lane = i
	}
	return positions
}

// ids returns the rows' ids, sorted.
func ids(rows []storage.Row) []int64 {
	found := inOrder(rows)
	slices.Sort(found)
	return found
}

// inOrder returns the rows' ids in the order of the rows.
func inOrder(rows []storage.Row) []int64 {
	found := make([]int64, len(rows))
	for i, row := range rows {
		found[i] = row.ID
	}
	return found
}

// wantIDs requires exactly these ids, in this order.
func wantIDs(t testing.TB, what string, got, want []int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: rows %v, want %v", what, got, want)
	}
}
