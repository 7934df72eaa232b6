// Package plugintest proves that an official plug-in loses no message when processes are killed. The tests of the
// plug-ins' modules use it. It imports only the standard library and packages of rowrelay.
package plugintest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

var (
	long     = flag.Bool("long", false, "run the proofs, which kill processes and take minutes")
	messages = flag.Int("messages", 100_000, "the number of messages of a proof")
)

// patience limits how long a proof waits for progress.
const patience = 10 * time.Minute

// Scene is a plug-in with its destination.
type Scene struct {
	Name    string            // the name of the plug-in's folder, such as nats; the test runs in this folder
	Config  map[string]string // the settings of the plug-in's sink
	Secrets map[string]string // the secret settings
	Env     map[string]string // the plug-in's environment

	// KillServer kills the destination and starts it again. It is nil if the destination can't be killed.
	KillServer func()

	// Received returns the messages that have arrived, in the order of their arrival, with their keys and payloads.
	Received func() []outbox.Message

	// Duplicates is the maximum number of arrivals of messages that had arrived before.
	Duplicates int

	// Pause is the time for which no relay runs after a relay has been killed. It is 0 for most destinations. If
	// it is longer than the time for which the destination recognises duplicates, only other features of the
	// plug-in can prevent duplicates.
	Pause time.Duration
}

// keys is the number of different keys of a proof's messages.
const keys = 500

// Prove relays 100,000 messages from the PostgreSQL of ROWRELAY_TEST_POSTGRES15, or from SQLite if this variable is
// not set. Meanwhile it kills a plug-in, a relay or the destination, ten times in total. The test fails if a message
// is lost, if the first copies of a key's messages arrive out of order, or if there are more than s.Duplicates
// duplicates. Without the flag -long, Prove skips the test.
func Prove(t *testing.T, s Scene) {
	t.Helper()
	if !*long {
		t.Skip("takes minutes: run it with -long")
	}
	p := newProof(t, s)
	began := time.Now()
	p.enqueue()
	p.startRelays()
	const kills = 10
	for n := range kills {
		p.reach((n + 1) * *messages / (kills + 1))
		p.kill(n)
	}
	p.reach(*messages)
	p.stopRelays()
	p.judge(time.Since(began))
}

type proof struct {
	Scene
	t        *testing.T
	folder   string
	rowrelay string
	database []string // the flags that name the table
	relays   []*relay
	killed   map[string]int
}

func newProof(t *testing.T, s Scene) *proof {
	t.Helper()
	folder, err := os.MkdirTemp("", "proof") // a short path, because the length of a socket's path is limited
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	p := &proof{Scene: s, t: t, folder: folder, rowrelay: filepath.Join(folder, "rowrelay"), killed: map[string]int{}}
	p.build("../..", "./cmd/rowrelay", p.rowrelay)
	p.build(".", ".", p.plugin())
	relays := 2
	if address := os.Getenv("ROWRELAY_TEST_POSTGRES15"); address != "" {
		p.database = []string{"--database", address, "--table", fmt.Sprint("proof_", rand.Uint32())}
	} else {
		p.database, relays = []string{"--database", "sqlite:" + filepath.Join(folder, "proof.db")}, 1
	}
	p.run("", "migrate", "up")
	t.Cleanup(func() { // an error ends the loop, because after a failed test the killed relays may still hold their leases
		for reverted := true; reverted; { // one migration at a time
			out, err := exec.Command(p.rowrelay, append([]string{"migrate", "down", "--discard-messages"}, p.database...)...).Output()
			reverted = err == nil && bytes.Contains(out, []byte("reverted"))
		}
	})
	p.writeConfig()
	for n := range relays {
		p.relays = append(p.relays, &relay{proof: p, name: fmt.Sprint("relay-", n)})
	}
	t.Cleanup(func() {
		for _, r := range p.relays {
			r.stop(os.Kill)
		}
	})
	return p
}

func (p *proof) plugin() string { return filepath.Join(p.folder, "rowrelay-plugin-"+p.Name) }

func (p *proof) build(folder, main, program string) {
	p.t.Helper()
	command := exec.Command("go", "build", "-buildvcs=false", "-o", program, main)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		p.t.Fatalf("build %s: %v\n%s", main, err, out)
	}
}

// run runs the command rowrelay and returns its output.
func (p *proof) run(input string, words ...string) []byte {
	p.t.Helper()
	command := exec.Command(p.rowrelay, append(words, p.database...)...)
	command.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		p.t.Fatalf("rowrelay %s: %v\n%s", words[0], err, stderr.Bytes())
	}
	return out
}

func (p *proof) config() string { return filepath.Join(p.folder, "rowrelay.yaml") }

// writeConfig writes the configuration as JSON, which is valid YAML.
func (p *proof) writeConfig() {
	p.t.Helper()
	source := map[string]any{"database": p.database[1], "lease": "3s"}
	if len(p.database) > 2 {
		source["table"] = p.database[3]
	}
	secrets, env := p.Secrets, p.Env
	if secrets == nil {
		secrets = map[string]string{}
	}
	if env == nil {
		env = map[string]string{}
	}
	text, err := json.Marshal(map[string]any{
		"sources": map[string]any{"shop": source},
		"sinks": map[string]any{"broker": map[string]any{
			"type": "plugin", "path": p.plugin(), "config": p.Config, "secrets": secrets, "env": env, "directory": p.folder,
			"batch": 200, "breaker_backoff": map[string]any{"min": "100ms", "max": "1s"},
		}},
	})
	check(p.t, err)
	check(p.t, os.WriteFile(p.config(), text, 0o600))
}

func (p *proof) enqueue() {
	p.t.Helper()
	var lines strings.Builder
	for n := range *messages {
		fmt.Fprintf(&lines, `{"topic":"proof","key":"key-%d","payload":{"n":%d}}`+"\n", n%keys, n)
	}
	p.run(lines.String(), "enqueue")
}

// reach waits until about n messages are delivered or, if n is the number of all messages, until none are left. The
// status command only estimates large counts. So at the end, reach checks the number of remaining messages, which is
// small, instead of the number of delivered messages.
func (p *proof) reach(n int) {
	p.t.Helper()
	last, since := -1, time.Now()
	for tick := time.NewTicker(100 * time.Millisecond); ; <-tick.C {
		var status struct{ Pending, Claimed, Scheduled, Retry, Error, Done int }
		check(p.t, json.Unmarshal(p.run("", "status", "--json"), &status))
		done, left := status.Done, status.Pending+status.Claimed+status.Scheduled+status.Retry+status.Error
		if n < *messages && done >= n || n == *messages && left == 0 && done > 0 { // status reports 0 for all states if counting takes too long
			return
		}
		if done-left != last {
			last, since = done-left, time.Now()
		}
		for _, r := range p.relays {
			if r.hasEnded() {
				p.t.Fatalf("%s has ended:\n%s", r.name, r.tail())
			}
		}
		if time.Since(since) > patience {
			p.t.Fatalf("%d messages of %d were delivered, and none for %v: %+v\n%s", done, n, patience, status, p.relays[0].tail())
		}
	}
}

// kill kills a plug-in, a relay or the destination, depending on n. If Pause is set, it kills all relays instead of one relay.
func (p *proof) kill(n int) {
	p.t.Helper()
	r := p.relays[n%len(p.relays)]
	victims := []string{"plug-in", "relay"}
	if p.KillServer != nil {
		victims = append(victims, "server")
	}
	victim := victims[n%len(victims)]
	p.killed[victim]++
	switch victim {
	case "plug-in":
		r.killPlugin()
	case "relay":
		r.stop(os.Kill)
		if p.Pause > 0 {
			for _, other := range p.relays {
				other.stop(os.Kill)
			}
			time.Sleep(p.Pause)
			p.startRelays()
			return
		}
		r.start()
	case "server":
		p.KillServer()
	}
}

func (p *proof) startRelays() {
	p.t.Helper()
	for _, r := range p.relays {
		r.start()
	}
}

func (p *proof) stopRelays() {
	for _, r := range p.relays {
		r.stop(os.Interrupt)
	}
}

// judge compares what has arrived with what was written.
func (p *proof) judge(took time.Duration) {
	p.t.Helper()
	copies, last := make([]int, *messages), map[string]int{}
	lost, twice, late := 0, 0, 0
	for _, m := range p.Received() {
		var payload struct{ N int }
		check(p.t, json.Unmarshal(m.Payload, &payload))
		if copies[payload.N]++; copies[payload.N] > 1 {
			twice++
			continue
		}
		if before, known := last[m.Key]; known && before > payload.N {
			late++
		}
		last[m.Key] = payload.N
	}
	for _, n := range copies {
		if n == 0 {
			lost++
		}
	}
	p.t.Logf("%d messages of %d keys, killed %v: lost %d, duplicates %d, out of order %d, in %.0f s", *messages, keys, p.killed, lost, twice, late, took.Seconds())
	if lost > 0 || late > 0 || twice > p.Duplicates {
		p.t.Errorf("want none lost or out of order, and at most %d duplicates", p.Duplicates)
	}
}

// relay is a process that runs the relay, and its plug-in.
type relay struct {
	*proof
	name    string
	process *exec.Cmd
	ended   chan struct{}

	mu      sync.Mutex
	plugins []int    // the process ids of the plug-ins that the relay has started
	lines   []string // the last lines of the relay's log
}

var pluginStarted = regexp.MustCompile(`plug-in started.* pid=(\d+)`)

func (r *relay) start() {
	r.t.Helper()
	r.process = exec.Command(r.rowrelay, "run", "--config", r.config())
	r.process.SysProcAttr = endWithTest()
	out, err := r.process.StderrPipe()
	check(r.t, err)
	check(r.t, r.process.Start())
	r.ended = make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		r.read(out)
		_ = r.process.Wait()
	}(r.ended)
}

// read reads the relay's log.
func (r *relay) read(from io.Reader) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		r.mu.Lock()
		r.lines = append(r.lines[max(0, len(r.lines)-40):], lines.Text())
		if found := pluginStarted.FindStringSubmatch(lines.Text()); found != nil {
			pid, _ := strconv.Atoi(found[1])
			r.plugins = append(r.plugins, pid)
		}
		r.mu.Unlock()
	}
}

func (r *relay) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func (r *relay) tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// killPlugin kills the plug-in that the relay started last.
func (r *relay) killPlugin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.plugins) == 0 {
		r.t.Error("the relay has started no plug-in")
		return
	}
	plugin, err := os.FindProcess(r.plugins[len(r.plugins)-1])
	if err == nil {
		_ = plugin.Kill()
	}
}

func (r *relay) stop(signal os.Signal) {
	if r.process == nil {
		return
	}
	_ = r.process.Process.Signal(signal)
	<-r.ended
	r.process = nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
