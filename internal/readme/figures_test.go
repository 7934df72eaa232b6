package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// measured is a figure as bench records it.
type measured struct {
	Row, What, Value, Reference, Goal, On string
	Ratio                                 float64
	Met                                   bool
}

// withoutGoals lists the rows of figures that bench/FIGURES.md has even if they have no goal, because other pages refer to them.
var withoutGoals = []string{"latency", "producer", "order"}

// figures returns a table for each row of figures: those with a goal, and those of withoutGoals. It leaves out the row loops,
// which measures only the loops that others are compared with.
func figures(t testing.TB) string {
	t.Helper()
	all := recorded(t)
	var rows []string
	tables := map[string]string{}
	for _, f := range all {
		if f.Row == "loops" || f.Goal == "" && !slices.Contains(withoutGoals, f.Row) {
			continue
		}
		if !slices.Contains(rows, f.Row) {
			rows = append(rows, f.Row)
			tables[f.Row] = fmt.Sprintf("### %s\n\n| | rowrelay | compared with | ratio | goal |\n| --- | --- | --- | --- | --- |\n", f.Row)
		}
		ratio := ""
		if f.Reference != "" {
			ratio = fmt.Sprintf("%.2f", f.Ratio)
		}
		goal := f.Goal
		if goal != "" && !f.Met {
			goal += ", **missed**"
		}
		what := f.What
		if f.Row == "drain" {
			what = strings.TrimSuffix(what, ", batches of 500") // all drains have them
		}
		tables[f.Row] += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", what, median(f.Value), median(f.Reference), ratio, goal)
	}
	var text strings.Builder
	for _, row := range rows {
		text.WriteString(tables[row] + "\n")
	}
	fmt.Fprintf(&text, "Measured on %s.\n", strings.Join(occasions(all), "; "))
	return text.String()
}

// comparison is a figure that readers look for, with a label that is clear without another page.
type comparison struct{ row, what, label, other string }

// comparisons has the rows of the first table in docs/performance.md.
var comparisons = []comparison{
	{"debezium", "a backlog, warm", "a backlog to Kafka", "Debezium"},
	{"debezium", "a backlog, including the start of the process", "200,000 messages to Kafka, including the start of the process", "Debezium"},
	{"debezium", "memory at most, resident", "peak memory while it delivers a backlog", "Debezium"},
	{"debezium", "200/s, p50", "commit to Kafka's consumer, 200 a second, median", "Debezium"},
	{"debezium", "next new message after a kill (5 kills per round)", "next delivery after a kill", "Debezium"},
	{"debezium", "CPU of the process per message", "CPU of the process per message", "Debezium"},
	{"debezium", "CPU of PostgreSQL per message", "CPU of PostgreSQL per message", "Debezium"},
	{"rabbitmq", "1 classic queue, compared with others, by River", "a backlog to RabbitMQ", "River"},
	{"rabbitmq", "1 classic queue, compared with others, by Watermill SQL", "a backlog to RabbitMQ", "Watermill SQL"},
	{"rabbitmq", "1 classic queue, compared with others, by oagudo/outbox", "a backlog to RabbitMQ", "oagudo/outbox"},
	{"peers", "PostgreSQL 15, kept, by River", "a backlog, delivered rows kept", "River"},
	{"peers", "PostgreSQL 15, kept, by Watermill forwarder", "a backlog, delivered rows kept", "Watermill's forwarder"},
	{"peers", "PostgreSQL 15, kept, by Watermill SQL", "a backlog, delivered rows kept", "Watermill SQL, a subscriber"},
	{"peers", "PostgreSQL 15, deleted, by oagudo/outbox", "a backlog, delivered rows deleted", "oagudo/outbox"},
	{"drain", "PostgreSQL 15, lanes, kept, 256 B, batches of 500", "a backlog, delivered rows kept", "a loop by hand"},
	{"drain", "MySQL 9.7, lanes, kept, 256 B, batches of 500", "a backlog on MySQL 9.7, delivered rows kept", "a loop by hand"},
	{"drain", "MariaDB 10.11, lanes, kept, 256 B, batches of 500", "a backlog on MariaDB 10.11, delivered rows kept", "a loop by hand"},
	{"drain", "SQLite, lanes, kept, 256 B, batches of 500", "a backlog on SQLite, delivered rows kept", "a loop by hand"},
}

var (
	spread = regexp.MustCompile(` \([^()]*\)$`) // the lowest and the highest figure of all rounds
	digits = regexp.MustCompile(`\d{4,}`)
)

// median returns a figure without its spread, and with commas between thousands.
func median(text string) string {
	return digits.ReplaceAllStringFunc(spread.ReplaceAllString(text, ""), func(number string) string {
		value, _ := strconv.ParseFloat(number, 64)
		return thousands(value)
	})
}

// reference returns the median that a figure was compared with. It leaves out the name before the median.
func (f measured) reference() string {
	text := median(f.Reference)
	return text[max(0, strings.IndexAny(text, "0123456789")):]
}

// compared returns the table of comparisons.
func compared(t testing.TB) string {
	t.Helper()
	var lines strings.Builder
	lines.WriteString("| | rowrelay | compared with | | ratio |\n| --- | --- | --- | --- | --- |\n")
	for _, c := range comparisons {
		f := figure(t, c.row, c.what)
		fmt.Fprintf(&lines, "| %s | %s | %s | %s | %.2f |\n", c.label, median(f.Value), c.other, f.reference(), f.Ratio)
	}
	return lines.String()
}

func figure(t testing.TB, row, what string) measured {
	t.Helper()
	all := recorded(t)
	i := slices.IndexFunc(all, func(f measured) bool { return f.Row == row && f.What == what })
	if i < 0 {
		t.Fatalf("bench/figures.json has no %s: %s", row, what)
	}
	return all[i]
}

// scenes describes what each row of figures with a goal measures.
var scenes = map[string]string{
	"drain":    "a backlog to a sink that does nothing, against a loop by hand",
	"peers":    "a backlog, against River, Watermill and oagudo/outbox",
	"kafka":    "a backlog to Kafka, against a bare producer or the table's limit, whichever is lower",
	"rabbitmq": "a backlog to RabbitMQ, against a bare producer and others",
	"latency":  "commit to delivery, and the CPU for it, against a loop that polls each millisecond",
	"idle":     "CPU of a relay that has nothing to do",
	"snapshot": "a backlog while a snapshot is held open, last round against first",
	"growth":   "cost per message, and memory, up to 10 million messages",
	"hour":     "an hour of 1,000 a second, last tenth against first",
	"done":     "a backlog with a day of delivered rows in the table, against a table without them",
	"held":     "a backlog with a million scheduled or parked rows in the table, against a table without them",
	"producer": "a transaction with `Write`, against one with a bare INSERT",
	"plugin":   "a plug-in, against the same sink inside the process",
	"fanout":   "a backlog to two sinks, against one",
	"debezium": "a backlog to Kafka, against Debezium",
}

// goals returns the table of the goals that rowrelay has set itself. For each row of figures it has the number of goals that
// were met.
func goals(t testing.TB) string {
	t.Helper()
	var rows []string
	targets, of, met := map[string][]string{}, map[string]int{}, map[string]int{}
	for _, f := range recorded(t) {
		if f.Goal == "" || f.Row == "loops" {
			continue
		}
		if of[f.Row]++; of[f.Row] == 1 {
			rows = append(rows, f.Row)
		}
		if !slices.Contains(targets[f.Row], f.Goal) {
			targets[f.Row] = append(targets[f.Row], f.Goal)
		}
		if f.Met {
			met[f.Row]++
		}
	}
	var lines strings.Builder
	lines.WriteString("| scene | what it measures | goals | met |\n| --- | --- | --- | --- |\n")
	for _, row := range rows {
		if scenes[row] == "" {
			t.Errorf("no text describes what the scene %s measures", row)
		}
		fmt.Fprintf(&lines, "| %s | %s | %s | %d of %d |\n", row, scenes[row], strings.Join(targets[row], "; "), met[row], of[row])
	}
	return lines.String()
}

// besideDebezium returns the table of the figures that compare rowrelay, by default and with idempotent: true, with
// Debezium.
func besideDebezium(t testing.TB) string {
	t.Helper()
	const idempotent = "idempotent: "
	var lines strings.Builder
	lines.WriteString("| | rowrelay | rowrelay, `idempotent: true` | Debezium |\n| --- | --- | --- | --- |\n")
	var on []measured
	for _, f := range recorded(t) {
		if f.Row != "debezium" {
			continue
		}
		on = append(on, f)
		if f.Reference != "" && !strings.HasPrefix(f.What, idempotent) {
			other := figure(t, f.Row, idempotent+f.What)
			fmt.Fprintf(&lines, "| %s | %s | %s | %s |\n", f.What, f.Value, other.Value, strings.TrimPrefix(f.Reference, "Debezium "))
		}
	}
	const lost = "messages lost, and messages out of order, in total"
	ours, theirs, _ := strings.Cut(strings.TrimSuffix(figure(t, "debezium", lost).Value, ")"), " (Debezium: ")
	also, _, _ := strings.Cut(figure(t, "debezium", idempotent+lost).Value, " (")
	fmt.Fprintf(&lines, "| %s | %s | %s | %s |\n", lost, ours, also, theirs)
	log := figure(t, "debezium", "write-ahead log that rowrelay holds").Value
	fmt.Fprintf(&lines, "| write-ahead log that the server must keep | %s | the same | %s |\n", log, figure(t, "debezium", "write-ahead log that Debezium holds").Value)
	fmt.Fprintf(&lines, "\nMeasured on %s.\n", strings.Join(occasions(on), "; "))
	return lines.String()
}

func recorded(t testing.TB) (all []measured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "bench/figures.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &all))
	if len(all) == 0 {
		t.Fatal("bench/figures.json has no figure")
	}
	return all
}

// occasions returns the dates and machines of the figures, each once.
func occasions(all []measured) (on []string) {
	for _, f := range all {
		on = append(on, f.On)
	}
	slices.Sort(on)
	return slices.Compact(on)
}

// The README's sentence on speed agrees with the figures.
func TestSpeedInTheREADMEIsMeasured(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md").text
	if want := fmt.Sprintf("%.1f times as fast as Debezium", figure(t, "debezium", "a backlog, warm").Ratio); !strings.Contains(readme, want) {
		t.Errorf("README.md lacks %q", want)
	}
	if memory := figure(t, "debezium", "memory at most, resident").Ratio; memory > 0.105 && strings.Contains(readme, "a tenth of Debezium's memory") {
		t.Errorf("README.md says that rowrelay takes a tenth of Debezium's memory; measured: %.3f", memory)
	}
}
