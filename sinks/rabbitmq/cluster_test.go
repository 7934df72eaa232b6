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

// These tests stop nodes, so they need their own cluster, which only this command
// starts: deploy/servers/servers up rabbitmq3.
const clusterVariable = "ROWRELAY_TEST_RABBITMQ3"

func theCluster(t testing.TB) *broker {
	t.Helper()
	if os.Getenv(clusterVariable) == "" {
		t.Skipf("%s is not set: deploy/servers/servers up rabbitmq3 starts a cluster", clusterVariable)
	}
	return newBroker(t, clusterVariable)
}

// ctl returns the path of the cluster's program that calls rabbitmqctl.
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

// TestKilledNodesLoseNothing kills and restarts, under load, the node with the queue's leader
// and then another node. Delivery continues, no message is lost, and each key stays
// in order.
func TestKilledNodesLoseNothing(t *testing.T) {
	b := theCluster(t)
	ctl := b.ctl(t)
	b.hosts[0], b.hosts[1] = b.hosts[1], b.hosts[0]
	queue := b.client(t).queue("quorum", amqp.Table{"x-quorum-initial-group-size": 3}) // its leader is on the node of the client
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
	t.Logf("%d messages, at most %d duplicates, longest pause %v", len(l.sent), l.again.Load(), l.pause)
	box := &mailbox{client: b.client(t), queue: queue}
	box.consume(t)
	arrivedInOrder(t, box, l.sent)
}

// consume reads all messages of the queue. It is faster than received.
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
		t.Fatalf("the node's process doesn't exist: %v", err)
	}
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// start starts a node as the user of the other nodes.
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
	if err := command.Process.Release(); err != nil { // the node outlives the test
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

// load sends like a relay: it sends messages again until they are delivered, and
// opens the sink again when a message was not delivered.
type load struct {
	sink      *rabbitmq.Sink
	queue     string
	delivered atomic.Int64
	again     atomic.Int64 // number of retries, whose messages may have arrived
	pause     time.Duration
	sent      []sinks.Message
}

// during sends count messages while f runs.
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
			t.Error("a batch was not delivered within a minute")
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
			t.Fatal("delivery doesn't continue")
		}
		<-time.After(time.Millisecond)
	}
}

// TestQueueWithoutMajority: two of three nodes are dead. The third one accepts connections
// but confirms nothing. The first Send charges the messages in flight, and each later
// Send only one message per connection. When the nodes are back, all messages are
// delivered.
func TestQueueWithoutMajority(t *testing.T) {
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

// TestMemoryAlarm triggers a real memory alarm. The sink is unavailable until it
// ends, and only the messages in flight are charged.
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
	t.Logf("%d messages were in flight", charged)
	fresh := unopened(t, b.options())
	unavailable(t, fresh.Open(t.Context()), sinks.ReasonThrottled, "low on memory")
	run(t, ctl, "0", "set_vm_memory_high_watermark", "0.4")
	recovers(t, sink, to(queue, "a"))
	recovers(t, fresh, to(queue, "a"))
}
