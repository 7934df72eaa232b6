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
)

// TLSFields are the settings with which a sink's kind takes its certificates from
// files: ca_file, cert_file and key_file. [Values.TLS] reads them.
func TLSFields() []Field {
	return []Field{
		{Name: "ca_file", Type: TypeString, Help: "A file with the certificates, in PEM form, to trust instead of the system's."},
		{Name: "cert_file", Type: TypeString, Help: "A file with the client's certificate, in PEM form, for servers that ask for one. It and its key are read anew for each connection, so they can be renewed."},
		{Name: "key_file", Type: TypeString, Help: "A file with the key of that certificate, in PEM form."},
	}
}

// TLS returns what the settings of [TLSFields] ask for; nil where none is given.
func (s Values) TLS() (*tls.Config, error) {
	return TLSConfig(s.Text("ca_file"), s.Text("cert_file"), s.Text("key_file"))
}

// TLSConfig returns a client's configuration: it trusts the certificates of the
// file ca instead of the system's, and shows that of cert and key to servers that
// ask for one. All files are in PEM form, and any may be empty, but not one of cert
// and key; nil where all are. All are read now, to find what is wrong; cert and key
// are read anew for each connection, so that a renewed certificate is taken up.
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
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("read the client's certificate and key: %w", err)
		}
		return &pair, nil
	}
	_, err := config.GetClientCertificate(nil)
	return config, err
}

// Handshake makes a connection to an address, host:port, one with TLS. The server's name is
// the host's, unless the configuration, which may be nil, has another.
func Handshake(ctx context.Context, raw net.Conn, config *tls.Config, address string) (net.Conn, error) {
	config = cmp.Or(config, &tls.Config{}).Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secured := tls.Client(raw, config)
	return secured, secured.HandshakeContext(ctx)
}
