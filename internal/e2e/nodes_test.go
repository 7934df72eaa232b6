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
)

// nodes are a broker's processes, which a scene kills one after the other.
type nodes struct {
	t       *testing.T
	folder  string
	numbers []int
	pid     string   // the name of a node's file, with its number
	program []string // starts a node, with its number
}

// theKafkaNodes are those of deploy/servers/kafka3.sh.
func theKafkaNodes(t *testing.T) nodes {
	return nodes{t: t, folder: asked(t, "ROWRELAY_TEST_KAFKA3_FOLDER"), numbers: []int{1, 2, 3}, pid: "%d.pid", program: []string{"node", "%d"}}
}

// theRabbitNodes are those of deploy/servers/rabbitmq3.sh, which tell where
// their files are.
func theRabbitNodes(t *testing.T) nodes {
	t.Helper()
	first, _, _ := strings.Cut(asked(t, "ROWRELAY_TEST_RABBITMQ3"), ",")
	address, err := url.Parse(strings.TrimSuffix(first, "/"))
	check(t, err)
	port, err := strconv.Atoi(address.Port())
	check(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/api/global-parameters/rowrelay_test", port+1), nil)
	check(t, err)
	password, _ := address.User.Password()
	request.SetBasicAuth(address.User.Username(), password)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	var parameter struct{ Value struct{ Ctl string } }
	check(t, json.NewDecoder(response.Body).Decode(&parameter))
	return nodes{t: t, folder: filepath.Dir(parameter.Value.Ctl), numbers: []int{0, 1, 2}, pid: "node%d.pid", program: []string{"ctl", "%d", "boot"}}
}

// fall kills a node every so often, and starts it again soon, until it is told
// to stop. It says how often.
func (n nodes) fall(stop <-chan struct{}) (kills int) {
	for {
		select {
		case <-stop:
			return kills
		case <-time.After(10 * time.Second):
		}
		number := n.numbers[kills%len(n.numbers)]
		n.kill(number)
		kills++
		<-time.After(3 * time.Second)
		n.start(number)
	}
}

func (n nodes) kill(number int) {
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
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		n.t.Errorf("kill node %d: %v", number, err)
	}
}

// start starts a node as the user whose files these are. It goes on when the
// test has ended.
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

// Relays are killed, and the broker's nodes as well: nothing is lost, and each
// customer's orders are in their order.
func TestKilledRelaysAndNodesLoseNothing(t *testing.T) {
	if !*long {
		t.Skip("only with -long, and with clusters of three nodes: deploy/servers/servers up kafka3 rabbitmq3")
	}
	for _, test := range []struct {
		name  string
		open  func(*testing.T) broker
		nodes func(*testing.T) nodes
	}{
		{"kafka", func(t *testing.T) broker { return newKafkaTopic(t, "ROWRELAY_TEST_KAFKA3", 3) }, theKafkaNodes},
		{"rabbitmq", func(t *testing.T) broker { return newRabbitQueue(t, "ROWRELAY_TEST_RABBITMQ3", "quorum") }, theRabbitNodes},
	} {
		t.Run(test.name, func(t *testing.T) {
			to, falling := test.open(t), test.nodes(t)
			stop, fallen := make(chan struct{}), make(chan int)
			go func() { fallen <- falling.fall(stop) }()
			s := newScene(t, "postgres15/pgx")
			done := make(chan struct{})
			go func() { placeOrders(s, lastingOrders(), time.Minute); close(done) }()
			kills := killEverySecond(s, func(string) string { return to.sink() }, 3*time.Second, time.Minute)
			<-done
			close(stop)
			t.Logf("%d nodes were killed", <-fallen)
			s.settled(5 * time.Minute)
			judgeBroker(s, to, len(kills)+1_000) // lost answers cause duplicates, too
		})
	}
}
