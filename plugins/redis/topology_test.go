package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rowrelay/rowrelay/internal/plugintest"
	"github.com/rowrelay/rowrelay/sinks"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	p := newServer(t)
	host, _, err := net.SplitHostPort(p.address)
	check(t, err)
	certificate, key := plugintest.Certificate(t, host)
	another, _ := plugintest.Certificate(t, host)
	for name, value := range map[string]string{"tls-cert-file": certificate, "tls-key-file": key, "tls-ca-cert-file": certificate} {
		p.words = append(p.words, "--"+name, value)
	}
	p.words = append(p.words, "--tls-port", "6380")
	p.stop()
	p.start()
	login := []string{"addresses", host + ":6380", "tls", "true", "cert_file", certificate, "key_file", key}
	sink := opened(t, p, append(login, "ca_file", certificate)...)
	if o := sink.Send(t.Context(), []sinks.Message{message(1, "orders", "")})[0]; o.Result != sinks.Delivered {
		t.Errorf("outcome %+v", o)
	}
	sink = pluginSink(t, p, append(login, "ca_file", another)...)
	defer func() { check(t, sink.Close(context.Background())) }()
	if o := sinks.Unopened(sink.Open(t.Context())); o.Reason != sinks.ReasonConfig {
		t.Errorf("with another authority: %+v, want the reason config", o)
	}
}

// newCluster starts a cluster of three masters.
func newCluster(t *testing.T) (nodes []*process) {
	t.Helper()
	const slots = 16384
	for n := range 3 {
		p := newServer(t, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")
		p.do("CLUSTER", "ADDSLOTSRANGE", n*slots/3, (n+1)*slots/3-1)
		nodes = append(nodes, p)
	}
	for _, p := range nodes {
		for _, other := range nodes {
			host, port, _ := net.SplitHostPort(other.address)
			p.do("CLUSTER", "MEET", host, port)
		}
	}
	for _, p := range nodes {
		p.until("the cluster is complete", func() bool {
			info := p.client.ClusterInfo(context.Background()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_assigned:16384") && strings.Contains(info, "cluster_known_nodes:3")
		})
	}
	return nodes
}

// Messages go to the nodes of their streams, even after a slot has moved or while one node is down.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := newCluster(t)
	sink := opened(t, nodes[0], "cluster", "true", "duplicate_window", "1h")
	var batch []sinks.Message
	for n := range 60 {
		batch = append(batch, message(n, fmt.Sprint("topic-", n%20), fmt.Sprint("key-", n%20)))
	}
	for i, o := range sink.Send(t.Context(), batch) {
		if o.Result != sinks.Delivered {
			t.Fatalf("message %d: %+v", i, o)
		}
	}
	for n, p := range nodes {
		if p.client.DBSize(t.Context()).Val() == 0 {
			t.Errorf("node %d has no stream", n)
		}
	}

	const stream = "topic-0"
	slot := nodes[0].do("CLUSTER", "KEYSLOT", "topic-moved").(int64)
	from, to := owner(nodes, slot), nodes[0]
	if from == to {
		to = nodes[1]
	}
	id := to.do("CLUSTER", "MYID")
	for _, p := range nodes {
		p.do("CLUSTER", "SETSLOT", slot, "NODE", id)
	}
	moved := []sinks.Message{message(100, "topic-moved", "moved"), message(101, stream, "stays")}
	if got := sink.Send(t.Context(), moved); got[0].Result != sinks.Unsent || got[0].Reason != sinks.ReasonBusy || got[0].RetryAfter == 0 || got[1].Result != sinks.Delivered {
		t.Errorf("outcomes %+v, want the message of the moved slot postponed, and the other one delivered", got)
	}
	to.until("the plug-in has found the slot", func() bool { return sink.Send(t.Context(), moved)[0].Result == sinks.Delivered })

	to.stop()
	if got := sink.Send(t.Context(), []sinks.Message{message(102, "topic-moved", "")})[0]; got.Result == sinks.Unavailable || got.Result == sinks.Delivered {
		t.Errorf("outcome %+v while the node is down", got)
	}
	to.until("a message of the missing node is postponed", func() bool {
		o := sink.Send(t.Context(), []sinks.Message{message(102, "topic-moved", "")})[0]
		return o.Result == sinks.Unsent && o.Reason == sinks.ReasonConnection && o.RetryAfter > 0
	})
	to.start()
	to.until("the node is back", func() bool {
		return sink.Send(t.Context(), []sinks.Message{message(102, "topic-moved", "")})[0].Result == sinks.Delivered
	})
}

// owner returns the node that has the slot.
func owner(nodes []*process, slot int64) *process {
	for _, p := range nodes {
		for _, line := range strings.Split(p.client.ClusterNodes(context.Background()).Val(), "\n") {
			var first, last int64
			if fields := strings.Fields(line); len(fields) > 8 && strings.Contains(line, "myself") {
				if n, _ := fmt.Sscanf(fields[8], "%d-%d", &first, &last); n == 2 && first <= slot && slot <= last {
					return p
				}
			}
		}
	}
	return nil
}

// After a failover, the plug-in finds the new master. It reports a message as delivered only if the replica has
// received it.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	master := newServer(t)
	host, port, err := net.SplitHostPort(master.address)
	check(t, err)
	replica := newServer(t, "--replicaof", host+" "+port)
	master.until("the replica is connected", func() bool {
		return strings.Contains(master.client.Info(context.Background(), "replication").Val(), "state=online")
	})
	sentinel := newSentinel(t, host, port)
	settings := []string{"addresses", sentinel, "master_name", "shop", "wait_replicas", "1", "duplicate_window", "1h"}
	sink := opened(t, master, settings...)
	if o := sink.Send(t.Context(), []sinks.Message{message(1, "orders", "a")})[0]; o.Result != sinks.Delivered {
		t.Fatalf("outcome %+v", o)
	}
	master.stop()
	for range 2 { // the first Send may have sent the message
		if o := sink.Send(t.Context(), []sinks.Message{message(2, "orders", "a")})[0]; o.Result != sinks.Unavailable && o.Reason != sinks.ReasonUnknown {
			t.Errorf("outcome %+v while no master is there", o)
		}
	}
	// The new master has no replica of its own.
	settings[5] = "0"
	sink = pluginSink(t, master, settings...)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	replica.until("the plug-in has found the new master", func() bool {
		return sink.Open(t.Context()) == nil && sink.Send(t.Context(), []sinks.Message{message(2, "orders", "a")})[0].Result == sinks.Delivered
	})
	if got := replica.received("orders"); len(got) != 2 || got[0].ID != "id-1" || got[1].ID != "id-2" {
		t.Errorf("the new master has %+v", got)
	}
}

// newSentinel starts a sentinel that watches a master, and returns its address.
func newSentinel(t *testing.T, host, port string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	check(t, os.WriteFile(file, []byte(fmt.Sprintf("bind %s\nport 26379\nsentinel monitor shop %[1]s %s 1\nsentinel auth-pass shop %s\nsentinel down-after-milliseconds shop 300\nsentinel failover-timeout shop 1000\n",
		host, port, password)), 0o600))
	sentinel := exec.Command(os.Getenv("ROWRELAY_TEST_REDIS"), file, "--sentinel")
	sentinel.SysProcAttr = endWithTest()
	check(t, sentinel.Start())
	t.Cleanup(func() { _ = sentinel.Process.Kill(); _ = sentinel.Wait() })
	client := redis.NewSentinelClient(&redis.Options{Addr: host + ":26379"})
	defer func() { _ = client.Close() }()
	p := &process{t: t}
	p.until("the sentinel knows the replica", func() bool {
		replicas, err := client.Replicas(context.Background(), "shop").Result()
		return err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	return host + ":26379"
}
