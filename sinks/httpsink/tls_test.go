package httpsink_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// writeClient makes a self-signed certificate, writes it and its key to files, and
// returns it.
func writeClient(t *testing.T, certificate, key string) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fatal(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	fatal(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	fatal(t, err)
	fatal(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	fatal(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	made, err := x509.ParseCertificate(der)
	fatal(t, err)
	return made
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asking is a server that requires the certificate of one of these clients.
func asking(t *testing.T, clients *x509.CertPool) (server *httptest.Server, ca string) {
	t.Helper()
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	fatal(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return server, ca
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	clients := x509.NewCertPool()
	clients.AddCert(writeClient(t, certificate, key))
	server, ca := asking(t, clients)
	settings := map[string]any{"url": server.URL, "ca_file": ca}
	send := func() sinks.Outcome {
		sink, err := registry(t).Make("http", settings)
		fatal(t, err)
		defer func() { _ = sink.Close(t.Context()) }()
		return sendOne(t, sink, message("k"))
	}
	if got := send(); got.Result == sinks.Delivered {
		t.Errorf("without a certificate: %+v", got)
	}
	settings["cert_file"], settings["key_file"] = certificate, key
	if got := send(); got.Result != sinks.Delivered {
		t.Errorf("with it: %+v", got)
	}
	writeClient(t, certificate, key) // the server doesn't know it
	if got := send(); got.Result == sinks.Delivered {
		t.Errorf("with another: %+v", got)
	}
}

// After a certificate was renewed, new connections use it.
func TestRenewedClientCertificateIsUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "client.pem"), filepath.Join(dir, "client.key")
	writeClient(t, certificate, key)
	clients := x509.NewCertPool()
	server, ca := asking(t, clients)
	sink, err := registry(t).Make("http", map[string]any{"url": server.URL, "ca_file": ca, "cert_file": certificate, "key_file": key})
	fatal(t, err)
	defer func() { _ = sink.Close(t.Context()) }()
	if got := sendOne(t, sink, message("k")); got.Result == sinks.Delivered {
		t.Fatalf("with an unknown one: %+v", got)
	}
	clients.AddCert(writeClient(t, certificate, key))
	if got := sendOne(t, sink, message("k")); got.Result != sinks.Delivered {
		t.Errorf("with the renewed one: %+v", got)
	}
}

func TestInvalidClientCertificates(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ certificate, key, want string }{
		{"c.pem", "", "belong together"},
		{"", "c.key", "belong together"},
		{"no-such.pem", "no-such.key", "read the client's certificate and key: open no-such.pem"},
		{"README.md", "README.md", "read the client's certificate and key"},
	} {
		_, err := registry(t).Make("http", map[string]any{"url": "https://example.com", "cert_file": test.certificate, "key_file": test.key})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q, %q: %v", test.certificate, test.key, err)
		}
	}
}
