// Package backendtest compares a backend's statements with the content of a file. It needs no database.
package backendtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// Recorder is a database that records the statements that it receives.
type Recorder = backend.Recorder

// Golden compares the content of a file with all statements that a backend runs for the table app.Events, so that each change
// of the SQL changes the file. It returns the statements. If update is set, Golden rewrites the file first. If the argument
// `other` isn't empty, it is the path of another database's file. Where both databases have the same statements, Golden's file
// refers to the other file. The file omits the dialect's statements about indexes, which another golden file has. The recorder
// must answer each statement so that the backend's method doesn't end early.
func Golden(t *testing.T, file, other string, update bool, recorder *Recorder, d dialect.Dialect, make func(*sql.DB, dialect.Table) backend.Backend) []backend.Query {
	t.Helper()
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	table := Table(t, "app.Events")
	g := &golden{T: t, Recorder: recorder, Backend: make(db, table), db: db, other: other, indexes: map[string]bool{}}
	for _, query := range append(d.DropRowIndexes(table), d.RowIndexes(table)) {
		g.indexes[query.SQL] = true
	}
	if other != "" {
		text, err := os.ReadFile(other)
		if err != nil {
			t.Fatal(err)
		}
		g.others = "\n" + string(text)
	}
	g.members()
	g.lanes()
	g.pages()
	g.settling()
	g.rows()
	g.operating()
	if update {
		if err := os.WriteFile(file, []byte(g.text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || g.text.String() != string(want) {
		t.Errorf("the statements differ from %s (%v); if the change is intended, run the test with -update and review the file", file, err)
	}
	return g.all
}

// Table returns the table with this name.
func Table(t *testing.T, name string) dialect.Table {
	t.Helper()
	table, err := dialect.ParseTable(name)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

type golden struct {
	*testing.T
	*Recorder
	backend.Backend
	db      *sql.DB
	other   string          // the path of the other database's file
	others  string          // the text of the other database's file
	indexes map[string]bool // the dialect's statements about indexes
	text    strings.Builder
	all     []backend.Query
}

// add adds the statements that were recorded since the last call of add.
func (g *golden) add(what string, err error) {
	g.Helper()
	if err != nil {
		g.Errorf("%s: %v", what, err)
	}
	asked := &strings.Builder{}
	fmt.Fprintf(asked, "-- %s\n", what)
	for _, query := range g.Taken() {
		g.all = append(g.all, query)
		if g.indexes[query.SQL] {
			asked.WriteString("-- a statement of the dialect, about the indexes for claiming by rows\n")
			continue
		}
		ending := ";"
		if strings.HasSuffix(query.SQL, "END;") {
			ending = "\n/" // a block ends with a slash on a separate line
		}
		fmt.Fprintf(asked, "%s%s\n", query.SQL, ending)
		for i, arg := range query.Args {
			fmt.Fprintf(asked, "--   %d: %.100s\n", i+1, strings.TrimSpace(fmt.Sprint(arg)))
		}
	}
	asked.WriteString("\n")
	if strings.Contains(g.others, "\n"+asked.String()) {
		fmt.Fprintf(&g.text, "-- %s: as in %s\n\n", what, path.Base(g.other))
	} else {
		g.text.WriteString(asked.String())
	}
}

// ask runs a query and ignores its rows.
func (g *golden) ask(query backend.Query) error {
	if query.SQL == "" {
		return nil
	}
	_, err := backend.Any(context.Background(), g.db, query)
	return err
}

func (g *golden) members() {
	ctx, queries, statements := context.Background(), g.Capabilities().Queries, g.Capabilities().Statements
	claim := storage.ByLanes
	g.add("claim mode", g.ask(statements.Query("claim mode")))
	g.add("set the claim mode", g.SetClaimMode(ctx, claim))
	_, err := g.Heartbeat(ctx, storage.Identity{Name: "r", Host: "h", Version: "1", Claim: claim}, 15*time.Second)
	g.add("heartbeat", errors.Join(err, g.ask(queries.Members)))
	g.add("end leases", g.ask(statements.Query("end leases", "r")))
	g.add("end claims", g.ask(statements.Query("end claims", "r")))
	g.add("deregister", g.ask(statements.Query("deregister", "r")))
	g.Check(ctx, claim)
	g.add("check", nil)
}

func (g *golden) lanes() {
	ctx := context.Background()
	leases := []backend.Lease{
		{Lease: storage.Lease{Lane: 1, Fence: 7}, Marks: `{"main":5}`, Journal: `[{"id":1}]`, Calm: true},
		{Lease: storage.Lease{Lane: 2, Fence: 8}},
	}
	_, _, err := g.Acquire(ctx, "r", 5, 15*time.Second, 300)
	g.add("acquire", err)
	_, _, err = g.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.Renew, Relay: "r", Epoch: "e", TTL: 15 * time.Second, Keeps: backend.Column(leases, func(l *backend.Lease) storage.Lease { return l.Lease })}, leases)
	g.add("renew", err)
	_, _, err = g.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.Release, Relay: "r", Epoch: "e"}, leases)
	g.add("release", err)
	_, _, err = g.ChangeLeases(ctx, backend.LeaseChange{Kind: backend.WriteJournal, Relay: "r"}, leases)
	g.add("write the journal", err)
	g.add("journals", g.ask(g.Capabilities().Statements.Query("journals")))
	g.add("marks", g.ask(g.Capabilities().Statements.Query("marks")))
}

func (g *golden) pages() {
	ctx := context.Background()
	positions := []storage.Position{{Lane: 1, After: 10, Until: 20}, {Lane: 2, After: 11, Until: 21}}
	keyed := []storage.Position{{Lane: 1, After: 10, Until: 20, Key: `a"\k`}}
	at := time.Date(2026, 1, 31, 23, 59, 59, 123456000, time.UTC)
	places := []storage.RowID{{Lane: 1, ID: 15}, {Lane: 2, ID: 16}}
	take := func(storage.Row) (bool, error) { return true, nil }
	if security := g.Capabilities().Queries.RowSecurity; security.SQL != "" {
		g.add("row security", g.ask(security))
	}
	if order := g.Capabilities().Queries.IDsOutOfOrder; order.SQL != "" {
		g.add("ids out of order", g.ask(order))
	}
	g.add("last id", g.ask(g.Capabilities().Queries.LastID))
	if from := g.Capabilities().Queries.WrittenFrom; from.SQL != "" {
		g.add("written from", g.ask(from))
	}
	_, err := g.Read(ctx, backend.Read{}, nil)
	g.add("first line", err)
	for _, page := range []struct {
		what string
		backend.Read
	}{
		{"read", backend.Read{Positions: positions, Limit: 100}},
		{"read a share", backend.Read{Positions: positions, Limit: 100, Share: 7, Number: true}},
		{"read bytes", backend.Read{Positions: positions, Limit: 100, MaxBytes: 1 << 20}},
		{"read except", backend.Read{Positions: positions, Limit: 100, Except: []string{"t1", "t2"}}},
		{"read keys", backend.Read{Positions: keyed, Limit: 100}},
	} {
		_, err := g.Read(ctx, page.Read, take)
		g.add(page.what, err)
	}
	g.add("candidates", g.ask(g.Candidates(positions, []string{"t1"}, 100)))
	g.add("pick", g.ask(g.Pick(places, false)))
	g.add("pick held", g.ask(g.Pick(places, true)))
	g.add("attempt logs", g.ask(g.AttemptLogs(places, false)))
	g.add("attempt logs of held rows", g.ask(g.AttemptLogs(places, true)))
	g.add("due", g.ask(g.Due([]int{1, 2}, storage.DueCursor{At: at, ID: 9}, 100, 1<<20)))
	g.add("blocked keys", g.ask(g.BlockedKeys([]int{1, 2}, 100)))
	g.add("blocked among keys", g.ask(g.BlockedAmong([]storage.LaneKey{{Lane: 1, Key: `a"\k`}, {Lane: 2, Key: "b"}, {Lane: 1, Key: "c"}})))
	g.add("remaining", g.ask(g.Remaining(1000)))
	if lister, lists := g.Backend.(backend.TransactionLister); lists {
		_, err := lister.ListOpen(ctx, "TOKEN")
		g.add("list open transactions", err)
	}
}

func (g *golden) settling() {
	ctx := context.Background()
	settle := func(what string, keep bool, settlements ...storage.Settlement) {
		_, err := g.Settle(ctx, nil, "r", keep, settlements)
		before := len(g.all)
		g.add(what, err)
		delivered := !slices.ContainsFunc(settlements, func(s storage.Settlement) bool { return s.State != storage.StateDone })
		if delivered && slices.ContainsFunc(g.all[before:], func(query backend.Query) bool { return strings.Contains(query.SQL, "attempt_log") }) {
			g.Errorf("%s: a statement for delivered messages has the column attempt_log, want the column only in statements for failed messages", what)
		}
	}
	done := storage.Settlement{ID: 5, MessageID: message(5), Lane: 1, Fence: 7, State: storage.StateDone, Attempts: 1, Receipt: "0/5"}
	other := done
	other.ID, other.MessageID, other.Receipt = 6, message(6), "0/6"
	retry := storage.Settlement{ID: 6, MessageID: message(6), Lane: 1, Fence: 7, State: storage.StateRetry, Attempts: 2, Delay: time.Second, Error: `it's "broken"`}
	parked := storage.Settlement{ID: 7, MessageID: message(7), Lane: 2, Fence: 8, State: storage.StateError, Deferred: true}
	back := storage.Settlement{ID: 8, MessageID: message(8), Lane: 2, Fence: 8, State: storage.StateDone, Deferred: true}
	pending := storage.Settlement{ID: 9, MessageID: message(9), Lane: 2, Token: "t", State: storage.StatePending}
	claimed := storage.Settlement{ID: 10, MessageID: message(10), Lane: 2, Token: "t", State: storage.StateDone}
	failed := storage.Settlement{ID: 11, MessageID: message(11), Lane: 2, Token: "t", State: storage.StateRetry, Attempts: 1, Delay: time.Second, Error: "refused"}
	dead := retry
	dead.State, dead.DeadLetter = storage.StateError, &storage.Copy{MessageID: message(20), Topic: "dead", Headers: `{"rowrelay-dead-letter-sink":"a"}`, Sinks: "c"}
	deadBack := parked
	deadBack.Holds, deadBack.DeadLetter = true, &storage.Copy{MessageID: message(21), Topic: "dead.other"}
	deadClaimed := failed
	deadClaimed.State, deadClaimed.DeadLetter = storage.StateError, dead.DeadLetter
	settle("settle: done", true, done)
	settle("settle: done, with different receipts", true, done, other)
	settle("settle: done, not kept", false, done)
	settle("settle: rows of several kinds", true, done, retry, parked, back)
	settle("settle: dead letters", true, done, dead, deadBack)
	tried, triedBack, triedClaimed := retry, parked, failed
	tried.Failed = []storage.Attempt{{At: time.Date(2026, 1, 31, 23, 59, 59, 0, time.UTC), Relay: "r", Sink: "s", Answer: `it's "broken"`, DurationMS: 12}}
	triedBack.Failed, triedClaimed.Failed = append(tried.Failed, tried.Failed...), tried.Failed
	settle("settle: failed attempts", true, tried, triedBack)
	settle("settle by rows: a failed attempt", true, triedClaimed)
	first, second := done, parked
	first.For, first.Left = "a", "b,c"
	second.Sinks, second.For, second.Left = "a,b", "b", "a"
	part := retry
	part.For, part.Left = "a", "b"
	err := backend.InTx(ctx, g.db, g.Capabilities().Tx, nil, func(tx *sql.Tx) error {
		_, err := g.SettleParts(ctx, tx, "r", true, []storage.Settlement{first, part, second})
		return err
	})
	g.add("settle for some sinks", err)
	dead.For, dead.Left = "a", "b"
	deadBack.Sinks, deadBack.For, deadBack.Left = "a,b", "a", "b"
	err = backend.InTx(ctx, g.db, g.Capabilities().Tx, nil, func(tx *sql.Tx) error {
		_, err := g.SettleParts(ctx, tx, "r", true, []storage.Settlement{dead, deadBack})
		return err
	})
	g.add("settle for some sinks: dead letters", err)
	twin := back
	twin.Sinks = "b"
	back.Sinks = "a"
	settle("settle: deferred rows of two sinks", true, back, twin)
	settle("settle by rows: done", true, claimed)
	settle("settle by rows", true, pending, claimed)
	settle("settle by rows, not kept", false, claimed, failed)
	settle("settle by rows: a dead letter", false, claimed, deadClaimed)
	_, _, err = g.Purge(ctx, 24*time.Hour, 100, time.Date(2026, 10, 5, 1, 2, 3, 4000, time.UTC))
	g.add("purge", errors.Join(err, g.ask(g.Capabilities().Queries.PurgeRelays)))
}

// message returns the message id of the row with this id.
func message(id int64) string { return fmt.Sprintf("0197a3b4-0000-7abc-8def-%012d", id) }

func (g *golden) rows() {
	ctx := context.Background()
	request := storage.ClaimRequest{Relay: "r", Token: "t", TTL: time.Minute, Limit: 10, Pick: storage.Oldest}
	_, err := g.Claim(ctx, request)
	g.add("claim the oldest", err)
	request.Pick, request.Topics, request.Except, request.MaxBytes = storage.Priority, []string{"a", "b"}, []string{"c"}, 1<<20
	_, err = g.Claim(ctx, request)
	g.add("claim the highest priorities of some topics", err)
	g.add("has free rows", g.ask(g.Capabilities().Queries.FreeRow))
	g.add("has ended claims", g.ask(g.Capabilities().Queries.EndedClaim))
	_, err = g.Extend(ctx, "t", []int64{1, 2}, time.Minute)
	g.add("extend", err)
	_, err = g.Reclaim(ctx, 10)
	g.add("reclaim", err)
}

func (g *golden) operating() {
	ctx := context.Background()
	filter := backend.Filter{
		Filter: storage.Filter{Topic: "t", Key: "k", Sink: "s", State: storage.StateError, Since: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), Error: "refused", AfterID: 3, Limit: 10},
		ByID:   true, RowIDs: []int64{1}, MessageIDs: []string{"0197a3b4-0000-7abc-8def-0123456789ab"},
	}
	_, err := g.List(ctx, backend.Filter{Filter: storage.Filter{Limit: 10}})
	g.add("list", err)
	_, err = g.List(ctx, filter)
	g.add("list by filter", err)
	_, err = g.List(ctx, backend.Filter{Filter: storage.Filter{Topic: "t", Limit: 10, AfterID: 3, LookThrough: 20_000, NoPayloads: true}})
	g.add("list by filter, with a limit of rows to examine", err)
	_, err = g.List(ctx, backend.Filter{Filter: storage.Filter{Limit: 10}, ByID: true, MessageIDs: []string{"0197a3b4-0000-7abc-8def-0123456789ab"}, UntilID: 9})
	g.add("list by a message's id, among few rows", err)
	_, err = g.ChangeParked(ctx, filter, backend.Requeue)
	g.add("requeue", err)
	_, err = g.List(ctx, backend.Filter{Filter: storage.Filter{TopicPrefix: "orders.", Limit: 10}})
	g.add("list by a topic's prefix", err)
	redirect := backend.Filter{Filter: storage.Filter{Topic: "t", Limit: 10}, To: "other"}
	_, err = g.ChangeParked(ctx, redirect, backend.Redirect)
	g.add("redirect", err)
	redirect.Sink = "s"
	for _, change := range []backend.ParkedChange{backend.RedirectRetry, backend.RedirectScheduled, backend.RedirectPending} {
		_, err = g.ChangeParked(ctx, redirect, change)
		g.add("redirect rows in the state "+string(change.State()), err)
	}
	_, err = g.ChangeParked(ctx, filter, backend.AskSkip)
	g.add("ask for a skip", err)
	_, err = g.ChangeParked(ctx, filter, backend.AskDiscard)
	g.add("ask for a discard", err)
	_, err = g.ChangeParked(ctx, filter, backend.DiscardAtOnce)
	g.add("discard", err)
	err = g.Parked(ctx, filter, 0, func(storage.Parked) {})
	g.add("parked", err)
	answer := g.Answer
	g.Answer = func(query string) [][]driver.Value {
		if strings.HasPrefix(query, "SELECT min(t.id)") {
			return [][]driver.Value{{int64(15)}}
		} else if answer == nil {
			return nil
		}
		return answer(query)
	}
	err = g.Parked(ctx, backend.Filter{Filter: storage.Filter{Topic: "t"}}, 1000, func(storage.Parked) {})
	g.add("parked, and overtaken rows", err)
	g.Answer = answer
	statements, ask := g.Capabilities().Statements, func(queries ...backend.Query) error {
		_, err := backend.Exec(context.Background(), g.db, queries...)
		return err
	}
	g.add("replays", g.ask(statements.Query("replays")))
	g.add("last delivered", g.ask(statements.Query("last delivered")))
	paused := storage.Control{Kind: storage.PauseSink, Name: "kafka", By: "ann@host", Reason: "why"}
	g.add("controls", g.ask(statements.Query("controls in force")))
	g.add("set a control", ask(statements.Setting(paused, time.Minute)...))
	g.add("lift a control", ask(statements.Lifting(paused)...))
	g.add("begin an action", ask(statements.Beginning("0197a3b4-ffff-7abc-8def-0123456789ab", paused.Lifted())))
	g.add("end an action", ask(statements.Ending("0197a3b4-ffff-7abc-8def-0123456789ab", 1)))
	g.add("actions", g.ask(statements.Query("log of actions")))
	if _, explains := g.Backend.(backend.Explainer); explains {
		g.add("statistics", g.ask(statements.Query("renew statistics")))
	}
	g.add("old done rows", g.ask(statements.Query("delete old done")))
	delivered := filter
	delivered.Since, delivered.DoneSince, delivered.DoneUntil = time.Time{}, filter.Since, filter.Since.AddDate(0, 0, 1)
	_, err = g.Delivered(ctx, delivered, 9)
	g.add("delivered", err)
	_, err = g.LastDelivered(ctx, backend.Filter{Filter: storage.Filter{Limit: 200}, DoneSince: filter.Since})
	g.add("last delivered rows", err)
	// The recorder reports no changed row for the replay, so ChangeReplay rolls its transaction back.
	if _, err := g.ChangeReplay(ctx, backend.ReplayChange{Name: "r", Is: func(int) string { return "{}" }}); !errors.Is(err, storage.ErrReplayChanged) {
		g.Errorf("begin a replay: %v", err)
	}
	g.add("begin a replay", nil)
	var copies []storage.Settlement
	for i, id := range []int64{5, 6} {
		copies = append(copies, storage.Settlement{ID: id, MessageID: message(id), Lane: i + 1, DeadLetter: &storage.Copy{MessageID: message(id), Topic: "t", Headers: fmt.Sprintf(`{"n":"%d"}`, id)}})
	}
	_, err = g.ChangeReplay(ctx, backend.ReplayChange{Name: "r", Was: "{}", Copies: copies, Is: func(int) string { return `{"n":1}` }})
	if !errors.Is(err, storage.ErrReplayChanged) {
		g.Errorf("replay: %v", err)
	}
	g.add("replay", nil)
	g.add("count pending", g.ask(backend.PendingAmong(g.Capabilities().Pending, []storage.RowID{{Lane: 1, ID: 15}, {Lane: 2, ID: 16}, {Lane: 1, ID: 17}})))
	_, err = backend.ReadStatus(ctx, g.db, g.Capabilities())
	g.add("status", err)
}
