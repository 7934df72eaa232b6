package kafka

import (
	"crypto/x509"
	"fmt"
	"os"
)

// trusted returns the certificates of a file; nil, which means the system's,
// without one.
func trusted(path string) (*x509.CertPool, error) {
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
