package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// What people ask for: a status, messages and what becomes of the parked ones, and a check of
// all that a relay needs.

const (
	listed     = 100  // rows of a listing without a limit
	changeStep = 1000 // rows of one change
)

// Status implements [storage.Operator]. It counts 100,000 rows of each kind; if there are
// more, it returns an estimate, which is the server's own on PostgreSQL and SQL Server, and the
// span of their ids elsewhere.
func (s *Store) Status(ctx context.Context) (storage.Status, error) {
	return try(ctx, s, "read the status of table", func() (storage.Status, error) {
		status, err := backend.ReadStatus(ctx, s.db, s.traits.Queries.Status)
		if err == nil {
			status.Controls, err = backend.ReadControls(ctx, s.db, s.traits.Queries.Control)
		}
		return status, err
	})
}

// List implements [storage.Operator].
func (s *Store) List(ctx context.Context, filter storage.Filter) ([]storage.Info, error) {
	selected, err := selection(filter)
	if err != nil {
		return nil, err
	}
	if selected.Limit <= 0 {
		selected.Limit = listed
	}
	if selected.MaxBytes <= 0 {
		selected.MaxBytes = storage.ListBytes
	}
	list := s.backend.List
	if len(selected.MessageIDs) > 0 {
		list = s.find
	}
	return try(ctx, s, "list table", func() ([]storage.Info, error) { return list(ctx, selected) })
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// selection tells the ids of rows from those of messages.
func selection(filter storage.Filter) (backend.Filter, error) {
	selected := backend.Filter{Filter: filter, ByID: len(filter.IDs) > 0}
	for _, text := range filter.IDs {
		lower := strings.ToLower(text)
		if id, err := strconv.ParseInt(text, 10, 64); err == nil {
			selected.RowIDs = append(selected.RowIDs, id)
		} else if uuid.MatchString(lower) {
			selected.MessageIDs = append(selected.MessageIDs, lower)
		} else {
			return backend.Filter{}, fmt.Errorf("%.100q is no message: give a row's id in decimal, or a message's id (a UUID)", text)
		}
	}
	return selected, nil
}

// Requeue implements [storage.Operator].
func (s *Store) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	if filter.State == storage.StateRetry {
		return s.changeParked(ctx, "retry messages of table", filter, backend.RetryNow, "")
	}
	return s.changeParked(ctx, "requeue messages of table", filter, backend.Requeue, "")
}

// Redirect implements [storage.Operator].
func (s *Store) Redirect(ctx context.Context, filter storage.Filter, sink string) (int, error) {
	if sink == "" || len(sink) > storage.MostSinks || strings.Contains(sink, ",") {
		return 0, fmt.Errorf("%.100q is no sink's name", sink)
	}
	return s.changeParked(ctx, "redirect messages of table", filter, backend.Redirect, sink)
}

// Skip implements [storage.Operator].
func (s *Store) Skip(ctx context.Context, filter storage.Filter) (int, error) {
	const what = "skip messages of table"
	if filter.State == storage.StateRetry {
		if byRows, err := s.byRows(ctx, what); byRows || err != nil {
			return 0, err
		}
		return s.changeParked(ctx, what, filter, backend.AskSkipRetry, "")
	}
	return s.changeParked(ctx, what, filter, backend.AskSkip, "")
}

// Discard implements [storage.Operator].
func (s *Store) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	const what = "discard messages of table"
	if filter.State == storage.StateRetry {
		byRows, err := s.byRows(ctx, what)
		if err != nil {
			return 0, err
		}
		change := backend.AskDiscardRetry
		if byRows {
			change = backend.DiscardRetry
		}
		return s.changeParked(ctx, what, filter, change, "")
	}
	asked, err := s.changeParked(ctx, what, filter, backend.AskDiscard, "")
	if err != nil || filter.Limit > 0 && asked >= filter.Limit {
		return asked, err
	}
	if filter.Limit > 0 {
		filter.Limit -= asked
	}
	discarded, err := s.changeParked(ctx, what, filter, backend.DiscardAtOnce, "")
	return asked + discarded, err
}

// Parked implements [storage.Operator].
func (s *Store) Parked(ctx context.Context, filter storage.Filter, within int64) ([]storage.Parked, error) {
	if filter.State != "" && filter.State != storage.StateError {
		return nil, nil
	}
	filter.AfterID = 0
	selected, err := selection(filter)
	if err != nil {
		return nil, err
	}
	return try(ctx, s, "list parked messages of table", func() ([]storage.Parked, error) { return s.backend.Parked(ctx, selected, within) })
}

// byRows says how the table is claimed: then no message waits for another of its key, and no
// relay carries out what is wanted of a retry.
func (s *Store) byRows(ctx context.Context, what string) (bool, error) {
	return try(ctx, s, what, func() (bool, error) {
		var claim storage.Claim
		err := backend.One(ctx, s.db, s.traits.Queries.ClaimMode, &claim)
		return claim == storage.ByRows, err
	})
}

// changeParked goes on in steps until nothing is left, and says how many it
// changed, also if it fails on its way. Only a Redirect is to a sink.
func (s *Store) changeParked(ctx context.Context, what string, filter storage.Filter, change backend.ParkedChange, sink string) (changed int, err error) {
	if filter.State != "" && filter.State != change.State() {
		return 0, nil
	}
	selected, err := selection(filter)
	if err != nil {
		return 0, err
	}
	selected.To = sink
	limit := filter.Limit
	if limit <= 0 {
		limit = math.MaxInt
	}
	for changed < limit {
		selected.Limit = min(changeStep, limit-changed)
		ids, err := write(ctx, s, what, func() ([]int64, uint64, error) {
			ids, err := s.backend.ChangeParked(ctx, selected, change)
			return ids, 0, err
		})
		changed += len(ids)
		if err != nil || len(ids) < selected.Limit {
			return changed, err
		}
		for _, id := range ids { // the last one may have more rows, for other sinks
			selected.AfterID = max(selected.AfterID, id-1)
		}
	}
	return changed, nil
}

// Finding is one result of a check.
type Finding = backend.Finding

// Check looks at everything that a relay needs of a database: its version, the
// schema's, the rights of this user, the settings that matter, and how a claim
// is planned. It changes nothing. If the tables aren't there it says so, and
// asks nothing else.
func Check(ctx context.Context, db *sql.DB, d dialect.Dialect, options Options, claim storage.Claim) []Finding {
	s, err := newStore(db, d, options)
	if err != nil {
		return []Finding{{Name: "table", Detail: err.Error()}}
	}
	if err := db.PingContext(ctx); err != nil {
		return []Finding{{Name: "connection", Detail: err.Error(), Hint: "see that the server runs, and that the URL, the user and the password are right"}}
	}
	findings := []Finding{{Name: "connection", OK: true}}
	unordered, err := s.detect(ctx)
	if err != nil {
		return append(findings, Finding{Name: "server", Detail: err.Error(), Hint: "see the README on the versions that are supported"})
	}
	if err := s.checkVersion(ctx); err != nil {
		return append(findings, Finding{Name: "schema", Detail: err.Error(), Hint: "run rowrelay migrate up"})
	}
	if err := s.openFrontier(ctx, 0, unordered); err != nil {
		findings = append(findings, Finding{Name: "open transactions", Detail: err.Error(), Hint: "see below for missing rights"})
	}
	return append(findings, s.Check(ctx, claim)...)
}

// Check is the function of the same name, for a store that is open.
func (s *Store) Check(ctx context.Context, claim storage.Claim) []Finding {
	findings := append(slices.Clone(s.Findings), Finding{Name: "schema", OK: true, Detail: "version " + schemaVersion}, s.checkClaim(ctx, claim))
	lists, known := s.frontier.(*openTx)
	byTime := known && lists.bound != nil
	if known && !byTime && !lists.db.tells(ctx) {
		findings = append(findings, silenced)
	}
	if claim != storage.ByRows && s.noLanes == nil {
		findings = append(findings, s.checkMarks(ctx))
	}
	for _, finding := range s.backend.Check(ctx, claim) {
		if finding.Name == "transactions" && byTime {
			continue // that they can't be seen was found already
		}
		findings = append(findings, finding)
	}
	return findings
}

func (s *Store) checkClaim(ctx context.Context, claim storage.Claim) Finding {
	finding := Finding{Name: "claim"}
	var stored storage.Claim
	err := backend.One(ctx, s.db, s.traits.Queries.ClaimMode, &stored)
	switch {
	case err != nil:
		finding.Detail = err.Error()
	case claim == storage.ByLanes && s.noLanes != nil:
		finding.Detail = s.noLanes.Error()
		finding.Hint = "say that it is to be claimed by rows"
	case stored != "" && claim != "" && stored != claim:
		finding.Detail = fmt.Sprintf("the table is claimed by %s, and this asks for %s", stored, claim)
		finding.Hint = "stop all relays that claim by " + string(stored) + " first; then the next one to start decides"
	default:
		finding.OK, finding.Detail = true, string(stored)
	}
	return finding
}

// checkMarks looks whether what the marks promise is true: no id at or below them is
// still to be given out, and no message waits there, but of sinks that lag behind.
func (s *Store) checkMarks(ctx context.Context) Finding {
	finding := Finding{Name: "marks"}
	marks, err := backend.Marks(ctx, s.db, s.traits.Queries.Marks)
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
			finding.Detail = fmt.Sprintf("ids began anew: lane %d was read up to %d, and the highest id that was given out is %d", lane, m.Main, given)
			finding.Hint = "nothing has to be done: the next relay to lease the lane reads it from its beginning"
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
			finding.Detail = fmt.Sprintf("%d messages or more wait where nothing is expected any more, the first with the id %d in lane %d: ids began anew, or a transaction was open for very long", len(waiting), waiting[0].ID, waiting[0].Lane)
			finding.Hint = "a relay finds and delivers them when it leases their lanes, and while it runs every ten minutes at the latest"
			return finding
		}
	}
	finding.OK = true
	return finding
}
