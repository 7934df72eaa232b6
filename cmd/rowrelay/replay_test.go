package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// The store marks copies with the same header that sinks permit.
func TestReplayedHeader(t *testing.T) {
	t.Parallel()
	if storage.ReplayedHeader != sinks.ReplayedHeader {
		t.Errorf("%q is written, and %q passes", storage.ReplayedHeader, sinks.ReplayedHeader)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		mustCall(t, jsonLines("orders", 60, 3)+jsonLines("mails", 5, 1), "enqueue", "--database", db.URL)
		endpoint := newWeb(t, always(http.StatusOK))
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		first := drain(endpoint.arrived)

		got := mustRun(t, "messages", "replay", "again", "--topic", "orders", "--since", "1h", "--rate", "1000", "--database", db.URL)
		if !strings.HasPrefix(got.stdout, "replay again: 60 written, ") || !strings.HasSuffix(got.stdout, ", finished\n") {
			t.Errorf("stdout is %q", got.stdout)
		}
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		second := drain(endpoint.arrived)
		inOrder(t, second, 60, 3)
		for _, r := range second {
			if !slices.ContainsFunc(first, func(f request) bool { return f.id == r.id && f.body == r.body }) {
				t.Errorf("%+v is none of the messages", r)
			}
		}
		copies := list(t, db, "--topic", "orders", "--limit", "1000")
		if len(copies) != 120 {
			t.Fatalf("%d messages with their copies, want 120", len(copies))
		}
		if text := mustRun(t, "messages", "show", fmt.Sprint(copies[119].ID), "--database", db.URL).stdout; !strings.Contains(text, "header rowrelay-replayed  again") {
			t.Errorf("a copy is shown as\n%s", text)
		}

		if got := mustRun(t, "messages", "replay", "again", "--database", db.URL); !strings.HasPrefix(got.stdout, "replay again: 60 written, ") {
			t.Errorf("the second time, got %q", got.stdout)
		}
		for args, want := range map[string]string{
			"replay again --topic orders": "replay again exists already",
			"replay other":                "replay other doesn't exist",
			"replay":                      "no messages are selected",
			"replay --all --key k":        "can't be given with filters",
			"replay --stop x --key k":     "--stop can't be given with",
			"replay Again --all":          "isn't a valid name of a replay",
			"replay --all --rate 0":       "--rate must be at least 1",
			"replay --id x":               "isn't an id",
			"replay --since x":            "neither a time",
		} {
			refused := call(t.Context(), "", append(append([]string{"messages"}, strings.Fields(args)...), "--database", db.URL)...)
			if refused.code != exitUsage || !strings.Contains(refused.stderr, want) {
				t.Errorf("%s: exit code %d, %q, want %q", args, refused.code, refused.stderr, want)
			}
		}
		var known []replayJSON
		listed := mustRun(t, "messages", "replays", "--json", "--database", db.URL).stdout
		if err := json.Unmarshal([]byte(listed), &known); err != nil || len(known) != 1 || known[0].Name != "again" || known[0].State != "finished" || known[0].Written != 60 {
			t.Errorf("listed %s, %v", listed, err)
		}
	})
}

// delivered makes a table with the given number of delivered messages.
func delivered(t *testing.T, count int) *memstore.DB {
	t.Helper()
	db := memstore.New()
	for i := range count {
		db.Write(outbox.Message{Topic: "t", Key: fmt.Sprint(i % 7)})
	}
	settleAll(t, db, func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateDone} })
	return db
}

func aReplay(replay storage.Replay) (r *replaying, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	return &replaying{program: program{stdout: stdout, stderr: stderr}, replay: replay, all: true}, stdout, stderr
}

// replays is an Operator that records the steps of a replay.
type replays struct {
	storage.Operator
	step func(rows []storage.RowID) error
}

func (r *replays) Replay(ctx context.Context, was storage.Replay, limit int) (storage.Replay, []storage.RowID, error) {
	is, rows, err := r.Operator.Replay(ctx, was, limit)
	if err == nil {
		err = r.step(rows)
	}
	return is, rows, err
}

// A replay writes copies at its rate while relays deliver the copies, and waits while they don't.
func TestReplayWaitsForItsCopies(t *testing.T) {
	t.Parallel()
	done := func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateDone} }
	synctest.Test(t, func(t *testing.T) {
		db := delivered(t, 1000)
		r, _, _ := aReplay(storage.Replay{Name: "r", Rate: 100})
		var written atomic.Int64
		var up atomic.Bool
		operator := &replays{db.Store(), func(rows []storage.RowID) error {
			if written.Add(int64(len(rows))); up.Load() {
				settleAll(t, db, done)
			}
			return nil
		}}
		if err := r.begin(t.Context(), operator, true); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- r.run(t.Context(), operator) }()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n := written.Load(); n != 20 {
			t.Errorf("%d copies were written, want the 20 of 200 ms while none is delivered", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := written.Load(); n != 200 {
			t.Errorf("%d copies were written after an hour, want the 200 of 2 s", n)
		}
		up.Store(true)
		settleAll(t, db, done)
		again := time.Now()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(again); written.Load() != 1000 || took < 7*time.Second || took > 10*time.Second {
			t.Errorf("%d copies were written, want 1000; the last 800, at 100 per second, took %v", written.Load(), took)
		}
	})
}

// An interrupted replay continues after its last step, even if that step's answer was lost. A replay ends if
// another process stops it.
func TestReplayContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, replayGoesOn)
}

func replayGoesOn(t *testing.T) {
	db := delivered(t, 100)
	broken, cut := errors.New("the cable was pulled"), true
	operator := &replays{db.Store(), func(rows []storage.RowID) error {
		settleAll(t, db, func(storage.Row) storage.Settlement { return storage.Settlement{State: storage.StateDone} })
		if cut {
			return broken // the step was committed, but its answer is lost
		}
		return nil
	}}
	r, _, stderr := aReplay(storage.Replay{Name: "r", Rate: 100})
	if err := r.begin(t.Context(), operator, true); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context(), operator); !errors.Is(err, broken) || !strings.Contains(stderr.String(), "continue with: rowrelay messages replay r\n") {
		t.Errorf("got %v and %q", err, stderr)
	}
	stop, stdout, _ := aReplay(storage.Replay{})
	stop.stop = "r"
	if err := stop.stopIt(t.Context(), operator); err != nil || !strings.Contains(stdout.String(), "stopped") {
		t.Errorf("got %v and %q", err, stdout)
	}
	cut = false
	if err := r.run(t.Context(), operator); err != nil || !r.replay.Stopped {
		t.Errorf("got %v, and the replay %+v", err, r.replay)
	}
	r, stdout, _ = aReplay(storage.Replay{Name: "r"})
	r.all = false
	if err := r.begin(t.Context(), operator, false); err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context(), operator); err != nil || !strings.Contains(stdout.String(), "100 written, up to id 100 of 100, finished") {
		t.Errorf("got %v and %q", err, stdout)
	}
	all, err := db.Store().List(t.Context(), storage.Filter{Limit: 1000})
	times := map[string]int{}
	for _, info := range all {
		times[info.Message.ID]++
	}
	if err != nil || len(all) != 200 || len(times) != 100 {
		t.Errorf("%d messages and copies with %d ids, %v", len(all), len(times), err)
	}
}
