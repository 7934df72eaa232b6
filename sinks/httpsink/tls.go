package httpsink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsFrom returns what the files of the settings ask for; nil where there are
// none.
func tlsFrom(roots, certificate, key string) (*tls.Config, error) {
	if roots == "" && certificate == "" && key == "" {
		return nil, nil
	}
	trusted, err := trusting(roots)
	if err != nil {
		return nil, err
	}
	shown, err := showing(certificate, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: trusted, GetClientCertificate: shown}, nil
}

// trusting returns the certificates of a file; nil, for the system's, without
// one.
func trusting(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read ca_file: %s has no certificate in PEM form", path)
	}
	return roots, nil
}

// showing returns what reads the certificate for each connection, so that one
// that was renewed is taken up. It is read once now, to find what is wrong.
func showing(certificate, key string) (func(*tls.CertificateRequestInfo) (*tls.Certificate, error), error) {
	switch {
	case certificate == "" && key == "":
		return nil, nil
	case certificate == "" || key == "":
		return nil, errors.New("client_cert_file and client_key_file belong together: set both")
	}
	read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("read client_cert_file and client_key_file: %w", err)
		}
		return &pair, nil
	}
	_, err := read(nil)
	return read, err
}
