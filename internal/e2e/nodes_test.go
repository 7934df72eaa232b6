package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// nodes has a broker's processes, which a scene kills one after another.
type nodes struct {
	t       *testing.T
	folder  string
	numbers []int
	pid     string   // the name of a node's pid file, with %d for the node's number
	program []string // the command that starts a node, with %d for the node's number
}

// kafkaNodes returns the nodes of deploy/servers/kafka.sh or kafka3.sh.
func kafkaNodes(t *testing.T, folder string, count int) nodes {
	return nodes{t: t, folder: folder, numbers: []int{1, 2, 3}[:count], pid: "%d.pid", program: []string{"node", "%d"}}
}

// rabbitNodes returns the nodes of deploy/servers/rabbitmq.sh or rabbitmq3.sh, which report the
// folder of their files.
func rabbitNodes(t *testing.T, address string, count int) nodes {
	t.Helper()
	first, _, _ := strings.Cut(address, ",")
	broker, err := url.Parse(strings.TrimSuffix(first, "/"))
	check(t, err)
	port, err := strconv.Atoi(broker.Port())
	check(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/api/global-parameters/rowrelay_test", port+1), nil)
	check(t, err)
	password, _ := broker.User.Password()
	request.SetBasicAuth(broker.User.Username(), password)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	var parameter struct{ Value struct{ Ctl string } }
	check(t, json.NewDecoder(response.Body).Decode(&parameter))
	return nodes{t: t, folder: filepath.Dir(parameter.Value.Ctl), numbers: []int{0, 1, 2}[:count], pid: "node%d.pid", program: []string{"ctl", "%d", "boot"}}
}

// fall returns the trouble that kills a node and restarts it three seconds later. The next node is
// killed when the broker is in sync again.
func (n nodes) fall(to broker) trouble {
	return trouble{"killed nodes", 5 * time.Second, func(times int) {
		number := n.numbers[times%len(n.numbers)]
		n.kill(number)
		<-time.After(3 * time.Second)
		n.start(number)
		n.whole(to, number)
	}}
}

// freeze returns the trouble that suspends a node for half a minute. Its connections stay open, and the other nodes elect another
// leader meanwhile. The next node is suspended when the broker is in sync again.
func (n nodes) freeze(to broker) trouble {
	return trouble{"suspended nodes", 5 * time.Second, func(times int) {
		number := n.numbers[times%len(n.numbers)]
		n.signal(number, syscall.SIGSTOP)
		<-time.After(30 * time.Second)
		n.signal(number, syscall.SIGCONT)
		n.whole(to, number)
	}}
}

// whole waits until the broker is in sync after a node's failure.
func (n nodes) whole(to broker, number int) {
	var err error
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); <-time.After(200 * time.Millisecond) {
		if err = to.whole(); err == nil {
			return
		}
	}
	n.t.Errorf("node %d has not come back: %v", number, err)
}

func (n nodes) kill(number int) { n.signal(number, syscall.SIGKILL) }

func (n nodes) signal(number int, signal syscall.Signal) {
	text, err := os.ReadFile(filepath.Join(n.folder, fmt.Sprintf(n.pid, number)))
	if err != nil {
		n.t.Error(err)
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		n.t.Error(err)
		return
	}
	if err := syscall.Kill(pid, signal); err != nil {
		n.t.Errorf("signal %v to node %d: %v", signal, number, err)
	}
}

// start starts a node as the user who owns its files. The node keeps running after the test.
func (n nodes) start(number int) {
	program := filepath.Join(n.folder, n.program[0])
	var arguments []string
	for _, argument := range n.program[1:] {
		arguments = append(arguments, strings.ReplaceAll(argument, "%d", strconv.Itoa(number)))
	}
	command := exec.Command(program, arguments...)
	command.Dir = n.folder
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if info, err := os.Stat(filepath.Join(n.folder, fmt.Sprintf(n.pid, number))); err == nil && os.Getuid() == 0 {
		owner := info.Sys().(*syscall.Stat_t)
		command.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	if err := command.Start(); err != nil {
		n.t.Errorf("start node %d: %v", number, err)
		return
	}
	go func() { _ = command.Wait() }()
}

// Relays and the broker's nodes are killed. Nothing is lost, and each customer's orders arrive in
// order.
func TestKilledRelaysAndNodesLoseNothing(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with clusters of three nodes: deploy/servers/servers up kafka3 rabbitmq3")
	}
	kafka := func(t *testing.T) (*kafkaTopic, nodes) {
		topic, folder := newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA3"), 3), theMachine.asked(t, "ROWRELAY_TEST_KAFKA3_FOLDER")
		topic.folder = folder
		return topic, kafkaNodes(t, folder, 3)
	}
	for name, open := range map[string]func(*testing.T) (broker, nodes){
		"kafka": func(t *testing.T) (broker, nodes) { return kafka(t) },
		"kafka, idempotent": func(t *testing.T) (broker, nodes) {
			topic, all := kafka(t)
			return idempotentTopic{topic}, all
		},
		"rabbitmq": func(t *testing.T) (broker, nodes) {
			address := theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ3")
			return newRabbitQueue(t, address, "quorum"), rabbitNodes(t, address, 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			to, all := open(t)
			survive(newScene(t, "postgres15/pgx"), to, []trouble{all.fall(to)})
		})
	}
}

// Relays are killed, and nodes of a cluster are suspended one after another, so that the others can't reach them, and no connection is
// closed. A quorum queue keeps all messages that it has confirmed. Nothing is lost, and each customer's orders arrive in order.
func TestSuspendedQuorumNodesLoseNothing(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with a cluster of three nodes: deploy/servers/servers up rabbitmq3")
	}
	address := theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ3")
	queue, all := newRabbitQueue(t, address, "quorum"), rabbitNodes(t, address, 3)
	s := newScene(t, "postgres15/pgx")
	s.topology = "RabbitMQ, three nodes"
	survive(s, queue, []trouble{all.freeze(queue)})
}

// Two of three nodes are dead. The third node accepts connections, but its quorum queue confirms no
// message. The relay treats this as a failure of the destination, so no message is parked, and all
// messages arrive when the nodes are back.
func TestQuorumWithoutMajorityParksNothing(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with a cluster of three nodes: deploy/servers/servers up rabbitmq3")
	}
	address := theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ3")
	queue, all := newRabbitQueue(t, address, "quorum"), rabbitNodes(t, address, 3)
	s := newScene(t, "postgres15/pgx")
	s.relay("/relay", queue.sink("/relay"))
	written := 0
	order := func() {
		check(t, s.order(t.Context(), written%200, written+1, true))
		written++
	}
	for range 200 {
		order()
	}
	s.settled()
	all.kill(1)
	all.kill(2)
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); <-time.After(200 * time.Millisecond) {
		order()
	}
	if counts := s.status().Counts; counts[storage.StateError] != 0 || counts[storage.StatePending]+counts[storage.StateRetry] < int64(written)-400 {
		t.Errorf("after ten minutes: %v, want none parked of %d", counts, written)
	}
	all.start(1)
	all.start(2)
	back := time.Now()
	s.settled()
	v := judge(t, queue.received())
	if parked := s.status().Counts[storage.StateError]; parked != 0 || v.distinct != written {
		t.Errorf("%d distinct messages arrived of %d, %d are parked", v.distinct, written, parked)
	}
	t.Logf("%d messages, %d duplicates, all delivered %v after the nodes were started", written, len(v.duplicates), time.Since(back).Round(time.Second))
}
