package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

const password = "pa55word/with+signs"

// patience limits how long a test waits for an event.
const patience = 5 * time.Minute

// TestMain runs the plug-in if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("ROWRELAY_PLUGIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// process is a Redis server that a test can kill and start again. Its data survive.
type process struct {
	t       testing.TB
	address string
	words   []string
	running *exec.Cmd
	client  *redis.Client
}

// newServer starts a server with a password.
func newServer(t testing.TB, options ...string) *process {
	t.Helper()
	return newProcess(t, append([]string{"--requirepass", password, "--masterauth", password}, options...)...)
}

func newProcess(t testing.TB, options ...string) *process {
	t.Helper()
	program := os.Getenv("ROWRELAY_TEST_REDIS")
	if program == "" {
		const missing = "ROWRELAY_TEST_REDIS isn't set: deploy/servers/servers up redis-server"
		if os.Getenv("REQUIRE_SERVERS") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	// Use a separate address, so that no other process gets the port while the server is stopped.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	p := &process{t: t, address: host + ":6379"}
	// A killed server must keep what it has acknowledged. With the default, appendfsync everysec, it may acknowledge a
	// write before it has written it, if the disk is slow.
	p.words = append([]string{program, "--bind", host, "--port", "6379", "--cluster-announce-ip", host, "--replica-announce-ip", host, "--dir", t.TempDir(), "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no"}, options...)
	p.client = redis.NewClient(&redis.Options{Addr: p.address, Password: password, ReadTimeout: patience, PoolSize: 4})
	p.start()
	t.Cleanup(p.stop)
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.running = exec.Command(p.words[0], p.words[1:]...)
	p.running.SysProcAttr = endWithTest()
	check(p.t, p.running.Start())
	p.until("the server answers", func() bool { return p.client.Ping(context.Background()).Err() == nil })
}

// stop kills the server.
func (p *process) stop() {
	_ = p.running.Process.Kill()
	_ = p.running.Wait()
}

// until waits for a condition.
func (p *process) until(what string, condition func() bool) {
	p.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !condition(); <-tick.C {
		if time.Now().After(end) {
			p.t.Fatalf("waited without success: %s", what)
		}
	}
}

func (p *process) do(words ...any) any {
	p.t.Helper()
	answer, err := p.client.Do(context.Background(), words...).Result()
	check(p.t, err)
	return answer
}

// pluginSink returns the plug-in as a relay uses it. The further settings are pairs of a name and a value.
func pluginSink(t testing.TB, p *process, further ...string) *plugins.Sink {
	t.Helper()
	config := map[string]string{"addresses": p.address}
	for i := 0; i < len(further); i += 2 {
		config[further[i]] = further[i+1]
	}
	program, err := os.Executable()
	check(t, err)
	directory, err := os.MkdirTemp("", "p")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(directory)) })
	secrets := map[string]settings.Secret{"password": password}
	if config["username"] != "" {
		secrets["password"] = "another password"
	}
	sink, err := plugins.New(plugins.Options{Path: program, Directory: directory, Config: config, Secrets: secrets})
	check(t, err)
	return sink
}

// opened returns the plug-in's sink, which is open until the test ends.
func opened(t testing.TB, p *process, further ...string) *plugins.Sink {
	t.Helper()
	sink := pluginSink(t, p, further...)
	t.Cleanup(func() { check(t, sink.Close(context.Background())) })
	check(t, sink.Open(t.Context()))
	return sink
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
