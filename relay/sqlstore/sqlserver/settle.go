package sqlserver

import (
	"context"
	"database/sql"
	"strings"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Settle implements [backend.Backend]. It runs one batch.
func (d *SQLServer) Settle(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (backend.Settled, error) {
	query := d.settleLanes
	if settlements[0].Token != "" {
		query = d.settleRows
	}
	if tx != nil {
		return backend.ReadSettled(ctx, tx, query(relay, keep, settlements))
	}
	return backend.ReadSettled(ctx, d.db, query(relay, keep, settlements))
}

// settleLanes returns a batch with one transaction, which holds shared locks on the lanes'
// entries in the index of fences. A takeover needs an exclusive lock on a lane's entry, so it
// skips a lane that is being settled. If a settle waits for a takeover, the lane has a new fence
// after the wait, and so the settle changes none of its rows. A renewal doesn't change the fence,
// so it doesn't wait for a settle.
func (d *SQLServer) settleLanes(name string, keep bool, settlements []storage.Settlement) backend.Query {
	m := d.newLaneMoves(name, settlements)
	if backend.NamesSinks(&settlements[0]) {
		m.token = " AND t.sinks = g.sinks"
	}
	m.move(name, keep)
	return m.settle(leasesHeld)
}

// leasesHeld selects the leases that are still valid.
const leasesHeld = "UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held"

// newLaneMoves begins a batch that settles rows of leased lanes. The batch locks the lanes whose leases
// are still valid, and deletes the settlements of other lanes from @given.
func (d *SQLServer) newLaneMoves(name string, settlements []storage.Settlement) *moves {
	m := d.newMoves(settlements, "bigint", "", func(s *storage.Settlement) any { return s.Fence })
	m.add(
		"DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);",
		d.sql.Text("begin"),
		"INSERT INTO @held (lane, fence)",
		"SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s",
		"INNER JOIN "+d.table.Lanes+" AS l WITH (INDEX("+d.table.IndexName("lanes_fence")+"), FORCESEEK, REPEATABLEREAD, ROWLOCK)",
		"    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = "+m.args.add(name),
		"OPTION (FORCE ORDER, LOOP JOIN);",
		"DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);")
	return m
}

// SettleParts implements [backend.Backend]. Like Settle, it runs one batch. The statements that insert
// the new rows read the original rows, and so lock them.
func (d *SQLServer) SettleParts(ctx context.Context, tx *sql.Tx, relay string, keep bool, settlements []storage.Settlement) (backend.Settled, error) {
	m := d.newLaneMoves(relay, settlements)
	m.deadLetters()
	for _, parts := range backend.PartsOf(settlements, keep) {
		table, where := d.table.Pending, "g.held = 0 AND t.sinks = g.sinks"
		if parts.Deferred {
			table, where = d.table.Held, heldRow+" AND "+backend.Undecided
		}
		from := func(where string) {
			m.add("FROM @given AS g INNER JOIN "+table+" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON "+row,
				"WHERE "+where, "OPTION (FORCE ORDER, LOOP JOIN);")
		}
		if len(parts.Done) > 0 {
			m.add("INSERT INTO "+d.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)",
				"SELECT "+backend.KeptFor("g.part")+", g.attempts, g.crashes, t.available_at, "+newError+", SYSUTCDATETIME(), g.receipt, "+m.args.add(relay))
			from("g.state = N'done' AND " + where)
		}
		if len(parts.Held) > 0 {
			m.add("INSERT INTO "+d.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)",
				"SELECT "+backend.KeptFor("g.part")+", g.attempts, g.crashes, "+newAvailable+", "+newError+", "+newLog+", g.state, g.holds")
			from("g.state NOT IN (N'done', N'discarded') AND " + where)
		}
		m.change(table, "sinks = g.rest", where)
	}
	return backend.ReadSettled(ctx, tx, m.settle(leasesHeld))
}

// settleRows returns a batch that settles claimed rows, and checks the claim's token. Its first SELECT locks all rows, and counts the rows
// that belong to another claim. So the later statements skip exactly the counted rows. This SELECT has no filter, because READ COMMITTED
// unlocks rows that a filter removes. The batch also locks the claim mode, because a concurrent change of the mode skips locked rows, and
// so would leave them claimed.
func (d *SQLServer) settleRows(name string, keep bool, settlements []storage.Settlement) backend.Query {
	m := d.newMoves(settlements, "nvarchar(255)", " "+binary, func(s *storage.Settlement) any { return s.Token })
	m.token = " AND t.claim_token = g.claim"
	m.add(
		"DECLARE @fenced int;",
		d.sql.Text("begin"),
		"DELETE g FROM @given AS g WHERE NOT "+d.sql.Text("by rows")+";",
		"SET @fenced = @@ROWCOUNT;",
		"SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g",
		"INNER JOIN "+d.table.Pending+" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON "+row,
		"OPTION (FORCE ORDER, LOOP JOIN);")
	m.move(name, keep)
	return m.settle("UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0)")
}

// moves builds the batch of SQL for one call of Settle, with only the statements that its
// settlements need.
type moves struct {
	*SQLServer
	args   args
	groups backend.Groups
	token  string // the condition that a row of outbox has the claim's token or, in leased lanes, the settlements' sinks; empty if the settlements name none
	lines  []string

	deadHot, deadHeld []storage.Settlement // the settlements that write a dead letter
}

// newMoves begins a batch, which reads the settlements into the table variable @given. The column
// `claim` of @given has each settlement's fence or token, which claimOf returns. The argument
// `claim` is the column's SQL type.
func (d *SQLServer) newMoves(settlements []storage.Settlement, claim, collate string, claimOf func(*storage.Settlement) any) *moves {
	m := &moves{SQLServer: d, groups: backend.GroupsOf(settlements)}
	m.deadHot, m.deadHeld = backend.DeadLettersOf(settlements)
	// Only batches with rows that go to the held table or are released have the column `attempt_log`.
	logged := len(m.groups.HotHeld)+len(m.groups.HeldHeld)+len(m.groups.Freed) > 0
	items := backend.Column(settlements, func(s *storage.Settlement) []any {
		item := []any{s.Lane, s.ID, claimOf(s), s.State, s.Deferred, s.Attempts, s.Crashes, millis(s.Delay), bind.Nullable(s.Error), bind.Nullable(s.Receipt), s.MessageID, backend.HoldsOf(s), s.Sinks, s.For, s.Left, timestamp(backend.ReadAt(s))}
		if logged {
			item = append(item, bind.Nullable(backend.AttemptLog(s)))
		}
		return item
	})
	columns, column, path := "lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at", "", ""
	if logged {
		columns += ", attempt_log"
		column, path = " attempt_log nvarchar(max) "+binary+",", ", attempt_log nvarchar(max) '$[16]'"
	}
	m.add(
		d.sql.Text("prepare"),
		"DECLARE @changed bigint = 0;",
		"DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim "+claim+collate+" NOT NULL, state nvarchar(10) "+binary+" NOT NULL, held bit NOT NULL,",
		"    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) "+binary+", receipt nvarchar(max) "+binary+", message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,",
		"    sinks nvarchar(400) "+binary+" NOT NULL, part nvarchar(400) "+binary+" NOT NULL, rest nvarchar(400) "+binary+" NOT NULL, read_at datetime2(7) NOT NULL,"+column+" INDEX place CLUSTERED (lane, id));",
		"INSERT INTO @given ("+columns+")",
		"SELECT "+columns+" FROM OPENJSON("+m.args.add(dialect.SQLServerList(items))+") WITH (lane smallint '$[0]', id bigint '$[1]', claim "+claim+" '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',",
		"    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',",
		"    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]'"+path+");")
	return m
}

// row is the condition that t is the row of the settlement g.
const row = "t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id"

// heldRow is the additional condition for settlements of held rows: t and g have the same sinks, and t isn't parked.
const heldRow = "g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error'"

func (m *moves) add(lines ...string) { m.lines = append(m.lines, lines...) }

// settle completes the batch: the batch commits, and then selects the number of changed rows. The argument is a part of
// this SELECT that begins with UNION ALL.
func (m *moves) settle(more string) backend.Query {
	m.add(
		m.sql.Text("commit"),
		"SELECT N'changed', @changed, CONVERT(bigint, 0)",
		more)
	return m.args.query(m.lines...)
}

// newError, newLog and newAvailable are the new values of a row t whose settlement is g.
const (
	newError     = "COALESCE(g.error, t.last_error)"
	newLog       = "COALESCE(g.attempt_log, t.attempt_log)"
	newAvailable = "CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END"
)

func (m *moves) move(relay string, keep bool) {
	const hot, held = "g.held = 0", heldRow
	m.deadLetters()
	if len(m.groups.HotDone) > 0 {
		m.finish(m.table.Pending, hot+m.token, relay, keep)
	}
	if len(m.groups.HeldDone) > 0 {
		m.finish(m.table.Held, held, relay, keep)
	}
	if len(m.groups.HotHeld) > 0 {
		m.take(m.table.Pending, "g.state NOT IN (N'done', N'pending') AND "+hot+m.token,
			"OUTPUT "+taken+", "+strings.ReplaceAll(newAvailable, "t.", "deleted.")+", "+takenError+", "+strings.ReplaceAll(newLog, "t.", "deleted.")+", g.state, g.holds",
			"INTO "+m.table.Held+" ("+backend.Kept+", "+backend.ChangingHeld+", state, holds)")
	}
	if len(m.groups.HeldHeld) > 0 {
		m.change(m.table.Held, "state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = "+newAvailable+", last_error = "+newError+", attempt_log = "+newLog,
			"g.state <> N'done' AND "+held+" AND "+backend.UndecidedStays+" AND "+backend.AsRead("g.read_at"))
	}
	if len(m.groups.Freed) > 0 {
		m.change(m.table.Pending, "claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = "+newError+", attempt_log = "+newLog,
			"g.state = N'pending' AND "+hot+m.token)
	}
}

// deadLetters adds the statements that write dead letters. They run before the rows are moved.
func (m *moves) deadLetters() {
	if len(m.deadHot) > 0 {
		where := "g.held = 0" + m.token
		if backend.BySinks(&m.deadHot[0]) {
			where += " AND t.sinks = g.sinks"
		}
		m.copies(m.table.Pending, m.deadHot, where)
	}
	if len(m.deadHeld) > 0 {
		m.copies(m.table.Held, m.deadHeld, heldRow+" AND "+backend.Undecided+" AND "+backend.AsRead("g.read_at"))
	}
}

// copies adds the statement that writes the DeadLetters of settlements in @given. The argument `from` is the table of the settlements'
// rows, and `where` is a condition on these rows. Rows that don't meet the condition get no dead letter. The statement locks the rows that
// it copies until the transaction ends. ORDER BY makes the server assign ids in the order of the rows.
func (m *moves) copies(from string, settlements []storage.Settlement, where string) {
	items := backend.Column(settlements, func(s *storage.Settlement) []any {
		c := s.DeadLetter
		return []any{s.Lane, s.ID, s.MessageID, s.Sinks, c.MessageID, c.Topic, bind.Nullable(c.Headers), c.Sinks}
	})
	m.add(
		"INSERT INTO "+m.table.Pending+" ("+backend.CopyInto+")",
		"SELECT "+strings.ReplaceAll(backend.CopyFrom("SYSUTCDATETIME()"), "g.", "c."),
		"FROM OPENJSON("+m.args.add(dialect.SQLServerList(items))+") WITH (lane smallint '$[0]', id bigint '$[1]', message_id uniqueidentifier '$[2]', sinks nvarchar(400) '$[3]',",
		"    copy_id uniqueidentifier '$[4]', copy_topic nvarchar(255) '$[5]', copy_headers nvarchar(max) '$[6]', copy_sinks nvarchar(400) '$[7]') AS c",
		"INNER JOIN @given AS g ON g.lane = c.lane AND g.id = c.id AND g.message_id = c.message_id AND g.sinks = c.sinks "+binary,
		"INNER JOIN "+from+" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON "+row,
		"WHERE "+where,
		"ORDER BY t.id",
		"OPTION (FORCE ORDER, LOOP JOIN);")
}

// taken has the values that a deleted row gets in its new table, for the columns backend.Kept and the first two
// of backend.Changing. takenError is the value for last_error.
var (
	taken      = backend.Of("deleted", backend.Kept) + ", g.attempts, g.crashes"
	takenError = strings.ReplaceAll(newError, "t.", "deleted.")
)

func (m *moves) finish(from, where, relay string, keep bool) {
	where = "g.state = N'done' AND " + where
	if !keep {
		m.take(from, where)
		return
	}
	m.take(from, where,
		"OUTPUT "+taken+", deleted.available_at, "+takenError+", SYSUTCDATETIME(), g.receipt, "+m.args.add(relay),
		"INTO "+m.table.Done+" ("+backend.Kept+", "+backend.Changing+", finished_at, receipt, relay)")
}

// The methods `take` and `change` add a DELETE and an UPDATE to the batch. Both statements find each
// row by its key, because a scan would wait for open writers.
func (m *moves) take(from, where string, output ...string) {
	m.add("DELETE t")
	m.add(output...)
	m.found(from, where)
}

func (m *moves) change(table, set, where string) {
	m.add("UPDATE t SET " + set)
	m.found(table, where)
}

func (m *moves) found(table, where string) {
	m.add(
		"FROM @given AS g INNER JOIN "+table+" AS t WITH (FORCESEEK, ROWLOCK) ON "+row,
		"WHERE "+where,
		"OPTION (FORCE ORDER, LOOP JOIN);",
		"SET @changed = @changed + @@ROWCOUNT;")
}
