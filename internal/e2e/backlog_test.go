package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
)

var (
	backlog = flag.Int("backlog", 20_000, "number of messages that wait for a sink that is down; the proof has 12 million")
	sweep   = flag.Duration("sweep", 0, "how long the test waits for sweeps on MySQL and MariaDB; 0 doesn't wait")
)

// manyWait is a number of rows that a relay can't read within a lease. With fewer rows the test has
// no limits on times.
const manyWait = 1_000_000

// Many messages wait for a sink that is down, and the server restarts. The messages of the other
// sink still arrive within a second.
func TestBacklogAndRestartDelayNoOtherSink(t *testing.T) {
	t.Parallel()
	server := newOwn(t, "postgres15", testdb.Postgres, "-c", "shared_buffers=512MB", "-c", "max_wal_size=16GB", "-c", "wal_level=minimal", "-c", "max_wal_senders=0")
	server.start()
	b := newBehind(server)
	b.fill(500_000, `INSERT INTO outbox (topic, message_key, payload_text) SELECT 'down', 'customer-' || (n % 1000 + 100), '{}' FROM generate_series(1, $1::int) AS n`)
	b.begin()
	b.last("before", lasting(time.Second, 20*time.Second))
	for _, way := range []struct {
		name   string
		signal syscall.Signal
	}{{"fast", syscall.SIGINT}, {"immediate", syscall.SIGQUIT}} {
		server.exec("CHECKPOINT") // keeps the server's recovery short, because the test does not measure it
		b.restart(way.signal)
		b.last("after a restart, "+way.name, lasting(3*time.Second, time.Minute))
	}
	b.judge()
}

// On MySQL and MariaDB, where sweeps read all rows, the messages of the other sink also arrive
// within a second.
func TestBacklogAndSweepDelayNoOtherSink(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mariadb1011", "mysql"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newOwn(t, name, pairs[name], "--innodb-buffer-pool-size=1G", "--disable-log-bin", "--max-connections=200")
			server.start()
			b := newBehind(server)
			b.fill(1000, `INSERT INTO outbox (topic, message_key, payload_text)
				WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
				SELECT 'down', concat('customer-', n + 100), '{}' FROM numbers LIMIT ?`)
			b.fill(250_000, `INSERT INTO outbox (topic, message_key, payload_text) SELECT topic, message_key, payload_text FROM outbox LIMIT ?`)
			b.begin()
			b.last("before", lasting(time.Second, 20*time.Second))
			b.last("with a sweep", *sweep+lasting(time.Second, 30*time.Second))
			b.judge()
		})
	}
}

// behind is a table with a backlog, and a stream of messages for a sink that is up.
type behind struct {
	*scene
	server *own
	up     *endpoint
	filled int
	runs   *process

	mu      sync.Mutex
	written map[int]time.Time // when the message with this number was committed
	stopped []span            // the times when the server was down
	parts   []part
}

type span struct{ from, to time.Time }

// part is a named period of the stream.
type part struct {
	name string
	span
}

func newBehind(server *own) *behind {
	b := &behind{scene: server.scene(server.address(), "shop", ""), server: server, up: newEndpoint(server.t), written: map[int]time.Time{}}
	file := filepath.Join(b.t.TempDir(), "rowrelay.yaml")
	check(b.t, os.WriteFile(file, fmt.Appendf(nil, twoSinks, b.URL, b.up.URL), 0o600))
	b.runs = b.start("relay", "run", "--config", file)
	return b
}

// fill adds rows to the backlog until the backlog has its size. The argument step is the maximum
// number of rows for each execution of the statement. If it is 1000, the statement is executed
// only once. Meanwhile the relay passes the rows over.
func (b *behind) fill(step int, statement string) {
	b.t.Helper()
	began := time.Now()
	for size := min(step, *backlog-b.filled); size > 0; size = min(step, *backlog-b.filled) {
		result, err := b.DB.ExecContext(b.t.Context(), statement, size)
		check(b.t, err)
		n, err := result.RowsAffected()
		check(b.t, err)
		b.filled += int(n)
		if step == 1000 {
			break
		}
	}
	b.t.Logf("%d messages wait; writing the last of them took %v", b.filled, time.Since(began).Round(time.Second))
}

// begin begins the stream of a hundred messages per second. Before that it waits until the relay
// has passed over the backlog and delivers single messages promptly.
func (b *behind) begin() {
	b.t.Helper()
	began, prompt, number := time.Now(), 0, 0
	for prompt < 20 && time.Since(began) < 30*time.Minute { // prompt delivery shows that the server has finished its work after so many writes
		number++
		check(b.t, b.orderTo(b.t.Context(), "up", number, number, true))
		prompt++
		if !comesTrue(time.Second/2, func() bool { return len(b.up.received()) == number }) {
			prompt = 0
			eventually(b.t, "the message is delivered", func() bool { return len(b.up.received()) == number })
		}
	}
	b.t.Logf("the relay delivered new messages promptly after another %v", time.Since(began).Round(time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for number++; ; number++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if b.orderTo(ctx, "up", number%50, number, true) == nil {
				b.mu.Lock()
				b.written[number] = time.Now()
				b.mu.Unlock()
			}
		}
	})
	b.t.Cleanup(func() { cancel(); writing.Wait() })
}

// last waits while the stream continues, and records this time as a part.
func (b *behind) last(name string, length time.Duration) {
	from := time.Now()
	<-time.After(length)
	b.parts = append(b.parts, part{name, span{from, time.Now()}})
}

// restart stops the server with a signal and starts it again.
func (b *behind) restart(signal syscall.Signal) {
	b.t.Helper()
	from := time.Now()
	b.server.signal(signal)
	b.server.start()
	b.stopped = append(b.stopped, span{from, time.Now()})
	b.t.Logf("the server was away for %v", time.Since(from).Round(time.Millisecond))
}

// judge logs the delays of messages, and checks that none is missing and that each arrived within a
// second. A message that was written while the server restarted, or within a second of its return,
// must arrive within two seconds of the return.
func (b *behind) judge() {
	b.t.Helper()
	b.mu.Lock()
	written := maps.Clone(b.written)
	b.mu.Unlock()
	end := time.Now()
	var arrived map[int]time.Time
	comesTrue(15*time.Second, func() bool {
		arrived = map[int]time.Time{}
		for _, a := range b.up.received() {
			if _, again := arrived[a.number]; !again {
				arrived[a.number] = a.at
			}
		}
		missing := 0
		for number := range written {
			if arrived[number].IsZero() {
				missing++
			}
		}
		return missing == 0
	})
	for _, p := range b.parts {
		var lags []time.Duration
		missing := 0
		for number, at := range written {
			if at.Before(p.from) || at.After(p.to) {
				continue
			}
			to := arrived[number]
			if to.IsZero() {
				to, missing = end.Add(15*time.Second), missing+1
			}
			lags = append(lags, b.lag(at, to))
		}
		if len(lags) == 0 {
			b.t.Errorf("%s: nothing was written", p.name)
			continue
		}
		slices.Sort(lags)
		q := quantiles(lags)
		most := lags[len(lags)-1].Round(time.Millisecond)
		b.t.Logf("%d wait, %s: %d messages, p50 %v, p99 %v, max %v; %d never arrived", b.filled, p.name, len(lags), q[0], q[1], most, missing)
		if missing > 0 {
			b.t.Errorf("%s: %d of %d messages never arrived", p.name, missing, len(lags))
		}
		if b.filled >= manyWait && most > time.Second {
			b.t.Errorf("%s: a message arrived after %v", p.name, most)
		}
	}
	b.t.Logf("the relay has %d MiB in memory", b.runs.resident(b.t))
}

// lag returns the delay of a message. If the message was written while the server was down, or
// within a second after it returned, the delay counts from the end of that second.
func (b *behind) lag(written, arrived time.Time) time.Duration {
	for _, away := range b.stopped {
		if due := away.to.Add(time.Second); written.After(away.from) && written.Before(due) {
			written = due
		}
	}
	return max(0, arrived.Sub(written))
}
