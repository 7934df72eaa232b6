package kafka_test

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

// The address of a broker is that of a server with another protocol. The sink reports it immediately, and doesn't take the server's
// answer for a huge answer of a broker.
func TestServersThatAreNotBrokers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ answer, want string }{
		"HTTP":             {"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request", "an HTTP server has answered"},
		"HTTP/2":           {"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80\x00\x04\x00\x01\x00\x00\x00\x05\x00\xff\xff\xff", "is not from a Kafka broker"},
		"SSH":              {"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", "is not from a Kafka broker"},
		"MySQL":            {"J\x00\x00\x00\x0a8.0.36\x00\x0b\x00\x00\x00", "is not from a Kafka broker"},
		"an ended TLS one": {"\x15\x03\x01\x00\x02\x02\x46", "expecting TLS"},
		"nothing":          {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink := newSink(t, kafka.Options{Brokers: []string{notABroker(t, c.answer)}, Topic: "t"})
			err := sink.Open(t.Context())
			var failed *sinks.OpenError
			if !errors.As(err, &failed) || failed.Reason != sinks.ReasonConnection || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want %q", err, c.want)
			}
		})
	}
}

// A broker that never answers is reported as such. The error doesn't name the closed connection, or its local port.
func TestSilentBroker(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	sink := newSink(t, kafka.Options{Brokers: []string{listener.Addr().String()}, Topic: "t", RequestTimeout: 100 * time.Millisecond})
	if err := sink.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "the broker has not answered") || strings.Contains(err.Error(), "->") {
		t.Errorf("the error is %v", err)
	}
}

// notABroker returns the address of a server that reads something from each client, answers with a text, and hangs up.
func notABroker(t *testing.T, text string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = client.Read(make([]byte, 1000))
			_, _ = client.Write([]byte(text))
			_ = client.Close()
		}
	})
	t.Cleanup(func() { _ = listener.Close(); serving.Wait() })
	return listener.Addr().String()
}
