package plugins

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// certificateVariable is the environment variable with the relay's certificate.
const certificateVariable = "PLUGIN_CLIENT_CERT"

// identity is the relay's certificate for one run of a plug-in, as in go-plugin's
// AutoMTLS. AutoMTLS itself uses the curve P-521, which gRPC in languages other
// than Go refuses. This certificate uses P-256.
type identity struct {
	config *tls.Config
	pem    string
}

func newIdentity() (*identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template(), template(), key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &identity{
		// go-plugin adds the plug-in's certificate to RootCAs; no other certificate
		// is trusted.
		config: &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			RootCAs:      x509.NewCertPool(),
			MinVersion:   tls.VersionTLS13,
			ServerName:   "localhost",
		},
		pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}, nil
}

func template() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "localhost", Organization: []string{"rowrelay"}},
		DNSNames:              []string{"localhost"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(30, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}
