package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/internal/backend"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// A check reports missing prerequisites of a relay, and conditions that would make the relay slow.
// It changes nothing, and its duration doesn't depend on the size of the table.

// Finding is one result of a check.
type Finding = storage.Finding

// Check examines everything that a relay needs in a database: the versions of the server and the
// schema, the privileges of this user, the settings, and the plans of the statements. It changes
// nothing. If the tables are missing or have another version, Check reports this and stops.
func Check(ctx context.Context, db *sql.DB, d dialect.Dialect, options Options, claim storage.Claim) []Finding {
	s, err := newStore(db, d, options)
	if err != nil {
		return []Finding{{Name: "table", Detail: err.Error()}}
	}
	if err := db.PingContext(ctx); err != nil {
		return []Finding{{Name: "connection", Detail: err.Error(), Hint: "check that the server is running and that the URL, the user and the password are correct"}}
	}
	findings := []Finding{{Name: "connection", OK: true}}
	unordered, err := s.detect(ctx, func(context.Context) error { return nil })
	if err != nil {
		return append(findings, Finding{Name: "server", Detail: err.Error(), Hint: "see the README for the supported versions"})
	}
	if err := s.checkVersion(ctx); err != nil {
		schema := Finding{Name: "schema", Detail: err.Error(), Hint: "run rowrelay migrate up"}
		switch {
		case errors.Is(err, storage.ErrNewerSchema):
			schema.Hint = "use the release that created the schema, or a newer one; rowrelay version prints this release"
		case errors.As(err, new(*storage.ForeignTable)):
			schema.Hint = "choose another name for rowrelay's tables"
		}
		if !d.Denied(err) {
			if hidden := s.checkRowSecurity(ctx); !hidden.OK { // row-level security may hide the version
				schema = hidden
			}
			return append(findings, schema)
		}
		// If the user may not read the version, nothing else can be checked. The finding "rights" lists all missing
		// privileges.
		for _, finding := range s.backend.Check(ctx, claim) {
			if finding.Name == "rights" {
				return append(findings, finding)
			}
		}
		return append(findings, schema)
	}
	if err := s.openFrontier(ctx, 0, unordered); err != nil {
		findings = append(findings, Finding{Name: "open transactions", Detail: err.Error(), Hint: "see the finding \"rights\" for missing privileges"})
	}
	return append(findings, s.Check(ctx, claim)...)
}

// Check examines the database of an open store, as the function [Check] does before a store is opened.
func (s *Store) Check(ctx context.Context, claim storage.Claim) []Finding {
	if err := s.notMade(); err != nil {
		return []Finding{{Name: "schema", Detail: err.Error()}}
	}
	findings := append(slices.Clone(s.Findings), Finding{Name: "schema", OK: true, Detail: "version " + s.schema}, s.checkColumns(ctx), s.checkFixedRows(ctx), s.checkClock(ctx), s.checkClaim(ctx, claim))
	lists, known := s.frontier.(*openTx)
	byTime := known && lists.bound != nil
	if known && !byTime && !lists.db.tells(ctx) {
		findings = append(findings, silenced)
	}
	if claim != storage.ByRows {
		findings = append(findings, s.checkMarks(ctx))
	}
	if s.capabilities.Queries.RowSecurity.SQL != "" {
		findings = append(findings, s.checkRowSecurity(ctx))
	}
	if explainer, ok := s.backend.(backend.Explainer); ok {
		findings = append(findings, s.checkPlans(ctx, explainer, claim))
	}
	for _, finding := range s.backend.Check(ctx, claim) {
		if finding.Name == "transactions" && byTime {
			continue // another finding reports why the store doesn't list transactions
		}
		findings = append(findings, finding)
	}
	return findings
}

func (s *Store) checkClaim(ctx context.Context, claim storage.Claim) Finding {
	finding := Finding{Name: "claim"}
	var stored storage.Claim
	err := backend.One(ctx, s.db, s.capabilities.Statements.Query("claim mode"), &stored)
	switch {
	case err != nil:
		finding.Detail = err.Error()
	case stored != "" && claim != "" && stored != claim:
		finding.Detail = fmt.Sprintf("the table's claim mode is %s, and this relay's is %s", stored, claim)
		finding.Hint = "stop all relays that claim by " + string(stored) + "; the next relay to start then sets its own claim mode"
	default:
		finding.OK, finding.Detail = true, string(stored)
	}
	return finding
}

// A lane's mark is the id up to which relays have read the lane. checkMarks checks that no id
// at or below a mark can still be assigned, and that no message with such an id is pending. It
// searches only lanes with one mark for all sinks. In other lanes, messages for a slow sink may
// be pending below the mark.
func (s *Store) checkMarks(ctx context.Context) Finding {
	finding := Finding{Name: "marks"}
	marks, err := backend.Marks(ctx, s.db, s.capabilities.Statements.Query("marks"))
	if err != nil {
		finding.Detail = err.Error()
		return finding
	}
	given, err := s.lastID(ctx)
	if err != nil {
		finding.Detail = err.Error()
		return finding
	}
	var positions []storage.Position
	for lane, m := range marks {
		if m.Main > given {
			finding.Detail = fmt.Sprintf("the id sequence was reset: lane %d was read up to %d, and the highest assigned id is %d", lane, m.Main, given)
			finding.Hint = "no action is needed: the next relay to lease the lane reads it from its beginning"
			return finding
		}
		if m.Main > 0 && len(m.Sinks) == 0 {
			positions = append(positions, storage.Position{Lane: lane, Until: m.Main})
		}
	}
	slices.SortFunc(positions, func(a, b storage.Position) int { return a.Lane - b.Lane })
	if len(positions) > 0 {
		var waiting []storage.Candidate
		_, _, err := s.Scan(ctx, positions, nil, func(c storage.Candidate) bool {
			waiting = append(waiting, c)
			return false
		})
		if err != nil {
			finding.Detail = err.Error()
			return finding
		}
		if len(waiting) > 0 {
			finding.Detail = fmt.Sprintf("at least %d messages wait below the ids up to which relays have read, the first with the id %d in lane %d: the id sequence was reset, or a transaction was open for a very long time", len(waiting), waiting[0].ID, waiting[0].Lane)
			finding.Hint = "no action is needed: a relay finds and delivers these messages when it leases their lanes, or within ten minutes if it has leased the lanes already"
			return finding
		}
	}
	finding.OK = true
	return finding
}

// columns lists, for each table, the columns that statements use on all databases. The field table
// has the suffix of the table's name, which is empty for the table outbox.
var columns = []struct{ table, names string }{
	{"", "id lane message_id topic message_key payload payload_text headers priority attempts crashes available_at last_error attempt_log claimed_by claim_token claimed_until created_at expires_at sinks"},
	{"held", "id lane state message_id topic message_key payload payload_text headers priority attempts crashes available_at last_error attempt_log created_at expires_at holds sinks"},
	{"done", "id lane message_id topic message_key payload payload_text headers priority attempts crashes available_at last_error created_at finished_at receipt relay expires_at sinks"},
	{"lanes", "lane owner fence until marks journal crashes"},
	{"relays", "name host version claim since last_heartbeat until setup"},
	{"settings", "name value"},
	{"ids", "message_id write_token written_at"},
	{"controls", "kind name rate ends_at made_by made_at reason"},
	{"actions", "id made_at made_by action target reason changed"},
}

// checkColumns reports missing tables and columns. Even if the schema has the required version, columns may
// be missing, because tables may have been changed by hand or created by an unreleased version.
func (s *Store) checkColumns(ctx context.Context) Finding {
	finding := Finding{Name: "columns", OK: true}
	var missing []string
	tables := s.quotedTable()
	for _, table := range columns {
		name := tables.Pending
		if table.table != "" {
			name = tables.Index(table.table)
		}
		there, err := backend.TableColumns(ctx, s.db, name)
		switch {
		case err != nil && s.dialect.Denied(err):
			continue // the finding "rights" reports the missing privilege
		case err != nil && s.dialect.Missing(err):
			missing = append(missing, "the table "+name)
			continue
		case err != nil:
			return Finding{Name: finding.Name, Detail: fmt.Sprintf("read the columns of %s: %v", name, err)}
		}
		for column := range strings.FieldsSeq(table.names) {
			if !slices.Contains(there, column) {
				missing = append(missing, name+"."+column)
			}
		}
	}
	if len(missing) > 0 {
		finding.OK, finding.Detail = false, "missing: "+strings.Join(missing, ", ")
		finding.Hint = "the tables were changed by hand, or created by a version of this program that was never released: compare them with the output of rowrelay migrate print, and create what is missing"
	}
	return finding
}

// mostAhead is the largest accepted difference between the clocks of the database and of this host.
const mostAhead = 5 * time.Second

// checkClock compares the database's clock with this host's clock.
func (s *Store) checkClock(ctx context.Context) Finding {
	began := time.Now()
	now, _, zone, err := backend.Clock(ctx, s.db, s.capabilities.Statements.Query("clock"))
	if err != nil {
		return Finding{Name: "clock", Detail: err.Error()}
	}
	finding := Finding{Name: "clock", OK: true}
	took := time.Since(began)
	ahead := now.Sub(began.Add(took / 2))
	finding.Detail = fmt.Sprintf("the database's clock is %v ahead of this host's", ahead.Round(time.Millisecond))
	if ahead < 0 {
		finding.Detail = fmt.Sprintf("the database's clock is %v behind this host's", -ahead.Round(time.Millisecond))
	}
	if zone != "" {
		finding.Detail += "; its time zone is " + zone + ", and the tables' times are in UTC"
	}
	if ahead.Abs() > mostAhead+took {
		finding.OK = false
		finding.Hint = "synchronize both clocks with NTP: run timedatectl set-ntp true on each host, and check with chronyc tracking. Leases, waits and retention use only the database's clock; the times at which messages are scheduled, expire and were written often come from another host's clock"
	}
	return finding
}

// CheckRetention checks whether the relays delete delivered messages in time. It accepts a delay of an hour, or of a tenth
// of the retention if that is longer. A retention of 0 means that no delivered messages are kept.
func (s *Store) CheckRetention(ctx context.Context, retention time.Duration) Finding {
	if err := s.notMade(); err != nil {
		return Finding{Name: "retention", Detail: err.Error()}
	}
	_, oldest, _, err := backend.Clock(ctx, s.db, s.capabilities.Statements.Query("clock"))
	finding := Finding{Name: "retention", OK: true, Detail: fmt.Sprintf("the oldest delivered message is %v old", oldest.Round(time.Second))}
	if err != nil {
		finding.OK, finding.Detail = false, err.Error()
	} else if oldest == 0 {
		finding.Detail = "the table has no delivered messages"
	} else if behind := oldest - retention; behind > max(time.Hour, retention/10) {
		finding.OK = false
		finding.Detail += fmt.Sprintf(", and the retention is %v: deletion is behind by %v", retention, behind.Round(time.Minute))
		finding.Hint = "a running relay deletes delivered messages, and logs an error with stage=purge if it can't: check with rowrelay status that a relay is alive. If more messages are delivered than deleted, run this as the tables' owner, repeatedly until it deletes nothing: " +
			s.capabilities.Statements.Text("delete old done")
	}
	return finding
}

// ask is a statement that a relay or an operator runs repeatedly.
type ask struct {
	name string
	of   func()
}

// asks returns all statements of a backend that are run repeatedly, except those that count messages for a status. The counting
// statements may read a table in any order, because they stop after a limited number of rows.
func asks(ctx context.Context, b backend.Backend, db *sql.DB, claim storage.Claim) []ask {
	const id = "0197a3b4-0000-7abc-8def-0123456789ab"
	queries, statements := b.Capabilities().Queries, b.Capabilities().Statements
	settle := func(state storage.State, token string, fence int64) func() {
		return func() {
			_, _ = b.Settle(ctx, nil, "r", true, []storage.Settlement{{ID: 65, Lane: 1, MessageID: id, Fence: fence, Token: token, State: state}})
		}
	}
	run := func(query backend.Query) func() { return func() { _, _ = backend.Exec(ctx, db, query) } }
	all := []ask{
		{"the deletion of delivered messages", func() { _, _, _ = b.Purge(ctx, time.Hour, 1000, time.Time{}) }},
		{"the heartbeat", func() {
			_, _ = b.Heartbeat(ctx, storage.Identity{Name: "r", Claim: claim}, time.Second)
		}},
		{"the list of living relays", run(queries.Members)},
		{"the deregistration of a relay", run(statements.Query("deregister", "r"))},
		{"the deletion of relays", run(queries.PurgeRelays)},
		{"the last id", run(queries.LastID)},
		{"the clock and the oldest delivered message", run(statements.Query("clock"))},
		{"the controls in force", run(statements.Query("controls in force"))},
		{"the status: the oldest message", run(queries.Status.Oldest)},
		{"the status: the oldest retry", run(queries.Status.OldestRetry)},
		{"the status: held keys", run(queries.Status.Held)},
		{"the status: relays", run(queries.Status.Relays)},
		{"the status: lanes", run(queries.Status.Leased)},
		{"the status: estimates", run(queries.Status.Estimates)},
		{"the search for rows written at a given time", run(queries.WrittenFrom)},
		{"the list of parked messages", func() {
			_, _ = b.List(ctx, backend.Filter{Filter: storage.Filter{State: storage.StateError, Limit: 100}})
		}},
		{"the requeue of parked messages", func() {
			_, _ = b.ChangeParked(ctx, backend.Filter{Filter: storage.Filter{Limit: 100}}, backend.Requeue)
		}},
		{"the last delivered messages", func() {
			_, _ = b.LastDelivered(ctx, backend.Filter{Filter: storage.Filter{Limit: 100}})
		}},
	}
	if claim == storage.ByRows {
		return append(all,
			ask{"the claim", func() {
				_, _ = b.Claim(ctx, storage.ClaimRequest{Relay: "r", Token: "t", TTL: time.Second, Limit: 500})
			}},
			ask{"the extension of claims", func() { _, _ = b.Extend(ctx, "t", []int64{1}, time.Second) }},
			ask{"the move of due rows to the table outbox", func() { _, _ = b.Reclaim(ctx, 500) }},
			ask{"the search for a free row", run(queries.FreeRow)},
			ask{"the search for an expired claim", run(queries.EndedClaim)},
			ask{"the statement that ends a dead relay's claims", run(statements.Query("end claims", "r"))},
			ask{"the status: claimed messages", run(queries.Status.Claimed)},
			ask{"the settlement of delivered messages", settle(storage.StateDone, "t", 0)},
			ask{"the settlement of retries", settle(storage.StateRetry, "t", 0)})
	}
	var positions []storage.Position
	var lanes []int
	for lane := range storage.Lanes {
		positions, lanes = append(positions, storage.Position{Lane: lane, Until: 1 << 62}), append(lanes, lane)
	}
	change := func(kind backend.LeaseChangeKind) func() {
		return func() {
			leases := []backend.Lease{{Lease: storage.Lease{Lane: 1, Fence: 1}, Marks: "{}", Journal: "{}"}}
			_, _, _ = b.ChangeLeases(ctx, backend.LeaseChange{Kind: kind, Relay: "r", TTL: time.Second}, leases)
		}
	}
	return append(all,
		ask{"the lease of lanes", func() { _, _, _ = b.Acquire(ctx, "r", 64, time.Second, 1) }},
		ask{"the renewal of leases", change(backend.Renew)},
		ask{"the release of leases", change(backend.Release)},
		ask{"the write of journals", change(backend.WriteJournal)},
		ask{"the statement that ends a dead relay's leases", run(statements.Query("end leases", "r"))},
		ask{"the journals", run(statements.Query("journals"))},
		ask{"the marks", run(statements.Query("marks"))},
		ask{"the read", func() {
			_, _ = b.Read(ctx, backend.Read{Positions: positions, Limit: 500, Share: 20, MaxBytes: 1 << 20}, nil)
		}},
		ask{"the read of one key's messages", func() {
			_, _ = b.Read(ctx, backend.Read{Positions: []storage.Position{{Lane: 1, Until: 1 << 62, Key: "k"}}, Limit: 5}, nil)
		}},
		ask{"the search for late messages", run(b.Candidates(positions, nil, 500))},
		ask{"the read of given pending messages", run(b.Pick([]storage.RowID{{Lane: 1, ID: 65}}, false))},
		ask{"the read of given rows of the held table", run(b.Pick([]storage.RowID{{Lane: 1, ID: 65}}, true))},
		ask{"the read of due messages", run(b.Due(lanes, storage.DueCursor{}, 500, 1<<20))},
		ask{"the read of blocked keys", run(b.BlockedKeys(lanes, 1000))},
		ask{"the query for blocked keys among given keys", run(b.BlockedAmong([]storage.LaneKey{{Lane: 1, Key: "k"}}))},
		ask{"the settlement of messages delivered to some sinks", func() {
			parted := []storage.Settlement{{ID: 65, Lane: 1, MessageID: id, Fence: 1, State: storage.StateDone, For: "a", Left: "b"}}
			_ = backend.InTx(ctx, db, nil, nil, func(tx *sql.Tx) error {
				_, err := b.SettleParts(ctx, tx, "r", true, parted)
				return err
			})
		}},
		ask{"the settlement of delivered messages", settle(storage.StateDone, "", 1)},
		ask{"the settlement of retries", settle(storage.StateRetry, "", 1)})
}

// checkPlans gets the database's plan for each statement of asks, and reports plans that read a whole table.
func (s *Store) checkPlans(ctx context.Context, explainer backend.Explainer, claim storage.Claim) Finding {
	recorder := &backend.Recorder{Answer: explainer.Sample}
	db := recorder.DB()
	defer func() { _ = db.Close() }()
	plans, wrong := 0, []string{}
	for _, ask := range asks(ctx, s.product.New(db, s.dialect, s.table, nil), db, claim) {
		ask.of()
		for _, query := range recorder.Taken() {
			verb, _, _ := strings.Cut(strings.TrimLeft(query.SQL, " \n("), " ")
			if !slices.Contains([]string{"SELECT", "WITH", "INSERT", "REPLACE", "UPDATE", "DELETE"}, verb) || !strings.Contains(query.SQL, s.table.Name) {
				continue
			}
			plans++
			found, err := explainer.Explain(ctx, query)
			if err != nil && ctx.Err() == nil && !s.dialect.Denied(err) { // the finding "rights" reports missing privileges
				found = err.Error()
			}
			if found == "" {
				continue
			}
			if found = ask.name + " (" + found + ")"; !slices.Contains(wrong, found) {
				wrong = append(wrong, found)
			}
		}
	}
	if len(wrong) == 0 {
		return Finding{Name: "plans", OK: ctx.Err() == nil, Detail: fmt.Sprintf("%d statements checked", plans)}
	}
	return Finding{
		Name: "plans", Detail: "these statements read a whole table, or fail: " + strings.Join(wrong, "; "),
		Hint: "check that the indexes of the tables exist: rowrelay migrate print shows the statements that create them; run those that are missing. Then update the statistics: " + s.capabilities.Statements.Text("renew statistics"),
	}
}
