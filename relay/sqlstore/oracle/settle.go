package oracle

import (
	"cmp"
	"context"
	"database/sql"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settle implements [backend.Backend]. It first locks rows that a takeover or a claim would also
// lock. Then it reads which leases are still valid, or how many rows have another token, and moves
// the rows. Each statement that moves rows checks the leases or the tokens again.
//
// For rows of leased lanes, it takes one of the eight locks of each lane, chosen by the session's
// number. A takeover needs all eight locks. If a settle has to wait for a takeover, it then finds the new fence, because the statement that
// reads fences begins after the wait. Renewals lock other rows and don't wait. For claimed rows, it locks the rows, so that their tokens
// don't change.
func (d *Oracle) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (settled backend.Settled, err error) {
	if tx == nil {
		err = backend.InTx(ctx, d.db, nil, nil, func(tx *sql.Tx) error {
			settled, err = d.Settle(ctx, tx, relay, keep, settlements)
			return err
		})
		return settled, err
	}
	var l, f args
	var lock string
	var facts backend.Query
	m := moving{Oracle: d, relay: relay, keep: keep}
	if settlements[0].Token == "" {
		m.claim, m.byLanes = "claim NUMBER PATH '$[2]'", true
		lock, facts = d.leases(&l, &f, relay, settlements)
		if backend.NamesSinks(&settlements[0]) {
			m.token = " AND " + sameSinks
		}
	} else {
		const columns = "id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]'"
		m.claim, m.token = "claim VARCHAR2(255) PATH '$[2]'", " AND t.claim_token = g.claim"
		lock = "SELECT t.id FROM " + d.table.Pending + " t WHERE t.id IN " + list(&l, backend.Column(settlements, func(s *settlement) int64 { return s.ID })) +
			"\n    ORDER BY t.id"
		facts = f.query("SELECT 'fenced', COUNT(*), 0 FROM "+given(&f, items(settlements), columns)+" JOIN "+d.table.Pending+" t ON "+row,
			"WHERE t.claim_token IS NULL OR t.claim_token <> g.claim")
	}
	if settled, err = lockFor(ctx, tx, l, lock, facts); err != nil {
		return settled, err
	}
	groups := backend.GroupsOf(settlements)
	writes := m.deadLetters(settlements)
	writes = append(writes, m.finish(d.table.Pending, m.token, groups.HotDone)...)
	writes = append(writes, m.finish(d.table.Held, " AND "+sameSinks+" AND t.state <> 'error'", groups.HeldDone)...)
	writes = append(writes, m.hold(groups.HotHeld)...)
	writes = append(writes, m.change(groups.HeldHeld)...)
	return settled, settled.Write(ctx, tx, append(writes, m.free(groups.Freed)...))
}

// leases returns a SELECT that finds one lock of each lane, and a query for the leases that are still valid.
func (d *Oracle) leases(l, f *args, relay string, settlements []storage.Settlement) (lock string, facts backend.Query) {
	const columns = "lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]'"
	leases := backend.Column(backend.LeasesOf(settlements), func(l *leased) []int64 { return []int64{int64(l.Lane), l.Fence} })
	lock = "SELECT lock_id FROM " + d.table.Index("locks") + " WHERE lock_id IN (" +
		"\n        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM " + given(l, leases, columns) + ")\n    ORDER BY lock_id"
	return lock, f.query("SELECT 'lane', l.lane, l.fence FROM " + given(f, leases, columns) +
		" JOIN " + d.table.Lanes + " l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = " + f.Add(relay))
}

// lockFor locks the rows that the query `lock` finds, and then reads the result of the query `facts`.
func lockFor(ctx context.Context, tx *sql.Tx, l args, lock string, facts backend.Query) (backend.Settled, error) {
	if _, err := backend.Exec(ctx, tx, l.query("BEGIN\n    FOR locked IN (\n    "+lock+" FOR UPDATE) LOOP NULL; END LOOP;\nEND;")); err != nil {
		return backend.Settled{}, err
	}
	return backend.ReadSettled(ctx, tx, facts)
}

// SettleParts implements [backend.Backend]. Its MERGE compares the sinks in WHERE, because ON must
// not contain a column that the MERGE changes.
func (d *Oracle) SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (backend.Settled, error) {
	var l, f args
	lock, facts := d.leases(&l, &f, relay, settlements)
	settled, err := lockFor(ctx, tx, l, lock, facts)
	if err != nil {
		return settled, err
	}
	m := moving{Oracle: d, relay: relay, keep: keep, claim: "claim NUMBER PATH '$[2]'", byLanes: true}
	if err := settled.Write(ctx, tx, m.deadLetters(settlements)); err != nil {
		return settled, err
	}
	for _, parts := range backend.PartsOf(settlements, keep) {
		table, where := d.table.Pending, sameSinks
		if parts.Deferred {
			table, where = d.table.Held, sameSinks+" AND t.state <> 'error' AND "+backend.Undecided
		}
		var writes []backend.Write
		if len(parts.Done) > 0 {
			writes = append(writes, backend.Write{Query: m.keepDone(table, " AND "+where, backend.KeptFor("g.part"), parts.Done)})
		}
		if len(parts.Held) > 0 {
			writes = append(writes, backend.Write{Query: m.insertHeld(table, " AND "+where, backend.KeptFor("g.part"), parts.Held)})
		}
		var a args
		writes = append(writes, backend.Write{Counts: true, Query: a.query(
			"MERGE INTO "+table+" t USING (SELECT g.* FROM "+m.given(&a, parts.All)+") g ON ("+row+")",
			"WHEN MATCHED THEN UPDATE SET t.sinks = g.rest",
			"    WHERE "+where)})
		if err := settled.Write(ctx, tx, writes); err != nil {
			return settled, err
		}
	}
	return settled, nil
}

type (
	leased     = storage.Lease
	settlement = storage.Settlement
)

func items(settlements []storage.Settlement) [][]any {
	return backend.Column(settlements, func(s *storage.Settlement) []any {
		claim := any(s.Fence)
		if s.Token != "" {
			claim = s.Token
		}
		item := []any{s.ID, s.Lane, claim, s.State, s.Attempts, s.Crashes, s.Delay.Microseconds(), dialect.OracleCut(s.Error), dialect.OracleCut(s.Receipt), s.MessageID, backend.HoldsOf(s), s.Sinks, s.For, s.Left, readAt(s)}
		if log := backend.AttemptLog(s); log != "" {
			item = append(item, log)
		}
		return item
	})
}

func readAt(s *settlement) string {
	return backend.ReadAt(s).UTC().Format("2006-01-02 15:04:05.000000")
}

// asTime returns an SQL expression that converts a text in the format of readAt to a time. The argument is an SQL expression, too.
func asTime(text string) string { return "TO_TIMESTAMP(" + text + ", 'YYYY-MM-DD HH24:MI:SS.FF6')" }

// moving builds the statements that move the rows that still belong to the relay. If lanes
// are leased, each statement compares the lane's fence and owner; otherwise the row's token.
type moving struct {
	*Oracle
	relay   string
	keep    bool
	claim   string // the definition of the column of g with the settlement's fence or token
	byLanes bool
	token   string // another condition for rows of outbox: that a row has the claim's token or, in leased lanes, its settlement's sinks; empty if the settlements name no sinks
}

// row is the condition that t is the row of the settlement g.
const row = "t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id"

// sameSinks is the condition that t and g have the same sinks. It is added to [row] for rows that
// are identified by their sinks, too. NVL is needed because Oracle stores an empty text as NULL.
const sameSinks = "NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY')"

const (
	available = "CASE WHEN g.state = 'retry' OR g.holds > 0 THEN " + now + " + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END"
	fault     = "NVL(g.fault, t.last_error)"
	failed    = "NVL(g.attempt_log, t.attempt_log)"
)

// given returns a FROM item g with the settlements. If lanes are leased, it has only settlements whose leases are still valid.
// The last argument defines further columns, such as withLog.
func (m moving) given(a *args, settlements []storage.Settlement, more ...string) string {
	given := given(a, items(settlements), "\n        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', "+m.claim+
		", state VARCHAR2(10) PATH '$[3]',\n        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',\n        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]'"+strings.Join(more, ""))
	if m.byLanes {
		given += "\n    JOIN " + m.table.Lanes + " l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = " + a.Add(m.relay)
	}
	return given
}

// withLog defines a column of the FROM item g (see given) with the logs of failed attempts. Only statements that insert or change
// held rows, or that release claimed rows, need the column.
const withLog = ", attempt_log VARCHAR2(4000) PATH '$[15]'"

// found returns a FROM clause that joins the settlements with their rows t, by the rows' keys.
func (m moving) found(a *args, from, where string, settlements []storage.Settlement, more ...string) string {
	return "FROM " + m.given(a, settlements, more...) + "\n    JOIN " + from + " t ON " + row + where
}

const found = "/*+ LEADING(g) USE_NL(t) INDEX(t) */"

// deadLetters returns the statements that write dead letters. They run before the rows are moved, and
// first lock the rows. In leased lanes, only these locks prevent two concurrent settles of a row from
// both writing a dead letter.
func (m moving) deadLetters(settlements []storage.Settlement) (writes []backend.Write) {
	hot, held := backend.DeadLettersOf(settlements)
	for _, some := range [][]storage.Settlement{hot, held} {
		if len(some) == 0 {
			continue
		}
		from := m.table.Pending
		if some[0].Deferred {
			from = m.table.Held
		}
		var l args
		ids := list(&l, backend.Column(some, func(s *settlement) int64 { return s.ID }))
		writes = append(writes, backend.Write{Query: l.query("BEGIN\n    FOR locked IN (\n    SELECT t.id FROM " + from + " t WHERE t.id IN " + ids +
			"\n    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;\nEND;")})
		for i := range some {
			writes = append(writes, backend.Write{Query: m.copy(from, &some[i])})
		}
	}
	return writes
}

// copyOf returns the values of a copy of the row t. Each copy is written by a separate statement, because
// headers in a list would have a maximum length.
func copyOf(a *args, c *storage.Copy) string {
	return a.Add(c.MessageID) + ", " + a.Add(c.Topic) + ", t.message_key, t.payload, t.payload_text, " + a.Add(bind.Nullable(c.Headers)) + ", t.priority, " + backend.CopiedExpiry(now) + ", " + a.Add(bind.Nullable(c.Sinks))
}

// copy returns the statement that writes the settlement's DeadLetter.
func (m moving) copy(from string, s *storage.Settlement) backend.Query {
	var a args
	values := copyOf(&a, s.DeadLetter)
	where := "WHERE t.id = " + a.Add(s.ID) + " AND t.lane = " + a.Add(s.Lane) + " AND t.message_id = " + a.Add(s.MessageID)
	if backend.BySinks(s) {
		where += " AND " + same("NVL(t.sinks, ',')", a.Add(cmp.Or(s.Sinks, ",")))
	}
	if s.Deferred {
		where += " AND t.state <> 'error' AND (t.holds < 2 OR " + a.Add(backend.HoldsOf(s)) + " = 0) AND " + backend.AsRead(asTime(a.Add(readAt(s))))
	} else if !m.byLanes {
		where += " AND t.claim_token = " + a.Add(s.Token)
	}
	if m.byLanes {
		where += "\n    AND EXISTS (SELECT 1 FROM " + m.table.Lanes + " l WHERE l.lane = t.lane AND l.fence = " + a.Add(s.Fence) + " AND l.owner = " + a.Add(m.relay) + ")"
	}
	return a.query("INSERT INTO "+m.table.Pending+" ("+backend.CopyInto+")", "SELECT "+values+" FROM "+from+" t", where)
}

func (m moving) finish(from, where string, settlements []storage.Settlement) (writes []backend.Write) {
	if len(settlements) == 0 {
		return nil
	}
	if m.keep {
		writes = append(writes, backend.Write{Query: m.keepDone(from, where, backend.Of("t", backend.Kept), settlements)})
	}
	return append(writes, m.remove(from, where, settlements))
}

// keepDone returns the statement that copies the rows to the done table.
func (m moving) keepDone(from, where, kept string, settlements []storage.Settlement) backend.Query {
	var a args
	return a.query(
		"INSERT INTO "+m.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)",
		"SELECT "+found+" "+kept+", g.attempts, g.crashes, t.available_at, "+fault+", "+now+", g.receipt, "+a.Add(m.relay),
		m.found(&a, from, where, settlements))
}

// insertHeld returns the statement that copies the rows to the held table.
func (m moving) insertHeld(from, where, kept string, settlements []storage.Settlement) backend.Query {
	var a args
	return a.query(
		"INSERT INTO "+m.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)",
		"SELECT "+found+" "+kept+", g.attempts, g.crashes, "+available+", "+fault+", "+failed+", g.state, g.holds",
		m.found(&a, from, where, settlements, withLog))
}

func (m moving) remove(from, where string, settlements []storage.Settlement) backend.Write {
	var a args
	identity, same := "d.id, d.message_id", "t.id, t.message_id"
	if from == m.table.Held {
		identity, same = identity+", NVL(d.sinks, ',')", same+", NVL(t.sinks, ',')"
	}
	return backend.Write{Counts: true, Query: a.query(
		"DELETE /*+ INDEX(d) */ FROM "+from+" d WHERE ("+identity+") IN (SELECT "+found+" "+same,
		m.found(&a, from, where, settlements)+")")}
}

func (m moving) hold(settlements []storage.Settlement) []backend.Write {
	if len(settlements) == 0 {
		return nil
	}
	return []backend.Write{
		{Query: m.insertHeld(m.table.Pending, m.token, backend.Of("t", backend.Kept), settlements)},
		m.remove(m.table.Pending, m.token, settlements),
	}
}

func (m moving) change(settlements []storage.Settlement) []backend.Write {
	if len(settlements) == 0 {
		return nil
	}
	var a args
	return []backend.Write{{Counts: true, Query: a.query(
		"MERGE INTO "+m.table.Held+" t USING (SELECT g.* FROM "+m.given(&a, settlements, withLog)+") g ON ("+row+" AND "+sameSinks+")",
		"WHEN MATCHED THEN UPDATE SET t.state = g.state, t.holds = g.holds, t.attempts = g.attempts, t.crashes = g.crashes,",
		"    t.available_at = "+available+", t.last_error = "+fault+", t.attempt_log = "+failed,
		"    WHERE t.state <> 'error' AND "+backend.UndecidedStays+" AND "+backend.AsRead(asTime("g.read_at")))}}
}

func (m moving) free(settlements []storage.Settlement) []backend.Write {
	if len(settlements) == 0 {
		return nil
	}
	var a args
	return []backend.Write{{Counts: true, Query: a.query(
		"MERGE INTO "+m.table.Pending+" t USING (SELECT g.* FROM "+m.given(&a, settlements, withLog)+") g ON ("+row+")",
		"WHEN MATCHED THEN UPDATE SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.claim_stamp = NULL,",
		"    t.attempts = g.attempts, t.crashes = g.crashes, t.last_error = "+fault+", t.attempt_log = "+failed,
		"    WHERE t.claim_token = g.claim")}}
}
