package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsSettings are those for a server: whom we trust instead of the system's, and
// who we are. Each file may be left out, but not one of cert and key.
func tlsSettings(host, ca, cert, key string) (*tls.Config, error) {
	settings := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read the certificates that are trusted: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM's form", ca)
		}
	}
	if cert == "" && key == "" {
		return settings, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("a client's certificate needs both ssl-cert and ssl-key")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read the client's certificate: %w", err)
	}
	settings.Certificates = []tls.Certificate{pair}
	return settings, nil
}
