package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

func TestTail(t *testing.T) {
	t.Parallel()
	onMigrated(t, func(t *testing.T, db testdb.Database) {
		endpoint := newWeb(t, always(http.StatusOK))
		mustCall(t, `{"topic":"orders","key":"a","payload":"secret"}`, "enqueue", "--database", db.URL)
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		tail := start(t, "tail", "--database", db.URL, "--interval", "100ms", "--topic", "orders")
		tail.stdout.wait(t, "orders +a +after ")
		mustCall(t, `{"topic":"mails","key":"b"}`+"\n"+`{"topic":"orders","key":"c"}`, "enqueue", "--database", db.URL)
		mustRun(t, "run", "--database", db.URL, "--sink", endpoint.URL, "--drain")
		tail.stdout.wait(t, "orders +c +after ")
		code, said := tail.stop(t)
		text, _ := tail.stdout.read()
		if code != exitDone || said != "" || strings.Count(text, "\n") != 2 || strings.Contains(text, "mails") {
			t.Errorf("exit code %d, %s\n%s", code, said, text)
		}
	})
}

// deliveries is a Follower that returns one step of deliveries for each query.
type deliveries struct {
	steps [][]storage.Info
	ends  context.CancelFunc
	since []time.Time
}

func (d *deliveries) LastDelivered(_ context.Context, _ storage.Filter, since time.Time) ([]storage.Info, error) {
	d.since = append(d.since, since)
	if len(d.steps) == 0 {
		d.ends()
		return nil, nil
	}
	found := d.steps[0]
	d.steps = d.steps[1:]
	if found == nil {
		return nil, errors.New("the server is away")
	}
	return found, nil
}

// tail prints each delivery once, even if it is committed late, and reports when it has left deliveries
// out.
func TestTailPrintsEachDeliveryOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		at := func(id int64, seconds float64) storage.Info {
			info := storage.Info{State: storage.StateDone, FinishedAt: begin.Add(time.Duration(seconds * float64(time.Second)))}
			info.ID, info.CreatedAt, info.Message = id, begin, outbox.Message{ID: "m", Topic: "t"}
			return info
		}
		ctx, cancel := context.WithCancel(t.Context())
		table := &deliveries{ends: cancel, steps: [][]storage.Info{
			{at(2, 2), at(1, 1)},
			{at(2, 2), at(3, 1.5)},
			nil, nil,
			{at(6, 20), at(5, 19), at(4, 18)},
			{at(9, 23), at(8, 22), at(7, 21)},
		}}
		var out, said bytes.Buffer
		f := &following{program: program{stdout: &out, stderr: &said}, seen: map[seenRow]time.Time{}, every: time.Second, filter: storage.Filter{Limit: 3}}
		if err := f.run(ctx, table); err != nil {
			t.Error(err)
		}
		var ids string
		for line := range strings.Lines(out.String()) {
			ids += strings.Fields(line)[1] + " "
		}
		if ids != "1 2 3 4 5 6 7 8 9 " {
			t.Errorf("shown are %s", ids)
		}
		if want := "the server is away; continuing once the database answers\n" + strings.Repeat("… some messages are missing here: more than --limit were delivered since the last query\n", 2); said.String() != want {
			t.Errorf("stderr is %q, want %q", &said, want)
		}
		if last := table.since[len(table.since)-1]; !last.Equal(begin.Add(18*time.Second)) || len(f.seen) != 6 {
			t.Errorf("the last query begins at %v, and tail remembers %d rows", last.Sub(begin), len(f.seen))
		}
	})
}
