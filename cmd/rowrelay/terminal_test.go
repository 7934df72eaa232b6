package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// terminal is an output on a terminal with this number of columns.
type terminal struct {
	bytes.Buffer
	columns int
}

func (t *terminal) Size() (columns, rows int) { return t.columns, 20 }

// keyboard is the input of a terminal.
type keyboard struct{ io.Reader }

func (keyboard) Size() (columns, rows int) { return 80, 20 }

// answered runs a command on a terminal with this input.
func answered(ctx context.Context, typed string, args ...string) result {
	var stdout bytes.Buffer
	stderr := &terminal{columns: 80}
	p := program{stdin: keyboard{strings.NewReader(typed)}, stdout: &stdout, stderr: stderr}
	code := p.run(ctx, args)
	return result{code, stdout.String(), stderr.String()}
}

// On a terminal, a command that can't be undone asks for confirmation. Without a terminal it is
// refused.
func TestConfirmationBeforeALoss(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		for name, test := range map[string]struct {
			typed, want string
			code        int
		}{
			"no":              {"n\n", "2 messages will be discarded: they are deleted for good. Continue? [y/N] rowrelay: nothing was changed\n", exitFailed},
			"nothing":         {"\n", "nothing was changed", exitFailed},
			"end of the file": {"", "nothing was changed", exitFailed},
		} {
			got := answered(t.Context(), test.typed, "messages", "discard", "--topic", "orders", "--database", db.URL)
			if got.code != test.code || !strings.Contains(got.stderr, test.want) || got.stdout != "" {
				t.Errorf("%s: exit code %d, %q %q", name, got.code, got.stdout, got.stderr)
			}
		}
		for _, command := range []string{"discard", "skip"} {
			got := call(t.Context(), "y\n", "messages", command, "--all", "--database", db.URL)
			if got.code != exitUsage || !strings.Contains(got.stderr, "give --yes to confirm") {
				t.Errorf("%s: exit code %d, %q", command, got.code, got.stderr)
			}
		}
		if got := statusOf(t, db); got.Error != 3 {
			t.Fatalf("%d are parked after all of this, want 3", got.Error)
		}
		if got := answered(t.Context(), "y\n", "messages", "discard", "--topic", "orders", "--limit", "1", "--database", db.URL); got.code != exitDone || got.stdout != "discarded 1\n" {
			t.Errorf("exit code %d, %q %q", got.code, got.stdout, got.stderr)
		}
		left := list(t, db, "--state", "error")
		if len(left) != 2 {
			t.Fatalf("%d are left, want 2", len(left))
		}
		mustRun(t, "messages", "discard", fmt.Sprint(left[0].ID), "--database", db.URL) // with ids, the command doesn't ask
		if got := mustRun(t, "messages", "discard", "--all", "--yes", "--database", db.URL); got.stdout != "discarded 1\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
	})
}

func TestDryRuns(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		parked(t, db)
		execute(t, db.DB, "UPDATE outbox_held SET state = 'retry', available_at = '2100-01-01 00:00:00.000' WHERE topic = 'mails'")
		for command, want := range map[string]int{
			"requeue --all":                     2,
			"requeue --all --limit 1":           1,
			"requeue --topic orders --rate 500": 2,
			"discard --all":                     2,
			"discard --key a":                   1,
			"discard --state retry":             1,
			"skip --all":                        0, // no message holds its key, so nothing is skipped
			"skip --state retry --key a":        1,
			"retry --all":                       1,
			"retry --topic orders":              0,
		} {
			args := append(append([]string{"messages"}, strings.Fields(command)...), "--dry-run", "--json", "--database", db.URL)
			var got struct{ Parked int }
			if err := json.Unmarshal([]byte(mustRun(t, args...).stdout), &got); err != nil || got.Parked != want {
				t.Errorf("%s would change %d messages (%v), want %d", command, got.Parked, err, want)
			}
		}
		got := statusOf(t, db)
		if got.Error != 2 || got.Retry != 1 {
			t.Errorf("after the dry runs the status is %+v", got)
		}
		if got := mustRun(t, "messages", "retry", "--all", "--database", db.URL); got.stdout != "retried 1\n" {
			t.Errorf("stdout is %q", got.stdout)
		}
	})
}

// An interrupted change prints how far it got, and exits with 130.
func TestInterruptedChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]change{"requeued": requeued, "discarded": {operate.Discard, "discarded", ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := memstore.New()
			for range 1200 {
				db.Write(outbox.Message{Topic: "t"})
			}
			settleAll(t, db, func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateError} })
			ctx, cancel := context.WithCancel(t.Context())
			m := &messages{program: program{stderr: io.Discard}}
			operator := &interrupting{Operator: db.Store(), cancel: cancel}
			_, changed, err := m.carryOut(ctx, operator, operate.Bulk{Action: change.action}, change)
			if want := "interrupted: 500 of 1,200 " + name + "; run the command again to continue"; changed != 500 || err == nil || err.Error() != want {
				t.Errorf("%d changed, %v, want %s", changed, err, want)
			}
			_, changed, err = m.carryOut(t.Context(), operator, operate.Bulk{Action: change.action}, change)
			if changed != 700 || err != nil {
				t.Errorf("%d changed, %v, want the other 700", changed, err)
			}
		})
	}
}

// interrupting is an Operator that cancels the context during its first change.
type interrupting struct {
	storage.Operator
	cancel context.CancelFunc
}

func (i *interrupting) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	i.cancel()
	return i.Operator.Requeue(context.WithoutCancel(ctx), filter)
}

func (i *interrupting) Discard(ctx context.Context, filter storage.Filter) (int, error) {
	i.cancel()
	return i.Operator.Discard(context.WithoutCancel(ctx), filter)
}

// enqueue ends when it is interrupted while it waits for input, and prints how far it got.
func TestInterruptedEnqueue(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		ctx, interrupt := context.WithCancel(t.Context())
		input, lines := io.Pipe()
		t.Cleanup(func() { _ = lines.Close() })
		go func() {
			_, _ = io.WriteString(lines, jsonLines("t", 30, 3)+"\n")
			interrupt()
		}()
		var stderr bytes.Buffer
		p := program{stdin: input, stdout: io.Discard, stderr: &stderr}
		code := p.run(ctx, []string{"enqueue", "--batch", "10", "--database", db.URL})
		if code != exitInterrupted || !strings.Contains(stderr.String(), "interrupted: ") {
			t.Errorf("exit code %d, %q", code, &stderr)
		}
		var written, line int
		said := strings.ReplaceAll(stderr.String(), "rowrelay: interrupted: ", "")
		if _, err := fmt.Sscanf(said, "%d messages were written, up to line %d", &written, &line); err != nil || written != line || int64(written) != statusOf(t, db).Pending {
			t.Errorf("%q: %v, and there are %d", said, err, statusOf(t, db).Pending)
		}
	})
}

// On a terminal, progress is one line that is redrawn. On other streams a line is printed every
// ten seconds.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := func(rate float64) string { return fmt.Sprintf("%.0f a second \x1b[2J", rate) }
		var plain bytes.Buffer
		screen := &terminal{columns: 70}
		at := newProgress(screen)
		elsewhere := newProgress(&plain)
		for done := range 250 {
			at.update(done*10, 2500, text)
			elsewhere.update(done*10, 2500, text)
			time.Sleep(100 * time.Millisecond)
		}
		at.end()
		elsewhere.end()
		if want := "100 a second �[2J\n100 a second �[2J\n"; plain.String() != want {
			t.Errorf("elsewhere it is %q, want %q", &plain, want)
		}
		drawn := screen.String()
		if n := strings.Count(drawn, "\r\x1b[K"); n != 125 || strings.Contains(drawn, "\n") || !strings.Contains(drawn, "[##########----------] 100 a second") || !strings.HasSuffix(drawn, "\r\x1b[K") {
			t.Errorf("on a terminal it is drawn %d times: %q", n, drawn)
		}
	})
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 123456: "123,456", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

// On a terminal, a table is cut to the terminal's width. On other streams it is not cut.
func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	rows := [][]string{{"\nID", "STATE", "TOPIC", "ERROR"}, {"1", "error", "orders.paid", strings.Repeat("it broke; ", 20)}, {"2", "done", strings.Repeat("topic", 8), "\x1b[2J"}}
	for width, want := range map[int]string{
		1000: "\nID  STATE  TOPIC                                     ERROR\n1   error  orders.paid                               " + strings.Repeat("it broke; ", 19) + "it broke;\n2   done   " + strings.Repeat("topic", 8) + "  �[2J\n",
		50:   "\nID  STATE  TOPIC               ERROR\n1   error  orders.paid         it broke; it broke…\n2   done   topictopictopicto…  �[2J\n",
		10:   "\nID  STATE  TOPIC   ERROR\n1   error  order…  it br…\n2   done   topic…  �[2J\n",
	} {
		out := &terminal{columns: width}
		if err := (program{stdout: out}).printTable(rows); err != nil || out.String() != want {
			t.Errorf("%d columns: %v, got\n%s\nwant\n%s", width, err, out, want)
		}
	}
	coloured := &terminal{columns: 80}
	if err := (program{stdout: coloured, colours: true}).printTable(rows); err != nil || !strings.Contains(coloured.String(), "1   \x1b[31merror\x1b[0m  orders.paid") {
		t.Errorf("%v, %q", err, coloured)
	}
	var plain bytes.Buffer
	if err := (program{stdout: &plain, colours: true}).printTable(rows); err != nil || !strings.Contains(plain.String(), strings.Repeat("it broke; ", 20)) || strings.Contains(plain.String(), "\x1b") {
		t.Errorf("%v, %q", err, &plain)
	}
}

func TestElapsed(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 412 * time.Millisecond: "412ms", 1234 * time.Millisecond: "1.2s", 59 * time.Second: "59s", time.Minute: "1m", 192 * time.Second: "3m 12s",
		2*time.Hour + 59*time.Second: "2h", 26*time.Hour + time.Minute: "1d 2h", 400 * 24 * time.Hour: "400d",
	} {
		if got := elapsed(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}

// status --watch redraws in place, with rates, and continues after failures of the database.
func TestWatchingTheStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		ctx, interrupt := context.WithCancel(t.Context())
		looks := 0
		operator := &looked{Operator: db.Store(), before: func() error {
			switch looks++; looks {
			case 2:
				for range 30 {
					db.Write(outbox.Message{Topic: "t"})
				}
			case 3:
				return errors.New("the server is away")
			case 5:
				interrupt()
			}
			return nil
		}}
		out := &terminal{columns: 60}
		if err := (program{stdout: out}).showStatus(ctx, operator, "outbox", (&target{}).hasRoute(config.Source{}), 2*time.Second, false); err != nil {
			t.Error(err)
		}
		frames := strings.Split(out.String(), "\x1b[H")
		if len(frames) != 5 || frames[0] != "\x1b[2J" {
			t.Fatalf("%d frames: %q", len(frames), frames)
		}
		for n, want := range map[int]string{1: "pending         0\x1b[K\n", 2: "pending         30               +15.0/s\x1b[K\n", 3: "the server is away", 4: "pending         30"} {
			if !strings.Contains(frames[n], want) || !strings.HasSuffix(frames[n], "\x1b[K\n\x1b[J") {
				t.Errorf("frame %d is %q, want %q in it", n, frames[n], want)
			}
		}
	})
}

// status prints "unknown" for each figure that the database didn't return in time.
func TestStatusWithMissingFigures(t *testing.T) {
	t.Parallel()
	absent := storage.Status{Absent: []storage.Gauge{storage.GaugeCounts, storage.GaugeOldestPending, storage.GaugeOldestRetry, storage.GaugeHeldKeys, storage.GaugeTopics, storage.GaugeRelays, storage.GaugeLanes}}
	out := &terminal{}
	if err := (program{stdout: out}).printStatus(absent, (&target{}).hasRoute(config.Source{}), nil); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || !strings.HasPrefix(lines[0], "claim ") {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines[1:] {
		if !strings.HasSuffix(line, tooLong) {
			t.Errorf("the line %q doesn't end with %q", line, tooLong)
		}
	}
}

// looked is an Operator whose Status calls a function of the test before it returns the status.
type looked struct {
	storage.Operator
	before func() error
}

func (l *looked) Status(ctx context.Context) (storage.Status, error) {
	if err := l.before(); err != nil {
		return storage.Status{}, err
	}
	return l.Operator.Status(ctx)
}
