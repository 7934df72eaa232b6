package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// selfSigned returns a certificate for 127.0.0.1, also in PEM form.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// The endpoint switches to a certificate of another authority, and the relay's file with the
// trusted authorities is renewed some time later. All messages arrive, although each has
// only one attempt.
func TestRenewedAuthority(t *testing.T) {
	t.Parallel()
	s := newScene(t, "sqlite/modernc")
	first, ca := selfSigned(t)
	second, caAfter := selfSigned(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&first)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	m := newMount(t, map[string]string{"ca.pem": ca})
	p := s.byFile(fmt.Sprintf("sources: {shop: {database: %q}}\nsinks: {hook: {type: http, url: %q, ca_file: %q, max_attempts: 1}}\n", s.URL, server.URL, m.path("ca.pem")))
	s.writeOrders(100, 1)
	s.wantAll(100)
	shown.Store(&second)
	server.CloseClientConnections()
	s.writeOrders(100, 1000)
	p.says(t, "certificate")
	m.swap(map[string]string{"ca.pem": caAfter})
	s.wantAll(200)
}
