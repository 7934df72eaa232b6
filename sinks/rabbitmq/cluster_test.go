package rabbitmq_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// These tests stop nodes, so they have a cluster of their own, which is brought
// up by its name: deploy/servers/servers up rabbitmq3.
const clusterVariable = "ROWRELAY_TEST_RABBITMQ3"

func theCluster(t testing.TB) *broker {
	t.Helper()
	if os.Getenv(clusterVariable) == "" {
		t.Skipf("%s is not set: deploy/servers/servers up rabbitmq3 brings up a cluster", clusterVariable)
	}
	return newBroker(t, clusterVariable)
}

// ctl is the program beside the cluster's files that calls rabbitmqctl.
func (b *broker) ctl(t testing.TB) string {
	t.Helper()
	var parameter struct{ Value struct{ Ctl string } }
	b.api(t, "GET", "/api/global-parameters/rowrelay_test", nil, &parameter)
	return parameter.Value.Ctl
}

func run(t testing.TB, program string, arguments ...string) {
	t.Helper()
	if output, err := exec.Command(program, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, output)
	}
}

// TestANodeDies: the node with the queue's leader is killed under load, comes
// back, and then another one. Delivery goes on, nothing is lost, and each key
// stays in order.
func TestANodeDies(t *testing.T) {
	b := theCluster(t)
	ctl := b.ctl(t)
	b.hosts[0], b.hosts[1] = b.hosts[1], b.hosts[0]
	queue := b.client(t).queue("quorum", amqp.Table{"x-quorum-initial-group-size": 3}) // whose leader is where it is made
	b.hosts[0], b.hosts[1] = b.hosts[1], b.hosts[0]
	options := b.options()
	options.Connections = 3
	l := &load{sink: opened(t, options), queue: queue}
	for _, node := range []int{1, 2} {
		l.during(t, 10_000, func() {
			kill(t, ctl, node)
			l.waitFor(t, 5_000)
		})
		start(t, ctl, node)
		l.during(t, 5_000, func() {})
	}
	t.Logf("%d messages, %d duplicates at most, the longest pause %v", len(l.sent), l.again.Load(), l.pause)
	box := &mailbox{client: b.client(t), queue: queue}
	box.consume(t)
	arrivedInOrder(t, box, l.sent)
}

// consume reads the queue faster than received does, until nothing comes.
func (b *mailbox) consume(t testing.TB) {
	t.Helper()
	deliveries, err := b.client.Consume(b.queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case d := <-deliveries:
			b.got = append(b.got, asMessage(d))
		case <-time.After(3 * time.Second):
			return
		}
	}
}

func kill(t testing.TB, ctl string, node int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.Dir(ctl), fmt.Sprintf("node%d.pid", node)))
	if err != nil {
		t.Fatal(err)
	}
	process, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process))
	if err != nil || !strings.Contains(string(command), "rabbit") {
		t.Fatalf("the node's process is not there: %v", err)
	}
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// start starts a node as the user that the others run as.
func start(t testing.TB, ctl string, node int) {
	t.Helper()
	info, err := os.Stat(ctl)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(ctl, strconv.Itoa(node), "boot")
	owner := info.Sys().(*syscall.Stat_t)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	command.Dir = filepath.Dir(ctl)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := command.Process.Release(); err != nil { // it lives on
		t.Fatal(err)
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		output, err := exec.Command(ctl, strconv.Itoa(node), "await_startup", "--timeout", "60").CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("node %d doesn't start: %v\n%s", node, err, output)
		}
	}
}

// load sends as a relay does: two workers, each with its keys, which open the
// sink again when it is unavailable.
type load struct {
	sink      *rabbitmq.Sink
	queue     string
	delivered atomic.Int64
	again     atomic.Int64 // outcomes that don't say whether it arrived
	pause     time.Duration
	sent      []sinks.Message
}

// during sends so many messages while f runs.
func (l *load) during(t testing.TB, count int, f func()) {
	t.Helper()
	before := l.delivered.Load()
	messages := many(count, func(i int) sinks.Message { return to(l.queue, fmt.Sprint("key ", i%100)) })
	l.sent = append(l.sent, messages...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for len(messages) > 0 {
			batch := messages[:min(200, len(messages))]
			l.send(t, batch)
			messages = messages[len(batch):]
		}
	}()
	f()
	<-done
	if got := l.delivered.Load() - before; got != int64(count) {
		t.Errorf("%d messages were delivered, want %d", got, count)
	}
}

func (l *load) send(t testing.TB, batch []sinks.Message) {
	begin := time.Now()
	defer func() { l.pause = max(l.pause, time.Since(begin)) }()
	for len(batch) > 0 {
		if time.Since(begin) > time.Minute {
			t.Error("nothing is delivered for a minute")
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		var left []sinks.Message
		for i, o := range l.sink.Send(ctx, batch) {
			switch o.Result {
			case sinks.Delivered:
				l.delivered.Add(1)
				continue
			case sinks.Retry:
				l.again.Add(1)
			case sinks.Reject:
				t.Errorf("rejected: %+v", o)
			}
			left = append(left, batch[i])
		}
		cancel()
		if batch = left; len(left) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			_ = l.sink.Open(ctx)
			cancel()
		}
	}
}

func (l *load) waitFor(t testing.TB, more int64) {
	t.Helper()
	for goal, end := l.delivered.Load()+more, time.Now().Add(time.Minute); l.delivered.Load() < goal; {
		if time.Now().After(end) {
			t.Fatal("delivery doesn't go on")
		}
		<-time.After(time.Millisecond)
	}
}

// TestNoMajority: two of three nodes are dead, the third one takes connections
// and confirms nothing. What was in flight is charged once, and from then on one
// message a connection and try. When the nodes are back, all is delivered.
func TestNoMajority(t *testing.T) {
	b := theCluster(t)
	ctl := b.ctl(t)
	queue := b.client(t).queue("quorum", amqp.Table{"x-quorum-initial-group-size": 3})
	options := b.options(b.hosts[0])
	sink := opened(t, options)
	batch := many(200, func(i int) sinks.Message { return to(queue, fmt.Sprint("key ", i)) })
	kill(t, ctl, 1)
	kill(t, ctl, 2)
	for try := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		charged := 0
		for _, o := range sink.Send(ctx, batch) {
			if o.Result == sinks.Retry {
				charged++
			} else if o.Result != sinks.Unsent && o.Result != sinks.Unavailable {
				t.Errorf("outcome %+v", o)
			}
		}
		cancel()
		t.Logf("try %d: %d messages are charged", try, charged)
		if try > 0 && charged > rabbitmq.DefaultConnections {
			t.Errorf("try %d: %d messages are charged", try, charged)
		}
	}
	start(t, ctl, 1)
	start(t, ctl, 2)
	l := &load{sink: sink, queue: queue}
	l.send(t, batch)
	box := &mailbox{client: b.client(t), queue: queue}
	box.consume(t)
	if got := len(box.count()); got != len(batch) {
		t.Errorf("%d messages arrived, want %d", got, len(batch))
	}
}

// TestMemoryAlarm: a real one. The sink pauses until it is over, and nothing is
// charged but what was under way.
func TestMemoryAlarm(t *testing.T) {
	b := theCluster(t)
	ctl := b.ctl(t)
	queue := b.client(t).queue("quorum", nil)
	sink := opened(t, b.options())
	expect(t, sink.Send(t.Context(), []sinks.Message{to(queue, "a")}), always("delivered"))
	t.Cleanup(func() { run(t, ctl, "0", "set_vm_memory_high_watermark", "0.4") })
	run(t, ctl, "0", "set_vm_memory_high_watermark", "0.000001")
	begin := time.Now()
	charged := 0
	for throttled := 0; throttled < 5; {
		if time.Since(begin) > time.Minute {
			t.Fatal("the broker doesn't block")
		}
		var outcomes []sinks.Outcome
		soon(t, "Send", func() { outcomes = sink.Send(t.Context(), []sinks.Message{to(queue, "a"), to(queue, "b")}) })
		for _, o := range outcomes {
			switch {
			case o.Result == sinks.Unavailable && o.Reason == sinks.ReasonThrottled:
				throttled++
			case o.Result == sinks.Retry && o.Reason == sinks.ReasonTimeout:
				charged++
			case o.Result != sinks.Delivered:
				t.Errorf("outcome %+v", o)
			}
		}
		if throttled > 0 {
			soon(t, "Open", func() { unavailable(t, sink.Open(t.Context()), sinks.ReasonThrottled, "low on memory") })
		}
	}
	t.Logf("%d messages were under way", charged)
	fresh := unopened(t, b.options())
	unavailable(t, fresh.Open(t.Context()), sinks.ReasonThrottled, "low on memory")
	run(t, ctl, "0", "set_vm_memory_high_watermark", "0.4")
	recovers(t, sink, to(queue, "a"))
	recovers(t, fresh, to(queue, "a"))
}
