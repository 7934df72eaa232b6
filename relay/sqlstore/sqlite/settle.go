package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strconv"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settle implements [backend.Backend]. It first takes the database's write lock. The fences
// that it then reads can't change until the commit, so the statements that write don't
// check them again. Settle groups the settlements by the change that their rows need. No
// statement runs for an empty group.
func (s *SQLite) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (settled backend.Settled, err error) {
	if tx == nil {
		err = backend.InTx(ctx, s.db, nil, nil, func(tx *sql.Tx) error {
			settled, err = s.Settle(ctx, tx, relay, keep, settlements)
			return err
		})
		return settled, err
	}
	if _, err := backend.Exec(ctx, tx, s.sql.Query("begin writing")); err != nil {
		return settled, err
	}
	m := moving{SQLite: s, relay: relay, keep: keep}
	if first := settlements[0]; first.Token != "" {
		m.claimed, m.args = " AND t.claim_token = ?", []any{first.Token}
		rows, messages := s.found(s.table.Pending, settlements)
		settled, err = backend.ReadSettled(ctx, tx, query("SELECT 'fenced', count(*), 0 FROM "+rows+" WHERE t.claim_token IS NOT ?", messages, first.Token))
	} else {
		if backend.NamesSinks(&first) {
			m.claimed, m.args = " AND t.sinks = ?", []any{first.Sinks}
		}
		settled, err = s.leasesThatHold(ctx, tx, relay, settlements)
		settlements = settled.HeldOf(settlements)
	}
	if err != nil {
		return settled, err
	}
	writes := append(m.deadLetters(settlements), m.writes(backend.GroupsOf(settlements))...)
	return settled, settled.Write(ctx, tx, writes)
}

func (s *SQLite) leasesThatHold(ctx context.Context, tx *sql.Tx, relay string, settlements []storage.Settlement) (backend.Settled, error) {
	leases := backend.Column(backend.LeasesOf(settlements), func(l *leased) []any { return []any{l.Lane, l.Fence} })
	return backend.ReadSettled(ctx, tx, s.sql.Query("leases that hold", bind.JSON(leases), relay))
}

// SettleParts implements [backend.Backend].
func (s *SQLite) SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (backend.Settled, error) {
	if _, err := backend.Exec(ctx, tx, s.sql.Query("begin writing")); err != nil {
		return backend.Settled{}, err
	}
	settled, err := s.leasesThatHold(ctx, tx, relay, settlements)
	if err != nil {
		return settled, err
	}
	settlements = settled.HeldOf(settlements)
	if err := settled.Write(ctx, tx, moving{SQLite: s}.deadLetters(settlements)); err != nil {
		return settled, err
	}
	for _, parts := range backend.PartsOf(settlements, keep) {
		table, where := s.table.Pending, theRow+" AND t.sinks = g.sinks"
		if parts.Deferred {
			table, where = s.table.Held, where+" AND t.state <> 'error' AND "+backend.Undecided
		}
		from := " CROSS JOIN " + table + byID + " ON " + where
		var writes []backend.Write
		if len(parts.Done) > 0 {
			writes = append(writes, backend.Write{Query: query("INSERT INTO "+s.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)"+
				"\nSELECT "+backend.KeptFor("g.part")+", g.attempts, g.crashes, t.available_at, "+newError+", "+s.sql.Text("now")+", nullif(g.receipt, ''), ?\nFROM "+givenParts+from, relay, items(parts.Done))})
		}
		if len(parts.Held) > 0 {
			writes = append(writes, backend.Write{Query: query("INSERT INTO "+s.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)"+
				"\nSELECT "+backend.KeptFor("g.part")+", g.attempts, g.crashes, "+newAvailable+", "+newError+", "+newLog+", g.state, g.holds\nFROM "+givenHeld+from, items(parts.Held))})
		}
		writes = append(writes, backend.Write{Counts: true, Query: query("UPDATE "+table+byID+" SET sinks = g.rest\nFROM "+givenParts+" WHERE "+where, items(parts.All))})
		if err := settled.Write(ctx, tx, writes); err != nil {
			return settled, err
		}
	}
	return settled, nil
}

type (
	leased  = storage.Lease
	relayed = storage.Settlement
)

func query(sql string, args ...any) backend.Query { return backend.Query{SQL: sql, Args: args} }

// moving builds the statements that move rows: rows whose leases are still valid, or rows that
// still have the claim's token.
type moving struct {
	*SQLite
	relay   string
	keep    bool
	claimed string // the condition that a row of outbox has the claim's token or, in leased lanes, the settlements' sinks; empty if the settlements name none
	args    []any  // the arguments of claimed
}

// deadLetters returns the statements that write dead letters. They run before the rows are moved.
func (m moving) deadLetters(settlements []storage.Settlement) (writes []backend.Write) {
	hot, held := backend.DeadLettersOf(settlements)
	if len(hot) > 0 {
		writes = append(writes, backend.Write{Query: m.copies(m.table.Pending+byID, hot, m.claimed, m.args...)})
	}
	if len(held) > 0 {
		writes = append(writes, backend.Write{Query: m.copies(m.table.Held+byID, held, " AND t.state <> 'error' AND "+backend.Undecided+" AND "+backend.AsRead("g.read_at"))})
	}
	return writes
}

// copies returns the statement that writes the DeadLetters of settlements. The argument `from` has the table of the settlements' rows t and
// the index to use. Rows that don't meet the condition `where` get no dead letter.
func (s *SQLite) copies(from string, settlements []storage.Settlement, where string, args ...any) backend.Query {
	items := bind.JSON(backend.Column(settlements, func(s *relayed) []any {
		c := s.DeadLetter
		return []any{s.ID, s.Lane, s.MessageID, s.Sinks, backend.HoldsOf(s), c.MessageID, c.Topic, bind.Nullable(c.Headers), c.Sinks, backend.ReadAt(s).UTC().Format(timeFormat)}
	}))
	if backend.BySinks(&settlements[0]) {
		where = " AND t.sinks = g.sinks" + where
	}
	return query("INSERT INTO "+s.table.Pending+" ("+backend.CopyInto+")\nSELECT "+backend.CopyFrom(s.sql.Text("now"))+`
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN `+
		from+" ON "+theRow+where+"\nORDER BY t.id", append([]any{items}, args...)...)
}

func (m moving) writes(groups backend.Groups) (writes []backend.Write) {
	hot, held := m.table.Pending, m.table.Held
	if len(groups.HotDone) > 0 {
		writes = append(writes, m.finish(hot, "id", "t.id", groups.HotDone, m.claimed, m.args)...)
	}
	if len(groups.HeldDone) > 0 {
		writes = append(writes, m.finish(held, "(id, message_id, sinks)", "t.id, t.message_id, t.sinks", groups.HeldDone, " AND t.state <> 'error'", nil)...)
	}
	if len(groups.HotHeld) > 0 {
		writes = append(writes, backend.Write{Query: query("INSERT INTO "+held+" ("+backend.Kept+", "+backend.ChangingHeld+`, state, holds)
SELECT `+backend.Of("t", backend.Kept)+", g.attempts, g.crashes, "+newAvailable+", "+newError+", "+newLog+`, g.state, g.holds
FROM `+givenHeld+" CROSS JOIN "+hot+byID+" ON "+theRow+m.claimed, append([]any{items(groups.HotHeld)}, m.args...)...)},
			m.remove(hot, "id", "t.id", groups.HotHeld, m.claimed, m.args))
	}
	if len(groups.HeldHeld) > 0 {
		writes = append(writes, backend.Write{Counts: true, Query: query("UPDATE "+held+byID+`
SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = `+newAvailable+", last_error = "+newError+", attempt_log = "+newLog+`
FROM `+givenHeld+" WHERE "+theRowOfSinks+" AND t.state <> 'error' AND "+backend.UndecidedStays+" AND "+backend.AsRead("g.read_at"), items(groups.HeldHeld))})
	}
	if len(groups.Freed) > 0 {
		writes = append(writes, backend.Write{Counts: true, Query: query("UPDATE "+hot+byID+`
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = `+newError+", attempt_log = "+newLog+`
FROM `+givenHeld+" WHERE "+theRow+m.claimed, append([]any{items(groups.Freed)}, m.args...)...)})
	}
	return writes
}

// finish returns the statements for done rows. If done rows are kept, the first statement
// copies the rows to the done table. It joins the settlements only if their values differ,
// which is rare: in most batches all rows are done at their first attempt. The last
// statement deletes the rows.
func (m moving) finish(from, key, selected string, settlements []storage.Settlement, where string, args []any) (writes []backend.Write) {
	if m.keep {
		insert := "INSERT INTO " + m.table.Done + " (" + backend.Kept + ", " + backend.Changing + ", finished_at, receipt, relay)\nSELECT " + backend.Of("t", backend.Kept) + ", "
		now, same := m.sql.Text("now"), settlements[0]
		differs := func(s storage.Settlement) bool {
			return s.Attempts != same.Attempts || s.Crashes != same.Crashes || s.Error != same.Error || s.Receipt != same.Receipt
		}
		if !slices.ContainsFunc(settlements, differs) {
			rows, messages := m.found(from, settlements)
			values := []any{int64(same.Attempts), int64(same.Crashes), same.Error, same.Receipt, m.relay, messages}
			writes = append(writes, backend.Write{Query: query(insert+"?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), "+now+", nullif(?, ''), ?\nFROM "+rows+where, append(values, args...)...)})
		} else {
			row := theRow
			if from == m.table.Held {
				row = theRowOfSinks
			}
			writes = append(writes, backend.Write{Query: query(insert+"g.attempts, g.crashes, t.available_at, "+newError+", "+now+`, nullif(g.receipt, ''), ?
FROM `+given+" CROSS JOIN "+from+byID+" ON "+row+where, append([]any{m.relay, items(settlements)}, args...)...)})
		}
	}
	return append(writes, m.remove(from, key, selected, settlements, where, args))
}

// remove returns a DELETE. The argument `key` has the columns that identify a row of the table, and `selected` has the same columns with
// the alias t.
func (m moving) remove(from, key, selected string, settlements []storage.Settlement, where string, args []any) backend.Write {
	rows, messages := m.found(from, settlements)
	return backend.Write{Counts: true, Query: query("DELETE FROM "+from+" WHERE "+key+" IN (SELECT "+selected+" FROM "+rows+where+")", append([]any{messages}, args...)...)}
}

// found returns a FROM clause with the rows t of the settlements, and its argument. The argument is a JSON
// object that maps each row's id to its message id, which for held rows is followed by the sinks. The
// clause returns only rows in the lanes that the settlements name. An object costs half as much as two
// lists, and a third as much as a list of lists, whose items SQLite would parse for each row.
func (s *SQLite) found(table string, settlements []storage.Settlement) (from string, arg any) {
	lanes := slices.Compact(backend.Column(settlements, func(s *relayed) int { return s.Lane }))
	text := make([]byte, 0, 2+51*len(settlements))
	separator, value := byte('{'), "t.message_id"
	if table == s.table.Held {
		value = "t.message_id || ',' || t.sinks"
	}
	for i := range settlements {
		text = strconv.AppendInt(append(text, separator, '"'), settlements[i].ID, 10)
		if text = append(text, `":`...); table == s.table.Held {
			value := bind.JSON([]string{settlements[i].MessageID + "," + settlements[i].Sinks})
			text = append(text, value[1:len(value)-1]...)
		} else {
			text = append(append(append(text, '"'), settlements[i].MessageID...), '"')
		}
		separator = ','
	}
	return "json_each(?) AS j CROSS JOIN " + table + byID + " ON t.id = j.key AND " + value + " = j.value AND t.lane IN " + backend.NumberList(lanes), string(append(text, '}'))
}

// given is a FROM item g with the values of settlements. givenParts also has the sinks that a settlement is for
// (part) and the other sinks (rest). givenHeld has part and the logs of failed attempts.
const (
	given      = "(SELECT " + columns + " FROM json_each(?) AS j) AS g"
	givenParts = "(SELECT " + columns + ", json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[13]') AS rest FROM json_each(?) AS j) AS g"
	givenHeld  = "(SELECT " + columns + ", json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g"
)

const columns = "json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, " +
	"json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, " +
	"json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at"

func items(settlements []storage.Settlement) string {
	return bind.JSON(backend.Column(settlements, func(s *relayed) []any {
		item := []any{s.ID, s.Lane, s.State, s.Attempts, s.Crashes, seconds(s.Delay), s.Error, s.Receipt, s.MessageID, backend.HoldsOf(s), s.Sinks, backend.ReadAt(s).UTC().Format(timeFormat)}
		log := backend.AttemptLog(s)
		if s.Left != "" || log != "" {
			item = append(item, s.For, s.Left)
		}
		if log != "" {
			item = append(item, log)
		}
		return item
	}))
}

// newAvailable, newError and newLog are the new values of a row t whose settlement is g. theRow and theRowOfSinks are conditions under
// which t is the row of g.
const (
	newAvailable  = "CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END"
	newError      = "coalesce(nullif(g.error, ''), t.last_error)"
	newLog        = "coalesce(g.attempt_log, t.attempt_log)"
	theRow        = "t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id"
	theRowOfSinks = theRow + " AND t.sinks = g.sinks"
)
