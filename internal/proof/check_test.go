package proof

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The usual header, and one with another promise.
const (
	usual = `{"history":1,"scene":"s","claim":"lanes","ordered":true,"unsettled":2}`
	rows  = `{"history":1,"scene":"s","claim":"rows"}`
	exact = `{"history":1,"scene":"s","claim":"lanes","ordered":true,"exact":true}`
)

func wrote(id string, number int, outcome string) string {
	return fmt.Sprintf(`{"event":"wrote","id":%q,"key":"k","number":%d,"outcome":%q,"at":1}`, id, number, outcome)
}

func arrived(id string, number int, relay string, at float64) string {
	return fmt.Sprintf(`{"event":"arrived","id":%q,"key":"k","number":%d,"relay":%q,"at":%g}`, id, number, relay, at)
}

func row(id string, number int, rest string) string {
	return fmt.Sprintf(`{"event":"row","id":%q,"key":"k","number":%d,%s}`, id, number, rest)
}

func happened(event, kind, relay string, at float64) string {
	return fmt.Sprintf(`{"event":%q,"kind":%q,"relay":%q,"at":%g}`, event, kind, relay, at)
}

func view(lane int, relay string, fence int, at float64) string {
	return fmt.Sprintf(`{"event":"lane","lane":%d,"relay":%q,"fence":%d,"at":%g}`, lane, relay, fence, at)
}

// verdicts has handwritten histories, and what they show.
var verdicts = []struct {
	name    string
	history []string
	want    string // only the figures that aren't 0
}{
	{"nothing happened", []string{usual}, `{}`},
	{"two messages in order", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), arrived("a", 1, "/1", 2), arrived("b", 2, "/1", 3)}, `{"messages":2}`},
	{"a lost message", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), arrived("b", 2, "/1", 3)}, `{"messages":2,"lost":1}`},
	{"a lost message that only the table has", []string{usual, row("a", 1, `"state":"pending"`)}, `{"messages":1,"lost":1}`},
	{"a message that is done but never arrived", []string{usual, wrote("a", 1, "committed"), row("a", 1, `"state":"done","relay":"r","at":2`)}, `{"messages":1,"lost":1}`},
	{"a parked message", []string{usual, wrote("a", 1, "committed"), row("a", 1, `"state":"error","attempts":20`)}, `{"messages":1,"kept":1}`},
	{"a message that is scheduled for later", []string{usual, row("a", 1, `"state":"scheduled"`)}, `{"messages":1,"kept":1}`},
	{"a message that one of two sinks got", []string{usual, wrote("a", 1, "committed"), row("a", 1, `"state":"done"`), row("a", 1, `"state":"error"`)}, `{"messages":1,"kept":1}`},
	{"a message that was rolled back", []string{usual, wrote("a", 1, "rolled_back")}, `{}`},
	{"a message that arrived though it was rolled back", []string{usual, wrote("a", 1, "rolled_back"), arrived("a", 1, "/1", 2)}, `{"uncommitted":1}`},
	{"a message that arrived though nobody wrote it", []string{usual, arrived("a", 1, "/1", 2)}, `{"uncommitted":1}`},
	{"a message that is in the table though it was rolled back", []string{usual, wrote("a", 1, "rolled_back"), row("a", 1, `"state":"done"`), arrived("a", 1, "/1", 2)}, `{"uncommitted":1}`},
	{"a failed commit that succeeded", []string{usual, wrote("a", 1, "unknown"), row("a", 1, `"state":"done"`), arrived("a", 1, "/1", 2)}, `{"messages":1}`},
	{"a failed commit that failed", []string{usual, wrote("a", 1, "unknown")}, `{}`},
	{"a commit that the database lost", []string{usual, wrote("a", 1, "committed"), `{"event":"undone","id":"a"}`, happened("fault", "failover", "", 3)}, `{"undone":1,"faults":{"failover":1}}`},
	{"a commit that the database lost after the delivery", []string{usual, wrote("a", 5, "committed"), wrote("b", 4, "committed"), `{"event":"undone","id":"a"}`, arrived("a", 5, "/1", 2), arrived("b", 4, "/1", 4)}, `{"messages":1,"undone":1}`},
	{"a swap", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), arrived("b", 2, "/1", 2), arrived("a", 1, "/1", 3)}, `{"messages":2,"reordered":1}`},
	{"a message that two later ones overtook", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), wrote("c", 3, "committed"), arrived("b", 2, "/1", 2), arrived("c", 3, "/1", 2), arrived("a", 1, "/1", 3)}, `{"messages":3,"reordered":1}`},
	{"two messages that a later one overtook", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), wrote("c", 3, "committed"), arrived("c", 3, "/1", 2), arrived("a", 1, "/1", 2), arrived("b", 2, "/1", 3)}, `{"messages":3,"reordered":2}`},
	{"a swap by rows", []string{rows, wrote("a", 1, "committed"), wrote("b", 2, "committed"), arrived("b", 2, "/1", 2), arrived("a", 1, "/1", 3)}, `{"messages":2}`},
	{"a swap of other keys", []string{usual, wrote("a", 2, "committed"), wrote("b", 1, "committed"), arrived("a", 2, "/1", 2), `{"event":"arrived","id":"b","key":"other","number":1,"relay":"/1","at":3}`}, `{"messages":2}`},
	{"a swap of messages without a key", []string{usual, wrote("a", 2, "committed"), wrote("b", 1, "committed"), `{"event":"arrived","id":"a","number":2,"at":2}`, `{"event":"arrived","id":"b","number":1,"at":3}`}, `{"messages":2}`},
	{"a duplicate after later messages", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), arrived("a", 1, "/1", 2), arrived("b", 2, "/1", 3), happened("fault", "relay_killed", "/1", 4), arrived("a", 1, "/2", 5)}, `{"messages":2,"duplicates":1,"windows":{"kill":1},"faults":{"relay_killed":1}}`},
	{"an unexplained duplicate", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), arrived("a", 1, "/2", 5)}, `{"messages":1,"duplicates":1,"outside":1}`},
	{"a duplicate before the kill", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), arrived("a", 1, "/2", 3), happened("fault", "relay_killed", "/1", 4)}, `{"messages":1,"duplicates":1,"outside":1,"faults":{"relay_killed":1}}`},
	{"a duplicate after another relay's kill", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), happened("fault", "relay_killed", "/3", 3), arrived("a", 1, "/2", 4)}, `{"messages":1,"duplicates":1,"outside":1,"faults":{"relay_killed":1}}`},
	{"a duplicate long after the kill", []string{usual, wrote("a", 1, "committed"), happened("fault", "relay_suspended", "/1", 1), arrived("a", 1, "/1", 61.5), arrived("a", 1, "/2", 62)}, `{"messages":1,"duplicates":1,"outside":1,"faults":{"relay_suspended":1}}`},
	{"a duplicate of the relay that was killed later", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 0), arrived("a", 1, "/1", 0), happened("fault", "relay_killed", "/1", 3)}, `{"messages":1,"duplicates":1,"outside":1,"faults":{"relay_killed":1}}`},
	{"a request of a dead relay that arrives late", []string{usual, wrote("a", 1, "committed"), happened("fault", "relay_killed", "/1", 2), arrived("a", 1, "/2", 3), arrived("a", 1, "/1", 4)}, `{"messages":1,"duplicates":1,"windows":{"kill":1},"faults":{"relay_killed":1}}`},
	{"more duplicates than a kill may cause", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), wrote("c", 3, "committed"), arrived("a", 1, "/1", 2), arrived("b", 2, "/1", 2), arrived("c", 3, "/1", 2),
		happened("fault", "relay_killed", "/1", 3), arrived("a", 1, "/2", 4), arrived("b", 2, "/2", 4), arrived("c", 3, "/2", 4)}, `{"messages":3,"duplicates":3,"windows":{"kill":2},"outside":1,"faults":{"relay_killed":1}}`},
	{"as many duplicates as two events may cause", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), wrote("c", 3, "committed"), arrived("a", 1, "/1", 2), arrived("b", 2, "/1", 2), arrived("c", 3, "/1", 2),
		happened("symptom", "lease_lost", "/1", 2.5), happened("fault", "relay_killed", "/1", 3), arrived("a", 1, "/2", 4), arrived("b", 2, "/2", 4), arrived("c", 3, "/2", 4)},
		`{"messages":3,"duplicates":3,"windows":{"kill":2,"takeover":1},"faults":{"relay_killed":1},"symptoms":{"lease_lost":1}}`},
	{"a cut database explains two duplicates of each of two relays", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), wrote("c", 3, "committed"), arrived("a", 1, "/1", 2), arrived("b", 2, "/2", 2), arrived("c", 3, "/2", 2),
		happened("fault", "database_cut", "", 3), arrived("a", 1, "/2", 4), arrived("b", 2, "/2", 4), arrived("c", 3, "/1", 4)}, `{"messages":3,"duplicates":3,"windows":{"kill":3},"faults":{"database_cut":1}}`},
	{"a lost answer in the log", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), happened("fault", "broker_cut", "", 3), happened("symptom", "answer_lost", "/1", 3), arrived("a", 1, "/1", 4)},
		`{"messages":1,"duplicates":1,"windows":{"lost_answer":1},"faults":{"broker_cut":1},"symptoms":{"answer_lost":1}}`},
	{"another relay's lost answer", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), happened("symptom", "answer_lost", "/2", 3), arrived("a", 1, "/2", 4)},
		`{"messages":1,"duplicates":1,"outside":1,"symptoms":{"answer_lost":1}}`},
	{"a lost answer in the row", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), arrived("a", 1, "/1", 4), row("a", 1, `"state":"done","reason":"timeout"`)}, `{"messages":1,"duplicates":1,"windows":{"lost_answer":1}}`},
	{"a charged attempt", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), arrived("a", 1, "/1", 4), row("a", 1, `"state":"done","reason":"refused","attempts":1`)}, `{"messages":1,"duplicates":1,"windows":{"lost_answer":1}}`},
	{"a broker's fault alone explains nothing", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 0), happened("fault", "broker_killed", "", 3), arrived("a", 1, "/1", 0)}, `{"messages":1,"duplicates":1,"outside":1,"faults":{"broker_killed":1}}`},
	{"arrivals without times", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 0), arrived("a", 1, "/2", 0), happened("fault", "relay_killed", "/1", 300)}, `{"messages":1,"duplicates":1,"windows":{"kill":1},"faults":{"relay_killed":1}}`},
	{"lost marks have no limit", []string{usual, wrote("a", 1, "committed"), wrote("b", 2, "committed"), wrote("c", 3, "committed"), arrived("a", 1, "/1", 2), arrived("b", 2, "/1", 2), arrived("c", 3, "/1", 2),
		happened("fault", "failover", "", 3), arrived("a", 1, "/1", 4), arrived("b", 2, "/1", 4), arrived("c", 3, "/1", 4)}, `{"messages":3,"duplicates":3,"windows":{"lost_marks":3},"faults":{"failover":1}}`},
	{"a clock that jumps", []string{usual, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), happened("fault", "clock_jump", "", 3), arrived("a", 1, "/2", 4)}, `{"messages":1,"duplicates":1,"windows":{"clock":1},"faults":{"clock_jump":1}}`},
	{"a duplicate where none may occur", []string{exact, wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), happened("fault", "relay_killed", "/1", 3), arrived("a", 1, "/2", 4)}, `{"messages":1,"duplicates":1,"outside":1,"faults":{"relay_killed":1}}`},
	{"a mark of the lane's owner", []string{usual, view(3, "r", 7, 1), view(3, "r", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":3,"relay":"r","at":5`)}, `{"messages":1,"owned":1}`},
	{"a mark of lane 0, at the last view", []string{usual, view(0, "r", 7, 1), view(0, "r", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":0,"relay":"r","at":9`)}, `{"messages":1,"owned":1}`},
	{"a mark while fenced", []string{usual, view(3, "old", 6, 1), view(3, "new", 7, 3), view(3, "new", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":3,"relay":"old","at":5`)}, `{"messages":1,"fenced":1}`},
	{"a mark between two leases", []string{usual, view(3, "old", 6, 1), view(3, "new", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":3,"relay":"old","at":5`)}, `{"messages":1}`},
	{"a mark before the first view", []string{usual, view(3, "r", 7, 6), view(3, "r", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":3,"relay":"old","at":5`)}, `{"messages":1}`},
	{"a mark in another lane", []string{usual, view(4, "new", 7, 1), view(4, "new", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":3,"relay":"old","at":5`)}, `{"messages":1}`},
	{"marks by rows have no fence", []string{rows, view(3, "new", 7, 1), view(3, "new", 7, 9), wrote("a", 1, "committed"), arrived("a", 1, "/1", 2), row("a", 1, `"state":"done","lane":3,"relay":"old","at":5`)}, `{"messages":1}`},
}

// The program in Go and the one in Python find what each history shows.
func TestBothJudgesAgreeOnHandwrittenHistories(t *testing.T) {
	t.Parallel()
	folder, files := t.TempDir(), make([]string, len(verdicts))
	for i, c := range verdicts {
		h, err := Decode(strings.NewReader(strings.Join(c.history, "\n")))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		files[i] = filepath.Join(folder, fmt.Sprint(i, ".jsonl.gz"))
		if err := h.Write(files[i]); err != nil {
			t.Fatal(err)
		}
	}
	others := judgedByPython(t, files)
	for i, c := range verdicts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := Verdict{Faults: map[string]int{}, Symptoms: map[string]int{}, Windows: map[string]int{}}
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			h, err := Read(files[i])
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Check(h); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("in Go: %+v, %v\n  want: %+v", got, err, want)
			}
			if !reflect.DeepEqual(others[i], want) {
				t.Errorf("in Python: %+v\n      want: %+v", others[i], want)
			}
		})
	}
}

// judgedByPython skips the test if the machine has no Python.
func judgedByPython(t *testing.T, files []string) []Verdict {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil && os.Getenv("REQUIRE_SERVERS") != "1" {
		t.Skip("there is no python3")
	}
	all, err := CheckInPython(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestBothJudgesRefuseAnUnreadableHistory(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"a later version": {`{"history":2}`},
		"no header":       {wrote("a", 1, "committed")},
		"unknown event":   {usual, `{"event":"guess"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "h.jsonl.gz")
			var compressed bytes.Buffer
			to := gzip.NewWriter(&compressed)
			_, _ = to.Write([]byte(strings.Join(lines, "\n")))
			_ = to.Close()
			if err := os.WriteFile(path, compressed.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			h, err := Read(path)
			if err == nil {
				_, err = Check(h)
			}
			if err == nil {
				t.Error("the Go program judged it")
			}
			if _, err := CheckInPython(t.Context(), []string{path}); err == nil {
				t.Error("the Python program judged it")
			}
		})
	}
}

// Both programs agree on random histories, most of which break the promise.
func TestBothJudgesAgreeOnRandomHistories(t *testing.T) {
	t.Parallel()
	folder, files, wants := t.TempDir(), []string{}, []Verdict{}
	for seed := range uint64(150) {
		h := randomHistory(rand.New(rand.NewPCG(seed, 0)))
		file := filepath.Join(folder, fmt.Sprint(seed, ".jsonl.gz"))
		if err := h.Write(file); err != nil {
			t.Fatal(err)
		}
		v, err := Check(h)
		if err != nil {
			t.Fatal(err)
		}
		files, wants = append(files, file), append(wants, v)
	}
	sum := Verdict{}
	for seed, other := range judgedByPython(t, files) {
		want := wants[seed]
		if !reflect.DeepEqual(other, want) {
			t.Errorf("seed %d: in Python %+v\n            in Go %+v", seed, other, want)
		}
		sum.Lost, sum.Reordered, sum.Uncommitted, sum.Outside = sum.Lost+want.Lost, sum.Reordered+want.Reordered, sum.Uncommitted+want.Uncommitted, sum.Outside+want.Outside
		sum.Fenced, sum.Owned, sum.Kept, sum.Undone = sum.Fenced+want.Fenced, sum.Owned+want.Owned, sum.Kept+want.Kept, sum.Undone+want.Undone
		sum.Duplicates += want.Duplicates
	}
	if min(sum.Lost, sum.Reordered, sum.Uncommitted, sum.Outside, sum.Fenced, sum.Owned, sum.Kept, sum.Undone) < 10 || sum.Outside > sum.Duplicates*3/4 {
		t.Errorf("the histories are too uniform: %+v", sum)
	}
}

func randomHistory(random *rand.Rand) *History {
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	h := &History{Header: Header{History: 1, Claim: pick("lanes", "lanes", "rows"), Ordered: random.IntN(4) > 0, Exact: random.IntN(8) == 0, Unsettled: random.IntN(4)}}
	for range 20 + random.IntN(60) {
		n, lane := random.IntN(12), random.IntN(2)
		e := Event{ID: fmt.Sprint("m", n), Key: fmt.Sprint("k", n%3), Number: n + random.IntN(2), At: float64(random.IntN(200)) / 2, Relay: pick("", "/1", "/2", "/3")}
		switch random.IntN(10) {
		case 0, 1:
			e.Event, e.Relay, e.Outcome = Wrote, "", pick(Committed, Committed, RolledBack, Unknown)
		case 2, 3, 4:
			e.Event = Arrived
		case 5, 6:
			e.Event, e.Lane, e.State, e.Attempts, e.Reason = Row, &lane, pick("done", "done", "error", "pending", "scheduled"), random.IntN(8)/7, pick("", "", "", "", "timeout", "refused")
		case 7:
			e = Event{Event: Lane, Lane: &lane, Relay: pick("", "/1", "/2"), Fence: int64(random.IntN(3)), At: e.At}
			h.Events = append(h.Events, e)
			e.At += 30
		case 8:
			e = Event{Event: pick(Fault, Symptom), At: e.At, Relay: e.Relay, Kind: pick(RelayKilled, RelaySuspended, RelaySuperseded, LeaseLost, AnswerLost, BrokerCut, DatabaseCut, DatabaseKilled, Failover, ClockJump)}
		default:
			if random.IntN(4) > 0 {
				continue
			}
			e = Event{Event: Undone, ID: e.ID}
		}
		h.Events = append(h.Events, e)
	}
	return h
}

// The published histories keep the promise, and have a line in the published results.
func TestPublishedHistoriesKeepThePromise(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/proof/*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no history is published: %v", err)
	}
	results, err := os.ReadFile("../../docs/proof/results.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	others, size := judgedByPython(t, files), int64(0)
	for i, file := range files {
		h, err := Read(file)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Check(h)
		if err != nil || !v.Holds() || !reflect.DeepEqual(v, others[i]) {
			t.Errorf("%s: in Go %+v, %v; in Python %+v", file, v, err, others[i])
		}
		if !bytes.Contains(results, []byte(fmt.Sprintf("%q", filepath.Base(file)))) {
			t.Errorf("%s has no line in results.jsonl", file)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 1<<20 {
		t.Errorf("the published histories have %d bytes, more than 1 MiB", size)
	}
}

// Both programs find each change that breaks the promise in a published history.
func TestBothJudgesFindChangesInAPublishedHistory(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../docs/proof/KilledRelaysLoseNothing_*.jsonl.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no history of killed relays is published: %v", err)
	}
	index := func(h *History, found func(Event) bool) int {
		t.Helper()
		i := slices.IndexFunc(h.Events, found)
		if i < 0 {
			t.Fatal("the history lacks an event that could be changed")
		}
		return i
	}
	changes := []struct {
		name   string
		change func(h *History)
		want   Verdict // by how much the figures change
	}{
		{"a message that never arrived", func(h *History) {
			id := h.Events[index(h, func(e Event) bool { return e.Event == Arrived })].ID
			h.Events = slices.DeleteFunc(h.Events, func(e Event) bool { return e.Event == Arrived && e.ID == id })
		}, Verdict{Lost: 1}},
		{"a message that arrived before its predecessor", func(h *History) {
			first := index(h, func(e Event) bool { return e.Event == Arrived })
			next := index(h, func(e Event) bool {
				return e.Event == Arrived && e.Key == h.Events[first].Key && e.Number > h.Events[first].Number
			})
			h.Events[first].ID, h.Events[next].ID = h.Events[next].ID, h.Events[first].ID
			h.Events[first].Number, h.Events[next].Number = h.Events[next].Number, h.Events[first].Number
		}, Verdict{Reordered: 1}},
		{"a duplicate by a relay that lives", func(h *History) {
			hit := map[string]bool{}
			for _, e := range h.Events {
				hit[e.Relay] = hit[e.Relay] || e.Event == Fault || e.Event == Symptom
			}
			h.Events = append(h.Events, h.Events[index(h, func(e Event) bool { return e.Event == Arrived && !hit[e.Relay] })])
		}, Verdict{Duplicates: 1, Outside: 1}},
		{"a message that was rolled back", func(h *History) {
			id := h.Events[index(h, func(e Event) bool { return e.Event == Arrived })].ID
			h.Events[index(h, func(e Event) bool { return e.Event == Wrote && e.ID == id })].Outcome = RolledBack
		}, Verdict{Messages: -1, Uncommitted: 1}},
		{"marks by a relay that another one had replaced", func(h *History) {
			for i := range h.Events {
				if h.Events[i].Event == Row {
					h.Events[i].Relay = "another"
				}
			}
		}, Verdict{}}, // the code below sets this Verdict
	}
	folder, changed, before := t.TempDir(), []string{}, Verdict{}
	for i, c := range changes {
		h, err := Read(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if before, err = Check(h); err != nil || before.Owned == 0 {
			t.Fatalf("before a change: %+v, %v", before, err)
		}
		c.change(h)
		changed = append(changed, filepath.Join(folder, fmt.Sprint(i, ".jsonl.gz")))
		if err := h.Write(changed[i]); err != nil {
			t.Fatal(err)
		}
	}
	changes[len(changes)-1].want = Verdict{Fenced: before.Owned, Owned: -before.Owned}
	others := judgedByPython(t, changed)
	for i, c := range changes {
		h, err := Read(changed[i])
		if err != nil {
			t.Fatal(err)
		}
		got, err := Check(h)
		if err != nil || !reflect.DeepEqual(got, others[i]) {
			t.Errorf("%s: in Go %+v, %v; in Python %+v", c.name, got, err, others[i])
		}
		by := Verdict{
			Messages: got.Messages - before.Messages, Lost: got.Lost - before.Lost, Reordered: got.Reordered - before.Reordered, Uncommitted: got.Uncommitted - before.Uncommitted,
			Duplicates: got.Duplicates - before.Duplicates, Outside: got.Outside - before.Outside, Fenced: got.Fenced - before.Fenced, Owned: got.Owned - before.Owned,
		}
		if !reflect.DeepEqual(by, c.want) {
			t.Errorf("%s changes the verdict by %+v, want %+v", c.name, by, c.want)
		}
	}
}
