package backend

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// This file runs statements, parses the .sql file of a database, and builds parts of statements from
// lists, positions and settlements.

// Query is one statement and its arguments.
type Query = dialect.Query

// Querier is a *sql.DB or a *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each runs a query and calls a function for every row. The function scans the row, and returns false to end the query.
func Each(ctx context.Context, q Querier, query Query, take func(*sql.Rows) (more bool, err error)) error {
	rows, err := q.QueryContext(ctx, query.SQL, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for more := true; more && rows.Next(); {
		if more, err = take(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// All scans every row into the same destinations, and calls a function after each row.
func All(ctx context.Context, q Querier, query Query, took func(), destinations ...any) error {
	return Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		took()
		return true, nil
	})
}

// One scans a query's only row. If the query returns no row, the destinations keep their values.
func One(ctx context.Context, q Querier, query Query, destinations ...any) error {
	return All(ctx, q, query, func() {}, destinations...)
}

// IDs returns the ids that a query selects as its only column.
func IDs(ctx context.Context, q Querier, query Query) (ids []int64, err error) {
	var id number
	err = All(ctx, q, query, func() { ids = append(ids, int64(id)) }, &id)
	return ids, err
}

// Any reports whether the query returns a row. It reads at most one row.
func Any(ctx context.Context, q Querier, query Query) (found bool, err error) {
	err = Each(ctx, q, query, func(*sql.Rows) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// Lines returns the rows of a query as text, with blanks between columns.
func Lines(ctx context.Context, q Querier, query Query) (lines []string, err error) {
	err = Each(ctx, q, query, func(rows *sql.Rows) (bool, error) {
		names, err := rows.Columns()
		if err != nil {
			return false, err
		}
		values := make([]sql.NullString, len(names))
		destinations := make([]any, len(names))
		for i := range values {
			destinations[i] = &values[i]
		}
		if err := rows.Scan(destinations...); err != nil {
			return false, err
		}
		words := make([]string, len(values))
		for i, value := range values {
			words[i] = value.String
		}
		lines = append(lines, strings.Join(words, " "))
		return true, nil
	})
	return lines, err
}

// Exec runs the statements in order, and returns the number of rows that the last one affected.
func Exec(ctx context.Context, q Querier, queries ...Query) (affected int, err error) {
	for _, query := range queries {
		result, err := q.ExecContext(ctx, query.SQL, query.Args...)
		if err != nil {
			return 0, err
		}
		count, err := result.RowsAffected()
		if err != nil {
			return 0, err
		}
		affected = int(count)
	}
	return affected, nil
}

// InTx runs statements in one transaction. If the function `work` isn't nil, InTx then calls it in the same transaction.
// If a statement or the function fails, InTx rolls the transaction back.
func InTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, first []Query, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := Exec(ctx, tx, first...); err != nil {
		return err
	}
	if work != nil {
		if err := work(tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Statements are the texts of a .sql file by their names. A text begins with a line
// "-- name: …" and ends at the next such line. Other lines that begin with -- are comments. A name
// in braces stands for a table's name, or for an earlier text of the file with this name.
type Statements map[string]string

var (
	sections = regexp.MustCompile(`(?m)^-- name: (.+)$`)
	comments = regexp.MustCompile(`(?m)^\s*--.*\n?`)
	braces   = regexp.MustCompile(`\{[a-z][a-z0-9 _]*\}`)
)

// ParseStatements parses a .sql file for one table. The last argument has further texts by their names.
// ParseStatements panics if a name in braces is unknown, or if two texts have the same name. Tests parse each file.
func ParseStatements(file string, table dialect.Table, more map[string]string) Statements {
	words := map[string]string{
		"hot": table.Pending, "held": table.Held, "done": table.Done, "ids": table.IDs, "lanes": table.Lanes, "relays": table.Relays,
		"settings": table.Settings, "controls": table.Controls, "actions": table.Actions, "epoch": table.Epoch, "lane_locks": table.LaneLocks, "messages": table.Messages,
	}
	statements := Statements{}
	maps.Copy(words, more)
	maps.Copy(statements, more)
	names := sections.FindAllStringSubmatchIndex(file, -1)
	for i, at := range names {
		end := len(file)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		name := file[at[2]:at[3]]
		if _, twice := words[name]; twice {
			panic(fmt.Sprintf("there are two texts with the name %q", name))
		}
		text := strings.TrimSpace(comments.ReplaceAllString(file[at[1]:end], ""))
		text = braces.ReplaceAllStringFunc(text, func(brace string) string {
			word, known := words[brace[1:len(brace)-1]]
			if !known {
				panic(fmt.Sprintf("statement %q names %s, which doesn't exist", name, brace))
			}
			return word
		})
		statements[name], words[name] = text, text
	}
	return statements
}

// Query returns the statement with this name, and its arguments.
func (s Statements) Query(name string, args ...any) Query {
	return Query{SQL: s.Text(name), Args: args}
}

// Text returns the text with this name, for a statement that contains it.
func (s Statements) Text(name string) string {
	text, known := s[name]
	if !known {
		panic(fmt.Sprintf("there is no statement %q", name))
	}
	return text
}

// Fill returns the statement with this name, with words such as :limit replaced by numbers or lists of numbers.
// The second argument lists each word, followed by its replacement.
func (s Statements) Fill(name string, words []string, args ...any) Query {
	return Query{SQL: strings.NewReplacer(words...).Replace(s.Text(name)), Args: args}
}

// Column calls the function for each row, and returns the results.
func Column[T, C any](rows []T, of func(*T) C) []C {
	values := make([]C, len(rows))
	for i := range rows {
		values[i] = of(&rows[i])
	}
	return values
}

// Whole returns the smallest range of ids that contains the ranges of all positions.
func Whole(positions []storage.Position) storage.Position {
	whole := storage.Position{After: positions[0].After, Until: positions[0].Until}
	for _, p := range positions {
		whole.After, whole.Until = min(whole.After, p.After), max(whole.Until, p.Until)
	}
	return whole
}

// WithinWhole returns an SQL condition for a statement that reads the range of [Whole]. The condition is true for rows t
// at the positions. It compares t.id + 0, so that the server doesn't use the comparison as another range of an index.
func WithinWhole(positions []storage.Position) string {
	whole := Whole(positions)
	var lanes []int
	var others Alternatives
	for _, p := range slices.SortedFunc(slices.Values(positions), func(a, b storage.Position) int { return a.Lane - b.Lane }) {
		bounds := ""
		if p.After > whole.After {
			bounds += " AND t.id + 0 > " + strconv.FormatInt(p.After, 10)
		}
		if p.Until < whole.Until {
			bounds += " AND t.id + 0 <= " + strconv.FormatInt(p.Until, 10)
		}
		if bounds == "" {
			lanes = append(lanes, p.Lane)
		} else {
			others.Add(p.Lane, "t.lane = "+strconv.Itoa(p.Lane)+bounds)
		}
	}
	switch all := "t.lane IN " + NumberList(lanes); {
	case len(others.lanes) == 0:
		return all
	case len(lanes) == 0:
		return others.Condition()
	default:
		return "(" + all + " OR " + others.Condition() + ")"
	}
}

// Alternatives are SQL conditions on rows t, in the order of lanes. Each condition selects rows of one lane.
type Alternatives struct {
	lanes      []int
	conditions []string
}

// Add adds the condition of a lane, which must not be lower than the previous one.
func (a *Alternatives) Add(lane int, condition string) {
	a.lanes, a.conditions = append(a.lanes, lane), append(a.conditions, condition)
}

// Condition returns the SQL condition that is true for rows that meet one of the alternatives. It groups more than eight
// alternatives by ranges of lanes, because a server evaluates alternatives one by one for each row.
func (a *Alternatives) Condition() string {
	const most = 8
	if len(a.conditions) <= most {
		return "(" + strings.Join(a.conditions, "\n    OR ") + ")"
	}
	var groups []string
	for from := 0; from < len(a.conditions); from += most {
		to := min(from+most, len(a.conditions))
		groups = append(groups, "t.lane BETWEEN "+strconv.Itoa(a.lanes[from])+" AND "+strconv.Itoa(a.lanes[to-1])+
			" AND ("+strings.Join(a.conditions[from:to], " OR ")+")")
	}
	return "(" + strings.Join(groups, "\n    OR ") + ")"
}

// NumberList returns an SQL list for IN. The list matches nothing if numbers is empty.
func NumberList[N int | int64](numbers []N) string {
	if len(numbers) == 0 {
		return "(NULL)"
	}
	list := make([]byte, 0, 12*len(numbers))
	separator := byte('(')
	for _, number := range numbers {
		list = strconv.AppendInt(append(list, separator), int64(number), 10)
		separator = ','
	}
	return string(append(list, ')'))
}

// MostBytes returns the MaxBytes of a claim for statements that need a limit. If the claim has none, it returns the
// highest int64.
func MostBytes(request storage.ClaimRequest) int64 {
	if request.MaxBytes <= 0 {
		return math.MaxInt64
	}
	return int64(request.MaxBytes)
}

// ClaimOrder returns the columns of the ORDER BY for a pick. One of the indexes for claiming by rows has this order.
func ClaimOrder(pick storage.Pick) string {
	switch pick {
	case storage.Newest:
		return "id DESC"
	case storage.Priority:
		return "priority DESC, id"
	default:
		return "id"
	}
}

// LeasesOf returns each lease of the settlements once. The settlements must be in the order of lanes.
func LeasesOf(settlements []storage.Settlement) (leases []storage.Lease) {
	for i := range settlements {
		s := &settlements[i]
		if i == 0 || s.Lane != settlements[i-1].Lane || s.Fence != settlements[i-1].Fence {
			leases = append(leases, storage.Lease{Lane: s.Lane, Fence: s.Fence})
		}
	}
	return leases
}

// HeldOf returns the settlements whose leases are still valid. If all leases are valid, it returns the given slice.
func (s *Settled) HeldOf(settlements []storage.Settlement) (some []storage.Settlement) {
	lost := func(lease storage.Lease) bool { return !s.Held[lease] }
	if !slices.ContainsFunc(LeasesOf(settlements), lost) {
		return settlements
	}
	for _, settlement := range settlements {
		if !lost(storage.Lease{Lane: settlement.Lane, Fence: settlement.Fence}) {
			some = append(some, settlement)
		}
	}
	return some
}

// Add adds the result of another call of Settle or SettleParts in the same transaction.
func (s *Settled) Add(more Settled) {
	s.Changed += more.Changed
	s.Fenced += more.Fenced
	s.XID = max(s.XID, more.XID)
	maps.Copy(s.Held, more.Held)
}

// Write is one of the statements of a call of Settle. If Counts is set, the rows that the statement affects count as changed.
type Write struct {
	Query
	Counts bool
}

// Write runs the statements, and counts the changed rows.
func (s *Settled) Write(ctx context.Context, q Querier, writes []Write) error {
	for _, write := range writes {
		affected, err := Exec(ctx, q, write.Query)
		if err != nil {
			return err
		}
		if write.Counts {
			s.Changed += affected
		}
	}
	return nil
}

// BySinks reports whether statements must also compare the row's sinks to find the settlement's row. A message may
// have several held rows, which differ by their sinks. Also, a settlement for some of a row's sinks applies only if the
// row still names the sinks that it had when it was read.
func BySinks(s *storage.Settlement) bool { return s.Deferred || s.Left != "" }

// NamesSinks reports whether a settlement moves a pending row that names sinks, in a table that is claimed by lanes. In one
// call of Settle, either no settlement moves such a row, or all settlements do, and all name the same sinks. In this case
// Settle changes a row only if the row still names these sinks, because after a failover an earlier change of the row's
// sinks may be lost while the lease is still valid.
func NamesSinks(s *storage.Settlement) bool { return s.Sinks != "" && !s.Deferred && s.Token == "" }

// Groups has the settlements of a batch, grouped by the tables that their rows move from and to.
type Groups struct {
	HotDone, HotHeld, HeldDone, HeldHeld, Freed []storage.Settlement
}

// GroupsOf returns the groups of these settlements. It copies no settlements if, as usual, all are in one group.
func GroupsOf(settlements []storage.Settlement) (groups Groups) {
	groupOf := func(s *storage.Settlement) *[]storage.Settlement {
		switch {
		case s.State == storage.StatePending:
			return &groups.Freed
		case s.State == storage.StateDone && s.Deferred:
			return &groups.HeldDone
		case s.State == storage.StateDone:
			return &groups.HotDone
		case s.Deferred:
			return &groups.HeldHeld
		}
		return &groups.HotHeld
	}
	for begin, end := 0, 0; begin < len(settlements); begin = end {
		group := groupOf(&settlements[begin])
		for end = begin + 1; end < len(settlements) && groupOf(&settlements[end]) == group; end++ {
		}
		if alike := settlements[begin:end:end]; *group == nil {
			*group = alike
		} else {
			*group = append(*group, alike...)
		}
	}
	return groups
}

// Parts has settlements for some of their rows' sinks. All the rows are in one table: in the held table if Deferred is
// set, otherwise in the table of pending rows. For each settlement in All, SettleParts changes the sinks of the row. It adds a row to
// the done table for each settlement in Done, and a row to the held table for each settlement in Held.
type Parts struct {
	Deferred        bool
	All, Done, Held []storage.Settlement
}

// PartsOf returns the Parts of the table of pending rows and of the held table, and omits empty ones. If keep is false, Done is empty.
func PartsOf(settlements []storage.Settlement, keep bool) []Parts {
	tables := []Parts{{}, {Deferred: true}}
	for _, s := range settlements {
		of := &tables[0]
		if s.Deferred {
			of = &tables[1]
		}
		of.All = append(of.All, s)
		switch s.State {
		case storage.StateDiscarded:
		case storage.StateDone:
			if keep {
				of.Done = append(of.Done, s)
			}
		default:
			of.Held = append(of.Held, s)
		}
	}
	return slices.DeleteFunc(tables, func(p Parts) bool { return len(p.All) == 0 })
}

// AttemptLog returns the value that a settlement writes to the column `attempt_log`. If it is empty, the row keeps its log.
func AttemptLog(s *storage.Settlement) string { return storage.AttemptLog(s.Failed).Text() }

// DeadLettersOf returns the settlements that write a dead letter, in two lists: one for pending rows, and
// one for rows of the held table.
func DeadLettersOf(settlements []storage.Settlement) (hot, held []storage.Settlement) {
	for i := range settlements {
		switch s := &settlements[i]; {
		case s.DeadLetter == nil:
		case s.Deferred:
			held = append(held, *s)
		default:
			hot = append(hot, *s)
		}
	}
	return hot, held
}
