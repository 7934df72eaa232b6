package settings_test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/plugintest"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestTLSConfigFromFiles(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	address := server.Listener.Addr().(*net.TCPAddr)
	for _, test := range []struct{ host, ca, want string }{
		{"127.0.0.1", ca, ""},
		{"127.0.0.1", "", "unknown authority"},
		{"h.invalid", ca, "h.invalid"},
	} {
		settings, err := settings.TLSConfig(test.ca, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if settings == nil { // no file, no configuration
			settings = &tls.Config{}
		}
		settings.ServerName = test.host
		connection, err := tls.Dial("tcp", address.String(), settings)
		if err == nil {
			_ = connection.Close()
		}
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if _, err := settings.TLSConfig(empty, "", ""); err == nil || !strings.Contains(err.Error(), "empty.pem has no certificate") {
		t.Errorf("no certificate: %v", err)
	}
	if _, err := settings.TLSConfig("", ca, empty); err == nil || !strings.Contains(err.Error(), "read the client's certificate") {
		t.Errorf("no key: %v", err)
	}
}

// While a certificate and its key are replaced one after the other, clients present the previous certificate.
func TestClientCertificateIsReplacedWithItsKey(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	certificate, key := filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key")
	firstCertificate, firstKey := plugintest.Certificate(t, "127.0.0.1")
	secondCertificate, secondKey := plugintest.Certificate(t, "127.0.0.1")
	replace := func(name, with string) {
		t.Helper()
		content, err := os.ReadFile(with)
		if err == nil {
			err = os.WriteFile(name, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(certificate, firstCertificate)
	replace(key, firstKey)
	config, err := settings.TLSConfig("", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	presents := func(state, want string) {
		t.Helper()
		got, err := config.GetClientCertificate(nil)
		if err != nil {
			t.Errorf("%s: %v", state, err)
			return
		}
		text, err := os.ReadFile(want)
		if err != nil {
			t.Fatal(err)
		}
		if block, _ := pem.Decode(text); !bytes.Equal(got.Certificate[0], block.Bytes) {
			t.Errorf("%s: the client presents another certificate", state)
		}
	}
	presents("before", firstCertificate)
	replace(certificate, secondCertificate)
	presents("with the previous key", firstCertificate)
	replace(key, secondKey)
	presents("with the new key", secondCertificate)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	presents("without a key", secondCertificate)
}
