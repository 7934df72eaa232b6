package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/rowrelay/rowrelay/internal/plugintest"
	"github.com/rowrelay/rowrelay/sinks"
)

// The server requires TLS and a client's certificate. The plug-in trusts only ca_file.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	certificate, key := plugintest.Certificate(t, s.options.Host)
	another, _ := plugintest.Certificate(t, s.options.Host)
	pair, err := tls.LoadX509KeyPair(certificate, key)
	check(t, err)
	text, err := os.ReadFile(certificate)
	check(t, err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	s.stop()
	s.options.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}
	s.options.TLSTimeout = 60
	s.login = []nats.Option{nats.RootCAs(certificate), nats.ClientCert(certificate, key)}
	s.start()
	delivered(t, opened(t, s, "ca_file", certificate, "cert_file", certificate, "key_file", key), message(1, "orders.paid", "a"))
	for name, settings := range map[string][]string{
		"another authority": {"ca_file", another, "cert_file", certificate, "key_file", key},
		"the system's":      {"cert_file", certificate, "key_file", key},
	} {
		sink := pluginSink(t, s, settings...)
		if o := sinks.Unopened(sink.Open(t.Context())); o.Reason != sinks.ReasonConfig {
			t.Errorf("%s: %+v, want the reason config", name, o)
		}
		check(t, sink.Close(context.Background()))
	}
	if len(s.received()) != 1 {
		t.Error("the message was not stored once")
	}
}
