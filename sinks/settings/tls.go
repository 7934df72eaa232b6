package settings

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// TLSFields returns the settings of a kind that reads certificates from files:
// ca_file, cert_file and key_file. [Values.TLS] evaluates them.
func TLSFields() []Field {
	return []Field{
		{Name: "ca_file", Type: TypeString, Help: "A PEM file with the authorities to trust instead of the system's."},
		{Name: "cert_file", Type: TypeString, Help: "A PEM file with the client's certificate, for servers that request one. The sink reads this file and key_file again for each connection."},
		{Name: "key_file", Type: TypeString, Help: "A PEM file with the private key of the client's certificate."},
	}
}

// TLS returns the configuration for the settings of [TLSFields], or nil if none is given.
func (s Values) TLS() (*tls.Config, error) {
	return TLSConfig(s.Text("ca_file"), s.Text("cert_file"), s.Text("key_file"))
}

// TLSConfig returns a client's TLS configuration from the names of PEM files. If the name ca is
// not empty, the client trusts the certificates in this file instead of the system's. If the
// names cert and key are not empty, the client presents the certificate in these files to
// servers that request one. TLSConfig returns an error if only one of cert and key is given, and
// a nil configuration if all names are empty.
//
// TLSConfig reads all files to find problems early. The client reads the files cert
// and key again for each connection, so that a renewed certificate takes effect. While
// the key in one file doesn't belong to the certificate in the other, for example because
// only one of the files has been replaced, the client presents the previous certificate.
func TLSConfig(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	config := &tls.Config{}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read the certificates to trust: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the certificates to trust: %s has no certificate in PEM form", ca)
		}
	}
	switch {
	case cert == "" && key == "":
		return config, nil
	case cert == "" || key == "":
		return nil, errors.New("a client's certificate and its key belong together: set both files")
	}
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate and key: %w", err)
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair, err := tls.LoadX509KeyPair(cert, key); err == nil {
			last.Store(&pair)
		}
		return last.Load(), nil
	}
	return config, nil
}

// Handshake performs a TLS handshake over a connection to address, a host:port, and returns the
// TLS connection. The server's certificate must be valid for the host, unless config sets
// another ServerName. The argument config may be nil.
func Handshake(ctx context.Context, raw net.Conn, config *tls.Config, address string) (net.Conn, error) {
	config = cmp.Or(config, &tls.Config{}).Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secured := tls.Client(raw, config)
	return secured, secured.HandshakeContext(ctx)
}
