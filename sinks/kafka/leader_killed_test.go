//go:build unix

package kafka_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// TestLeaderKilled sends messages while it kills and restarts, twice, the node that
// leads most partitions. Delivery continues, no message is lost, and each key stays
// in order. Like a relay, the test sends messages again that were not delivered. It
// needs the three nodes of deploy/servers/kafka3.sh, which start only when they are
// named.
func TestLeaderKilled(t *testing.T) {
	folder := os.Getenv("ROWRELAY_TEST_KAFKA3_FOLDER")
	if folder == "" {
		t.Skip("ROWRELAY_TEST_KAFKA3_FOLDER is not set: deploy/servers/servers up kafka3 starts the nodes")
	}
	addresses := strings.Split(os.Getenv("ROWRELAY_TEST_KAFKA3"), ",")
	topic := newTopic(t, addresses, 6)
	sink := newSink(t, kafka.Options{Brokers: addresses, LeaderTimeout: time.Second, RequestTimeout: 5 * time.Second})
	s := &sending{t: t, sink: sink, topic: topic, failed: map[string]int{}}
	s.sendFor(2 * time.Second)
	for range 2 {
		node := leader(t, addresses, topic)
		kill(t, folder, node)
		s.sendFor(8 * time.Second)
		start(t, folder, node)
		s.sendFor(8 * time.Second)
	}
	s.check(addresses)
}

// sending sends messages of ten keys, one batch after another.
type sending struct {
	t         *testing.T
	sink      *kafka.Sink
	topic     string
	next      [10]int // by key: the number of the next message
	delivered int
	longest   time.Duration // the longest time without a delivery
	failed    map[string]int
}

func (s *sending) sendFor(span time.Duration) {
	last := time.Now()
	for end := last.Add(span); time.Now().Before(end); {
		var batch []sinks.Message
		for n := range 100 {
			key := n % len(s.next)
			batch = append(batch, message(s.topic, fmt.Sprint("key-", key), fmt.Sprint(s.next[key]+n/len(s.next))))
		}
		if s.settle(s.sink.Send(s.t.Context(), batch)) {
			s.longest = max(s.longest, time.Since(last))
			last = time.Now()
		} else if err := s.sink.Open(s.t.Context()); err != nil {
			s.failed["open"]++
		}
	}
}

// settle counts the delivered messages, and reports whether all were delivered.
func (s *sending) settle(outcomes []sinks.Outcome) bool {
	before := s.delivered
	for n, o := range outcomes {
		if o.Result == sinks.Delivered {
			s.next[n%len(s.next)]++
			s.delivered++
		} else {
			s.failed[o.Result.String()+" "+string(o.Reason)]++
		}
	}
	return s.delivered == before+len(outcomes)
}

// check reads the topic and checks that it has all messages of each key, in order
// except for repetitions.
func (s *sending) check(addresses []string) {
	got := records(s.t, addresses, s.topic, s.delivered)
	for key := range s.next {
		s.checkKey(numbers(s.t, values(got, fmt.Sprint("key-", key))), s.next[key])
	}
	s.t.Logf("%d delivered, %d twice; %v longest without a delivery; not delivered at first: %v",
		s.delivered, len(got)-s.delivered, s.longest.Round(time.Millisecond), s.failed)
}

func (s *sending) checkKey(got []int, want int) {
	s.t.Helper()
	next := 0
	for _, n := range got {
		if n > next {
			s.t.Errorf("%d arrived before %d", n, next)
		}
		next = max(next, n+1)
	}
	if next < want {
		s.t.Errorf("%d of %d arrived", next, want)
	}
}

// leader returns the number of the node that leads most partitions.
func leader(t *testing.T, addresses []string, topic string) string {
	t.Helper()
	request, wanted := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	wanted.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(t.Context(), client(t, addresses, kgo.RetryTimeout(10*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	led := map[int32]int{}
	for _, partition := range answer.Topics[0].Partitions {
		led[partition.Leader]++
	}
	nodes := []int32{1, 2, 3}
	return fmt.Sprint(slices.MaxFunc(nodes, func(a, b int32) int { return led[a] - led[b] }))
}

func kill(t *testing.T, folder, node string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, node+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Logf("node %s is killed", node)
}

func start(t *testing.T, folder, node string) {
	t.Helper()
	program := exec.Command(filepath.Join(folder, "node"), node)
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: owner(t, folder)} // so that it outlives the test
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Logf("node %s is started again", node)
}

// owner returns the user that runs the nodes, or nil if it is the user of the test.
func owner(t *testing.T, folder string) *syscall.Credential {
	t.Helper()
	info, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	of, known := info.Sys().(*syscall.Stat_t)
	if !known || int(of.Uid) == os.Getuid() {
		return nil
	}
	return &syscall.Credential{Uid: of.Uid, Gid: of.Gid}
}
