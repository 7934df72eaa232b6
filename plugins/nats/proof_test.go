package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rowrelay/rowrelay/internal/plugintest"
	"github.com/rowrelay/rowrelay/outbox"
)

// TestProof kills plug-ins, relays and the server. The stream has no message twice. Within the duplicate window
// the messages' ids prevent it, and with the shortest possible window the expected sequences do.
func TestProof(t *testing.T) {
	for name, test := range map[string]struct {
		subject string
		window  time.Duration
	}{
		"ids":                {"{topic}", 2 * time.Minute},
		"expected sequences": {"{topic}.{key}", 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t)
			plugintest.Prove(t, plugintest.Scene{
				Name: "nats", KillServer: p.restart, Received: p.received,
				Config: map[string]string{
					"servers": p.url, "stream": "PROOF", "subject": test.subject,
					"create_subjects": "proof,proof.>", "create_duplicate_window": test.window.String(),
				},
			})
		})
	}
}

// process is a server in a process of its own, which can be killed.
type process struct {
	t       testing.TB
	host    string
	url     string
	folder  string
	running *exec.Cmd
}

const serverFolder = "ROWRELAY_TEST_NATS_FOLDER" // the environment variable that makes this program a server

func newProcess(t testing.TB) *process {
	t.Helper()
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	p := &process{t: t, host: host, url: "nats://" + host + ":4222", folder: t.TempDir()}
	p.start()
	t.Cleanup(p.kill)
	return p
}

// serve runs the server that process starts.
func serve(folder string) {
	s, err := natsserver.NewServer(&natsserver.Options{Host: os.Args[1], Port: 4222, JetStream: true, StoreDir: folder, NoSigs: true, NoLog: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Start()
	s.WaitForShutdown()
}

func (p *process) start() {
	p.t.Helper()
	program, err := os.Executable()
	check(p.t, err)
	p.running = exec.Command(program, p.host)
	p.running.Env = append(os.Environ(), serverFolder+"="+p.folder)
	check(p.t, p.running.Start())
}

func (p *process) kill() {
	_ = p.running.Process.Kill()
	_ = p.running.Wait()
}

func (p *process) restart() {
	p.kill()
	p.start()
}

// received reads the stream from its beginning.
func (p *process) received() (got []outbox.Message) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	connection, err := nats.Connect(p.url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1)) // the server may just have been restarted
	check(p.t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	check(p.t, err)
	stream, err := js.Stream(ctx, "PROOF")
	check(p.t, err)
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	check(p.t, err)
	total := int(stream.CachedInfo().State.Msgs)
	p.t.Logf("the stream has %d messages", total)
	for len(got) < total {
		batch, err := consumer.Fetch(min(1000, total-len(got)))
		check(p.t, err)
		for m := range batch.Messages() {
			got = append(got, outbox.Message{Key: m.Headers().Get(keyHeader), Payload: m.Data()})
		}
		check(p.t, errors.Join(batch.Error(), ctx.Err()))
	}
	return got
}
