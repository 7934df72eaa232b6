package dialect_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The SQL of each dialect, to be read by a person: a change of it shows in a
// change of these files.
func TestGoldenSQL(t *testing.T) {
	t.Parallel()
	for _, d := range []dialect.Dialect{dialect.Oracle()} {
		t.Run(d.Name(), func(t *testing.T) {
			t.Parallel()
			got := relayingSQL(t, relays(d))
			file := filepath.Join("testdata", d.Name()+"_relaying.sql")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("the statements differ from %s (%v); if that is meant, run go test ./outbox/dialect -update and look at the change", file, err)
			}
		})
	}
}

// relaying is a dialect that has its own statements for relays.
type relaying struct {
	dialect.Dialect
	dialect.Relaying
}

func relays(d dialect.Dialect) relaying { return relaying{d, d.(dialect.Relaying)} }

// text collects statements.
type text struct{ strings.Builder }

func (b *text) add(what string, queries ...dialect.Query) {
	fmt.Fprintf(b, "-- %s\n", what)
	for _, query := range queries {
		fmt.Fprintf(b, "%s%s\n", query.SQL, ending(query.SQL))
		for i, arg := range query.Args {
			fmt.Fprintf(b, "--   %d: %.100s\n", i+1, strings.TrimSpace(fmt.Sprint(arg)))
		}
	}
	b.WriteString("\n")
}

// ending is what a script has after the statement: a block has a line of its own.
func ending(sql string) string {
	if strings.HasSuffix(sql, "END;") {
		return "\n/"
	}
	return ";"
}

// write adds what After makes for the rows 1 and 2.
func (b *text) write(what string, write dialect.Write) {
	queries := []dialect.Query{write.Query}
	if write.After != nil {
		queries = append(queries, write.After([]int64{1, 2})...)
	}
	b.add(what, queries...)
}

func (b *text) settle(what string, settle dialect.Settle) {
	queries := append(append([]dialect.Query{}, settle.Begin...), settle.Facts)
	writes := settle.Writes
	if settle.Then != nil {
		writes = settle.Then(func(int, int64) bool { return true })
	}
	for _, write := range writes {
		queries = append(queries, write.Query)
	}
	b.add(what, queries...)
}

// steps adds what After makes for the rows 1 and 2.
func (b *text) steps(title string, steps dialect.Steps) {
	queries := append(slices.Clone(steps.Do), steps.Ask)
	if steps.After != nil {
		queries = append(queries, steps.After([]int64{1, 2})...)
	}
	if steps.Also.SQL != "" {
		queries = append(queries, steps.Also)
	}
	b.add(title, queries...)
}

func relayingSQL(t *testing.T, d relaying) string {
	t.Helper()
	table, err := dialect.ParseTable("app.Events")
	if err != nil {
		t.Fatal(err)
	}
	b := &text{}
	b.add("schema version", d.SchemaVersion(table))
	b.add("make indexes for rows", d.MakeRowIndexes(table)...)
	b.add("drop indexes for rows", d.DropRowIndexes(table)...)
	b.add("count indexes for rows", d.RowIndexes(table))
	_, rowsOnly := d.Dialect.(dialect.RowsOnly)
	addRelays(b, d, table)
	if !rowsOnly {
		addLanes(b, d, table)
		addReading(b, d, table)
	}
	addSettling(b, d, table, !rowsOnly)
	addRows(b, d, table)
	addOperating(b, d, table)
	for _, probe := range d.Probes(table, map[bool]string{false: "lanes", true: "rows"}[rowsOnly]) {
		b.add("check "+probe.Name, probe.Query)
	}
	return b.String()
}

func addRelays(b *text, d relaying, table dialect.Table) {
	b.add("begin", d.Begin(table)...)
	b.add("lock the claim", d.LockClaim(table))
	b.add("set the claim", d.SetClaim(table, "lanes"))
	b.add("other relays", d.OtherRelays(table, "lanes"))
	b.add("forget the other way", d.Forget(table)...)
	b.steps("beat", d.Beat(table, dialect.Beat{Name: "r", Host: "h", Version: "1", Claim: "lanes", TTL: 15 * time.Second}))
	b.add("census", d.Census(table))
	b.add("leave", d.Leave(table, "r"))
	b.add("purge relays", d.PurgeRelays(table))
}

func addLanes(b *text, d relaying, table dialect.Table) {
	leases := []dialect.Lease{{Lane: 1, Fence: 7, Marks: `{"main":5}`, Journal: `[{"id":1}]`, Calm: true}, {Lane: 2, Fence: 8}}
	b.steps("acquire", d.Acquire(table, "r", 5, 15*time.Second))
	b.steps("renew", d.Renew(table, "r", "e", leases, 15*time.Second))
	b.add("marks", d.Marks(table))
	b.steps("release", d.Release(table, "r", "e", leases))
	b.steps("journal", d.Journal(table, "r", leases))
	b.add("journals", d.Journals(table))
}

func addReading(b *text, d relaying, table dialect.Table) {
	positions := []dialect.Position{{Lane: 1, After: 10, Until: 20}, {Lane: 2, After: 11, Until: 21}}
	keyed := []dialect.Position{{Lane: 1, After: 10, Until: 20, Key: `a"\k`}}
	at := time.Date(2026, 1, 31, 23, 59, 59, 123456000, time.UTC)
	b.add("given", d.Given(table))
	b.add("read", d.Read(table, dialect.Read{Positions: positions, Limit: 100}))
	b.add("read a share", d.Read(table, dialect.Read{Positions: positions, Limit: 100, Share: 7, Number: true}))
	b.add("read bytes", d.Read(table, dialect.Read{Positions: positions, Limit: 100, MaxBytes: 1 << 20}))
	b.add("read keys", d.Read(table, dialect.Read{Positions: keyed, Limit: 100}))
	b.add("candidates", d.Candidates(table, positions, []string{"t1"}, 100))
	b.add("pick", d.Pick(table, []int{1, 2}, []int64{15, 16}))
	b.add("pick held", d.PickHeld(table, []int{1, 2}, []int64{15, 16}))
	b.add("due", d.Due(table, []int{1, 2}, dialect.After{At: at, ID: 9}, 100, 1<<20))
	b.add("held keys", d.HeldKeys(table, []int{1, 2}, 100))
	b.add("held among keys", d.HeldAmong(table, []int{1, 2, 1}, []string{`a"\k`, "b", "c"}))
}

func addSettling(b *text, d relaying, table dialect.Table, lanes bool) {
	done := dialect.Settlement{ID: 5, MessageID: message(5), Lane: 1, Fence: 7, State: "done", Attempts: 1, Receipt: "0/5"}
	retry := dialect.Settlement{ID: 6, MessageID: message(6), Lane: 1, Fence: 7, State: "retry", Attempts: 2, Delay: time.Second, Error: `it's "broken"`}
	parked := dialect.Settlement{ID: 7, MessageID: message(7), Lane: 2, Fence: 8, State: "error", Held: true}
	back := dialect.Settlement{ID: 8, MessageID: message(8), Lane: 2, Fence: 8, State: "done", Held: true}
	pending := dialect.Settlement{ID: 9, MessageID: message(9), Lane: 2, Token: "t", State: "pending"}
	claimed := dialect.Settlement{ID: 10, MessageID: message(10), Lane: 2, Token: "t", State: "done"}
	failed := dialect.Settlement{ID: 11, MessageID: message(11), Lane: 2, Token: "t", State: "retry", Attempts: 1, Delay: time.Second, Error: "refused"}
	if lanes {
		b.settle("settle: done", d.SettleLanes(table, "r", true, []dialect.Settlement{done}))
		other := done
		other.ID, other.MessageID, other.Receipt = 6, message(6), "0/6"
		b.settle("settle: done, with receipts of their own", d.SettleLanes(table, "r", true, []dialect.Settlement{done, other}))
		b.settle("settle: done, not kept", d.SettleLanes(table, "r", false, []dialect.Settlement{done}))
		b.settle("settle: everything", d.SettleLanes(table, "r", true, []dialect.Settlement{done, retry, parked, back}))
	}
	b.settle("settle by rows", d.SettleRows(table, "r", true, []dialect.Settlement{pending, claimed}))
	b.settle("settle by rows, not kept", d.SettleRows(table, "r", false, []dialect.Settlement{claimed, failed}))
	for _, write := range d.Purge(table, dialect.Purge{Retention: 24 * time.Hour, Limit: 100, Since: time.Date(2026, 10, 5, 1, 2, 3, 4000, time.UTC)}) {
		b.write("purge", write)
	}
}

// message is the id of the message in a row.
func message(id int64) string { return fmt.Sprintf("0197a3b4-0000-7abc-8def-%012d", id) }

func addRows(b *text, d relaying, table dialect.Table) {
	claim := dialect.Claim{Relay: "r", Token: "t", TTL: time.Minute, Limit: 10, Pick: "oldest"}
	b.steps("claim the oldest", d.Claim(table, claim))
	claim.Pick, claim.Topics, claim.Except, claim.MaxBytes = "priority", []string{"a", "b"}, []string{"c"}, 1<<20
	b.steps("claim the highest of some topics", d.Claim(table, claim))
	if peeking, ok := d.Dialect.(dialect.ClaimPeeking); ok {
		b.add("peek at free rows", peeking.PeekFree(table))
		b.add("peek at what ended", peeking.PeekEnded(table))
	}
	b.steps("extend", d.Extend(table, "t", []int64{1, 2}, time.Minute))
	for _, write := range d.FreeEnded(table, 10) {
		b.write("free claims that ended", write)
	}
	for _, write := range d.Return(table, 10) {
		b.write("bring back", write)
	}
}

func addOperating(b *text, d relaying, table dialect.Table) {
	filter := dialect.Filter{
		IDs: []int64{1}, MessageIDs: []string{"0197a3b4-0000-7abc-8def-0123456789ab"}, ByID: true, Topic: "t", Key: "k", State: "error",
		Since: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC), Error: "refused", AfterID: 3, Limit: 10,
	}
	b.add("list", d.List(table, dialect.Filter{Limit: 10}))
	b.add("list by filter", d.List(table, filter))
	b.steps("requeue", d.Requeue(table, filter))
	b.steps("discard", d.Discard(table, filter))
	b.add("counts", d.Counts(table, 1000))
	b.add("oldest", d.Oldest(table))
	b.add("topics", d.Topics(table, 1000))
	b.add("relays", d.ListRelays(table))
	b.add("lanes", d.LanesLeased(table))
	b.add("claimed by", d.ClaimedBy(table))
}

func TestErrorsAreRecognised(t *testing.T) {
	t.Parallel()
	postgres, sqlite := dialect.Postgres(), dialect.SQLite()
	tests := []struct {
		what string
		is   func(error) bool
		err  error
		want bool
	}{
		{"deadlock", postgres.Busy, state("40P01"), true},
		{"serialization failure, wrapped", postgres.Busy, fmt.Errorf("settle: %w", state("40001")), true},
		{"unique violation", postgres.Busy, state("23505"), false},
		{"undefined table", postgres.Missing, state("42P01"), true},
		{"no right", postgres.Denied, state("42501"), true},
		{"no state", postgres.Busy, fmt.Errorf("40001"), false},
		{"no error", postgres.Busy, nil, false},
		{"locked", sqlite.Busy, fmt.Errorf("database is locked (5) (SQLITE_BUSY)"), true},
		{"locked table", sqlite.Busy, fmt.Errorf("database table is locked: outbox"), true},
		{"no table", sqlite.Missing, fmt.Errorf("no such table: outbox"), true},
		{"no error", sqlite.Missing, nil, false},
	}
	for _, test := range tests {
		if got := test.is(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", test.what, got, test.want)
		}
	}
}

type state string

func (s state) Error() string    { return "an error with the state " + string(s) }
func (s state) SQLState() string { return string(s) }
