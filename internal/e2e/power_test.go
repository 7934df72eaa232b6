package e2e

import (
	"bufio"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// powerloss is set by make proof-power, which builds the command of internal/powerloss.
var powerloss = flag.String("powerloss", "", "the path of the powerloss command, for TestPowerLoss")

// The power of the database's machine fails again and again, and its disk loses what was not synced. Each commit that the
// database acknowledged is there afterwards, and its message is delivered in order. A database that doesn't wait for the
// disk loses commits, but always together with their messages.
//
// InnoDB shows a transaction to others before it waits for the disk. So a relay can deliver the message of a transaction
// whose commit was never acknowledged and that is gone after the power failure. With a binary log that is synced at each
// commit, transactions become visible afterwards.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	if *powerloss == "" {
		t.Skip("-powerloss isn't set: use make proof-power")
	}
	postgres := []string{"-c", "fsync=on", "-c", "full_page_writes=on"}
	innodb := []string{"--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=32M"}
	binlog := append(slices.Clone(innodb), "--log-bin=binlog", "--sync-binlog=1")
	for _, way := range []struct {
		name    string
		open    func(*testing.T) *powered
		durable bool // the database waits for the disk
		early   bool // the database shows transactions before they are on the disk
	}{
		{"PostgreSQL", poweredServer("postgres15", testdb.Postgres, postgres...), true, false},
		{"PostgreSQL, synchronous_commit off", poweredServer("postgres15", testdb.Postgres, append(postgres, "-c", "synchronous_commit=off")...), false, true},
		{"MariaDB", poweredServer("mariadb1011", testdb.MariaDB, binlog...), true, false},
		{"MariaDB, no binary log", poweredServer("mariadb1011", testdb.MariaDB, innodb...), true, true},
		// MySQL assumes that a write with O_DIRECT is durable without an fsync. This disk may lose such a write.
		{"MySQL", poweredServer("mysql", testdb.MySQL, append(binlog, "--innodb-flush-method=fsync")...), true, false},
		{"SQLite", poweredFile("FULL"), true, false},
		{"SQLite, NORMAL", poweredFile("NORMAL"), false, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			p := way.open(t)
			p.showsEarly = way.early
			lost, undone := p.liveThrough(*outages)
			t.Logf("%d commits were acknowledged and are lost, and %d messages of lost transactions arrived", lost, undone)
			switch {
			case way.durable && lost > 0:
				t.Error("acknowledged commits are lost")
			case !way.durable && lost == 0:
				t.Error("no commit was lost: did the disk lose anything?")
			case !way.early && undone > 0:
				t.Error("messages of lost transactions arrived")
			}
		})
	}
}

var outages = flag.Int("outages", 5, "how often the power fails in TestPowerLoss")

// powered is a scene whose database lies on a disk whose power can fail.
type powered struct {
	*scene
	disk     *failingDisk
	endpoint *endpoint
	stop     func() // ends the processes on the machine that loses power
	start    func() // starts these processes again
	numbers  [8]int // each writer's last number
	mu       sync.Mutex
	kept     []placed // the acknowledged orders
}

type placed struct{ customer, number int }

// poweredServer returns a server, which can be reached again after each outage, and two relays on other machines.
func poweredServer(name, kind string, options ...string) func(*testing.T) *powered {
	return func(t *testing.T) *powered {
		server := newOwn(t, name, kind, options...)
		p := &powered{endpoint: newEndpoint(t), disk: newFailingDisk(t, server.data(), server.owns)}
		p.start = server.start
		p.stop = func() {
			server.kill()
			_ = syscall.Kill(-server.process.Process.Pid, syscall.SIGKILL) // PostgreSQL's other processes
		}
		t.Cleanup(p.stop) // before the disk is unmounted
		server.start()
		p.scene = server.scene(server.address(), "shop", "")
		p.topology = "power failures"
		if kind == testdb.Postgres { // without synchronous commits, the first outage could take the tables with it
			server.exec("CHECKPOINT")
		}
		for i := range 2 {
			path := fmt.Sprint("/relay-", i+1)
			p.relay(path, p.endpoint.URL+path, "--lease", "3s", "--batch", fmt.Sprint(killedBatch), "--workers", "2")
		}
		return p
	}
}

// poweredFile returns a SQLite file, whose writers and relay are on the same machine.
func poweredFile(synchronous string) func(*testing.T) *powered {
	return func(t *testing.T) *powered {
		folder := filepath.Join(t.TempDir(), "shop")
		check(t, os.Mkdir(folder, 0o700))
		p := &powered{endpoint: newEndpoint(t), disk: newFailingDisk(t, folder, func(string) {})}
		file := filepath.Join(folder, "shop.db")
		db := testdb.Database{
			Name: "shop", Kind: testdb.SQLite, Driver: "sqlite", URL: "sqlite:" + file,
			DSN: "file:" + file + "?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=busy_timeout(120000)&_pragma=synchronous(" + synchronous + ")",
		}
		var relay *process
		number := 0
		open := func() *sql.DB {
			pool, err := sql.Open(db.Driver, db.DSN)
			check(t, err)
			return pool
		}
		run := func() {
			number++
			path := fmt.Sprint("/relay-", number)
			relay = p.relay(path, p.endpoint.URL+path, "--lease", "3s", "--batch", fmt.Sprint(killedBatch), "--workers", "2")
		}
		db.DB = open()
		p.scene = setUp(t, db)
		_, err := p.DB.Exec("PRAGMA wal_checkpoint(TRUNCATE)") // otherwise the first outage could take the tables with it
		check(t, err)
		p.topology = "power failures"
		p.stop = func() {
			fault(t, proof.DatabaseKilled, "")
			relay.kill()
			_ = p.DB.Close()
		}
		p.start = func() {
			p.DB = open()
			p.store = p.opens(p.DB)
			run()
		}
		run()
		t.Cleanup(func() { _ = p.DB.Close() })
		return p
	}
}

// liveThrough lets writers write while the power fails, and judges what arrived. It counts the acknowledged commits that the
// database has lost, and the messages that arrived although the database has lost their transactions.
func (p *powered) liveThrough(outages int) (lost, undone int) {
	t := p.t
	t.Helper()
	for range outages {
		stop := p.writers()
		p.disk.fail()
		stop()
		p.stop()
		p.disk.unmount()
		p.disk.mount()
		p.start()
	}
	p.writers()()
	p.settled()
	arrivals := p.endpoint.received()
	v := judge(t, arrivals)
	rows, err := p.DB.Query("SELECT customer, number FROM orders")
	check(t, err)
	defer rows.Close()
	exist, arrived := map[placed]bool{}, map[placed]bool{}
	for rows.Next() {
		var o placed
		check(t, rows.Scan(&o.customer, &o.number))
		exist[o] = true
	}
	check(t, rows.Err())
	for _, a := range arrivals {
		arrived[placed{a.customer, a.number}] = true
	}
	for o := range exist {
		if !arrived[o] {
			t.Errorf("the message of order %v never arrived", o)
		}
	}
	for o := range arrived {
		if !exist[o] {
			undone++
		}
	}
	for _, o := range p.kept {
		if !exist[o] {
			lost++
		}
	}
	t.Logf("%d outages: %d commits acknowledged, %d orders, %d messages arrived, %d of them again", outages, len(p.kept), len(exist), v.distinct, len(v.duplicates))
	return lost, undone
}

// writers starts eight writers, and returns when they have committed a few hundred orders. The returned function stops them.
func (p *powered) writers() (stop func()) {
	var group sync.WaitGroup
	var commits atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	for w := range p.numbers {
		group.Go(func() {
			for ctx.Err() == nil {
				p.numbers[w]++
				o := placed{w, p.numbers[w]}
				commit := rand.IntN(4) > 0
				err := p.order(context.Background(), o.customer, o.number, commit)
				switch {
				case err != nil:
					<-time.After(20 * time.Millisecond) // the database is down
				case commit:
					p.mu.Lock()
					p.kept = append(p.kept, o)
					p.mu.Unlock()
					commits.Add(1)
				}
			}
		})
	}
	goal := int64(100 + rand.IntN(400))
	eventually(p.t, "the writers have committed orders", func() bool { return commits.Load() > goal })
	return func() { cancel(); group.Wait() }
}

// failingDisk is a mounted disk, which a test can make lose what was not synced.
type failingDisk struct {
	t              *testing.T
	folder, mounts string
	process        *exec.Cmd
	output         *bufio.Reader
}

// newFailingDisk moves a folder to a disk, and mounts the disk in its place.
func newFailingDisk(t *testing.T, folder string, owns func(path string)) *failingDisk {
	t.Helper()
	d := &failingDisk{t: t, folder: folder + "-on-disk", mounts: folder}
	check(t, os.Rename(folder, d.folder))
	check(t, os.Mkdir(folder, 0o700))
	owns(folder)
	d.mount()
	t.Cleanup(d.unmount)
	return d
}

func (d *failingDisk) mount() {
	d.t.Helper()
	seed := rand.Uint64()
	d.process = exec.Command(*powerloss, "-folder", d.folder, "-mount", d.mounts, "-seed", fmt.Sprint(seed))
	out, err := d.process.StdoutPipe()
	check(d.t, err)
	d.process.Stderr = os.Stderr
	check(d.t, d.process.Start())
	d.output = bufio.NewReader(out)
	d.says("mounted")
}

// fail makes the power fail.
func (d *failingDisk) fail() {
	d.t.Helper()
	check(d.t, d.process.Process.Signal(syscall.SIGUSR1))
	d.says("the power has failed")
}

func (d *failingDisk) unmount() {
	_ = d.process.Process.Signal(syscall.SIGTERM)
	_ = d.process.Wait()
}

func (d *failingDisk) says(what string) {
	d.t.Helper()
	line, err := d.output.ReadString('\n')
	if strings.TrimSpace(line) != what {
		d.t.Fatalf("the disk says %q instead of %q: %v", line, what, err)
	}
}
