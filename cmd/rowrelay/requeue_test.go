package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// settleAll settles all pending messages of a table in memory. The argument how returns the settlement of a row.
func settleAll(t *testing.T, db *memstore.DB, how func(storage.Row) storage.Settlement) {
	t.Helper()
	store := db.Store()
	grants, err := store.Acquire(t.Context(), "r", storage.Lanes, time.Minute)
	if err != nil || len(grants) != storage.Lanes {
		t.Fatal(len(grants), err)
	}
	fences := map[int]int64{}
	var positions []storage.Position
	var renewals []storage.Renewal
	for _, grant := range grants {
		fences[grant.Lane] = grant.Fence
		positions = append(positions, storage.Position{Lane: grant.Lane})
		renewals = append(renewals, storage.Renewal{Lease: grant.Lease})
	}
	page, err := store.Read(t.Context(), storage.ReadRequest{Positions: positions, Limit: 1 << 20, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	var settlements []storage.Settlement
	for _, row := range page.Rows {
		settlement := how(row)
		settlement.ID, settlement.Lane, settlement.MessageID, settlement.Fence = row.ID, row.Lane, row.Message.ID, fences[row.Lane]
		settlements = append(settlements, settlement)
	}
	if got, err := store.Settle(t.Context(), "r", true, settlements); err != nil || got.Changed != len(settlements) {
		t.Fatal(got, err)
	}
	if err := store.Release(t.Context(), "r", renewals); err != nil {
		t.Fatal(err)
	}
}

// requeues is an Operator that records the requeued ids, and calls a function of the test after each batch.
type requeues struct {
	storage.Operator
	ids   []string
	after func(batch int) error
	batch int
}

func (r *requeues) Requeue(ctx context.Context, filter storage.Filter) (int, error) {
	n, err := r.Operator.Requeue(ctx, filter)
	r.ids = append(r.ids, filter.IDs...)
	r.batch++
	if r.after != nil && err == nil {
		err = r.after(r.batch)
	}
	return n, err
}

// aRequeue returns a requeue and its two outputs.
func aRequeue(rate int) (r *requeue, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &requeue{messages: &messages{program: program{stdout: stdout, stderr: stderr}}, rate: rate}, stdout, stderr
}

// A requeue keeps to its rate and prints its progress. It requeues messages that hold their keys first. A message that is
// parked meanwhile stays parked.
func TestRequeueKeepsItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := memstore.New()
		for i := range 2500 {
			db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint(i)})
		}
		settleAll(t, db, func(row storage.Row) storage.Settlement {
			return storage.Settlement{State: storage.StateError, Holds: row.ID%1000 == 7}
		})
		operator := &requeues{Operator: db.Store(), after: func(batch int) error {
			if batch == 1 {
				db.Write(outbox.Message{Topic: "t", Key: "later"})
				settleAll(t, db, func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateError} })
			}
			return nil
		}}
		r, stdout, stderr := aRequeue(200)
		start := time.Now()
		if err := r.run(t.Context(), operator, storage.Filter{Topic: "t"}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 12*time.Second {
			t.Errorf("2,500 at 200 per second, the first 200 immediately, took %v, want 12s", took)
		}
		if want := "requeued 2500\n"; stdout.String() != want {
			t.Errorf("stdout is %q, want %q", stdout, want)
		}
		if want := "requeued 2,200 of 2,500, 220/s, 300 left, about 1s\n"; !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("the progress is %q, want it to begin with %q", stderr, want)
		}
		if want := []string{"7", "1007", "2007", "1", "2"}; !slices.Equal(operator.ids[:5], want) || len(operator.ids) != 2500 {
			t.Errorf("%d were requeued, first %v, want %v", len(operator.ids), operator.ids[:5], want)
		}
		left, err := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
		if err != nil || len(left) != 1 || left[0].Message.Key != "later" {
			t.Errorf("%d are left, %v, want the one that was parked later", len(left), err)
		}
	})
}

// A requeue or a replay to a sink that no live relay has is refused, because the messages would wait forever.
func TestRequeueRefusesUnknownSinks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, to, want string
		relays         map[string][]string // the sinks of each relay; a relay whose name begins with dead isn't alive
	}{
		{"no relay", "orders", "no relay is alive", nil},
		{"a dead relay", "orders", "no relay is alive", map[string][]string{"dead": {"orders: Kafka"}}},
		{"a typo", "order", `no live relay has a sink "order"; they have orders`, map[string][]string{"a": {"orders: Kafka"}, "dead": {"order: Kafka"}}},
		{"a living relay's", "orders", "", map[string][]string{"a": {"billing: HTTP"}, "b": {"orders: Kafka"}}},
		{"of a relay with many", "orders", "", map[string][]string{"a": {"billing: HTTP", "…"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db := delivered(t, 1)
				db.Write(outbox.Message{Topic: "t"})
				settleAll(t, db, func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateError} })
				for name, sinks := range test.relays {
					lasts := time.Hour
					if strings.HasPrefix(name, "dead") {
						lasts = time.Second
					}
					if _, err := db.Store().Heartbeat(t.Context(), storage.Identity{Name: name, Claim: storage.ByLanes, Config: storage.Config{Sinks: sinks}}, lasts); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				r, _, _ := aRequeue(0)
				r.to = test.to
				requeued := r.run(t.Context(), db.Store(), storage.Filter{Topic: "t"})
				replayed := (&target{}).checkLivingSink(t.Context(), db.Store(), test.to)
				for _, err := range []error{requeued, replayed} {
					if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
						t.Errorf("to %s: %v, want %q", test.to, err, test.want)
					}
				}
				parked, err := db.Store().List(t.Context(), storage.Filter{State: storage.StateError})
				if err != nil || (len(parked) == 1) != (test.want != "") {
					t.Errorf("%d stay parked, %v", len(parked), err)
				}
			})
		})
	}
}

// busyOperator can't read the relays in time.
type busyOperator struct{ storage.Operator }

func (o busyOperator) Status(ctx context.Context) (storage.Status, error) {
	status, err := o.Operator.Status(ctx)
	status.Relays, status.Absent = nil, []storage.Gauge{storage.GaugeRelays}
	return status, err
}

// Relays that could not be read in time don't count as dead.
func TestABusyDatabaseHidesRelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		operator := busyOperator{delivered(t, 1).Store()}
		if err := (&target{table: "outbox"}).checkLivingSink(t.Context(), operator, "orders"); err == nil || !strings.Contains(err.Error(), "could not be read in time") {
			t.Errorf("the error is %v", err)
		}
	})
}

// After an interruption, another run requeues the remaining messages, and none twice.
func TestRequeueContinues(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	for range 1200 {
		db.Write(outbox.Message{Topic: "t"})
	}
	settleAll(t, db, func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateError} })
	broken := errors.New("the cable was pulled")
	operator := &requeues{Operator: db.Store(), after: func(batch int) error {
		if batch == 2 {
			return broken
		}
		return nil
	}}
	r, stdout, _ := aRequeue(0)
	if err := r.run(t.Context(), operator, storage.Filter{}); !errors.Is(err, broken) || !strings.Contains(err.Error(), "1000 of 1200 messages were requeued") {
		t.Errorf("got %v", err)
	}
	if err := r.run(t.Context(), operator, storage.Filter{}); err != nil {
		t.Error(err)
	}
	if want := "requeued 1000\nrequeued 200\n"; stdout.String() != want {
		t.Errorf("stdout is %q, want %q", stdout, want)
	}
	if once := slices.Compact(slices.Sorted(slices.Values(operator.ids))); len(operator.ids) != 1200 || len(once) != 1200 {
		t.Errorf("%d were requeued, %d of them once", len(operator.ids), len(once))
	}
}

// Overtaken messages are counted, and with --in-order they stay parked.
func TestRequeueInOrder(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		mustCall(t, `{"topic":"bad","key":"a","payload":"1"}
{"topic":"bad","key":"b","payload":"2"}
{"topic":"fine","key":"a","payload":"3"}
{"topic":"worse","key":"a","payload":"4"}
`, "enqueue", "--database", db.URL)
		endpoint := newWeb(t, func(r request) int {
			if r.topic == "fine" {
				return http.StatusOK
			}
			return http.StatusBadRequest
		})
		drainAtOnce(t, db, endpoint.URL)
		a := list(t, db, "--topic", "bad", "--key", "a")[0]
		dry := mustRun(t, "messages", "requeue", "--all", "--dry-run", "--database", db.URL).stdout
		for _, want := range []string{`^TOPIC +MESSAGES\n`, `bad +2\n`, `worse +1\n`, `\(all\) +3\n`, `\novertaken by later messages of their keys: 1\n3 would be requeued; nothing was changed`} {
			if !regexp.MustCompile(want).MatchString(dry) {
				t.Errorf("%s isn't in\n%s", want, dry)
			}
		}
		got := mustRun(t, "messages", "requeue", "--all", "--in-order", "--database", db.URL)
		if got.stdout != "requeued 2\n" || got.stderr != fmt.Sprintf("1 stay parked, because later messages of their keys were delivered:\n  %d, key a\n", a.ID) {
			t.Errorf("stdout is %q, stderr is %q", got.stdout, got.stderr)
		}
		got = mustRun(t, "messages", "requeue", "--topic", "bad", "--in-order", "--json", "--database", db.URL)
		if want := fmt.Sprintf("{\n  \"requeued\": 0,\n  \"overtaken\": 1,\n  \"left\": [\n    %d\n  ]\n}\n", a.ID); got.stdout != want {
			t.Errorf("stdout is %q, want %q", got.stdout, want)
		}
		got = mustRun(t, "messages", "requeue", fmt.Sprint(a.ID), "--database", db.URL)
		if got.stdout != "requeued 1\n" || !strings.HasPrefix(got.stderr, "overtaken: 1 of these messages") {
			t.Errorf("got %q and %q", got.stdout, got.stderr)
		}
	})
}

// A message that is redirected to a sink goes only to this sink. Messages that hold their keys aren't redirected.
func TestRequeueToAnotherSink(t *testing.T) {
	t.Parallel()
	db := memstore.New()
	for i := range 5 {
		db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint(i)})
	}
	settleAll(t, db, func(row storage.Row) storage.Settlement {
		return storage.Settlement{State: storage.StateError, Holds: row.ID == 2}
	})
	r, stdout, stderr := aRequeue(0)
	r.to = "other"
	if _, err := db.Store().Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: storage.ByLanes, Config: storage.Config{Sinks: []string{"other: a file"}}}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context(), db.Store(), storage.Filter{}); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != "requeued 4\n" || stderr.String() != "1 stay as they are: they hold their keys, or have rows for other sinks that are parked or waiting\n" {
		t.Errorf("stdout is %q, stderr is %q", stdout, stderr)
	}
	all, err := db.Store().List(t.Context(), storage.Filter{})
	for _, info := range all {
		if want := map[bool]string{true: "", false: "other"}[info.ID == 2]; info.Sinks != want {
			t.Errorf("message %d is for %q, want %q", info.ID, info.Sinks, want)
		}
	}
	if err != nil || len(all) != 5 {
		t.Errorf("%d messages, %v", len(all), err)
	}
}

// Messages that wait for a sink that no longer exists can be sent to another sink, as the log recommends. Each is sent once,
// in the order of its key.
func TestRequeueFromAnUnknownSink(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		mustCall(t, `{"topic":"t","key":"k","payload":"1"}
{"topic":"t","key":"k","payload":"2"}
{"topic":"t","key":"k","payload":"3"}
{"topic":"other","payload":"other"}
`, "enqueue", "--database", db.URL)
		if _, err := db.DB.ExecContext(t.Context(), "UPDATE outbox SET sinks = 'old' WHERE topic = 't'"); err != nil {
			t.Fatal(err)
		}
		endpoint := newWeb(t, always(http.StatusOK))
		d := start(t, "run", "--config", configure(t, db, fmt.Sprintf("sinks:\n  new: {type: http, url: %q}\n", endpoint.URL)))
		if got := endpoint.next(t, endpoint.arrived).body; got != "other" {
			t.Errorf("the first message is %q, want other", got)
		}
		d.log.wait(t, "rowrelay messages requeue --sink NAME --to ANOTHER")
		if got := mustRun(t, "messages", "requeue", "--sink", "old", "--to", "new", "--database", db.URL, "--dry-run"); !strings.Contains(got.stdout, "SINKS") || !strings.Contains(got.stdout, "\n3 would be requeued; nothing was changed") {
			t.Errorf("--dry-run prints %s", got.stdout)
		}
		if got := mustRun(t, "messages", "requeue", "--sink", "old", "--to", "new", "--database", db.URL); got.stdout != "requeued 3\n" {
			t.Errorf("requeue prints %q", got.stdout)
		}
		for _, want := range []string{"1", "2", "3"} {
			if got := endpoint.next(t, endpoint.arrived).body; got != want {
				t.Errorf("the next message is %q, want %q", got, want)
			}
		}
		if code, logged := d.stop(t); code != exitDone {
			t.Errorf("exit code %d:\n%s", code, logged)
		}
		if left := list(t, db, "--state", "pending"); len(left) > 0 || len(endpoint.arrived) > 0 {
			t.Errorf("the messages left are %v, and %d more arrived", left, len(endpoint.arrived))
		}
	})
}

// While a live relay has a sink, the messages that wait for the sink are not requeued.
func TestRequeueLeavesMessagesOfLiveSinks(t *testing.T) {
	t.Parallel()
	for old, want := range map[string]string{"old: a file": "requeued 0\n", "older: a file": "requeued 3\n"} {
		db := memstore.New()
		for range 3 {
			db.Write(outbox.Message{Topic: "t", Key: "k"})
		}
		settleAll(t, db, func(storage.Row) storage.Settlement {
			return storage.Settlement{State: storage.StateDone, For: "one", Left: "old"}
		})
		if _, err := db.Store().Heartbeat(t.Context(), storage.Identity{Name: "r", Claim: storage.ByLanes, Config: storage.Config{Sinks: []string{"other: a file", old}}}, time.Hour); err != nil {
			t.Fatal(err)
		}
		r, stdout, stderr := aRequeue(0)
		r.to = "other"
		if err := r.run(t.Context(), db.Store(), storage.Filter{Sink: "old"}); err != nil || stdout.String() != want {
			t.Errorf("while a relay has the sink %s: got %q and %q, %v, want %q", old, stdout, stderr, err, want)
		}
	}
}
