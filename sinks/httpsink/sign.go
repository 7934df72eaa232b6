package httpsink

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// The headers of a signed request according to Standard Webhooks 1.0.
const (
	headerSignedID  = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// The prefixes of secrets, and the minimum and maximum length of a shared secret in
// bytes (Standard Webhooks 1.0, "Signature scheme").
const (
	sharedPrefix  = "whsec_"
	privatePrefix = "whsk_"
	leastShared   = 24
	mostShared    = 64
)

// signature signs content and returns the signature, prefixed with its version.
type signature func(content []byte) string

// parseSecrets parses signing secrets separated by blanks. The text of an error
// completes the sentence "the signing secret …" and doesn't contain the secret.
func parseSecrets(text settings.Secret) (signatures []signature, err error) {
	for _, secret := range strings.Fields(text.Reveal()) {
		made, err := parseSecret(secret)
		if err != nil {
			return nil, err
		}
		signatures = append(signatures, made)
	}
	return signatures, nil
}

func checkSigning(text settings.Secret) error {
	_, err := parseSecrets(text)
	return err
}

func parseSecret(secret string) (signature, error) {
	if encoded, ok := strings.CutPrefix(secret, privatePrefix); ok {
		return byPrivateKey(encoded)
	}
	encoded, ok := strings.CutPrefix(secret, sharedPrefix)
	if !ok {
		return nil, errors.New("must begin with whsec_ (shared) or whsk_ (an ed25519 private key)")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) < leastShared || len(key) > mostShared {
		return nil, fmt.Errorf("must have %d to %d bytes in base64 after whsec_", leastShared, mostShared)
	}
	return func(content []byte) string {
		mac := hmac.New(sha256.New, key)
		mac.Write(content)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}, nil
}

// byPrivateKey returns the signature function of an ed25519 private key or its seed.
func byPrivateKey(encoded string) (signature, error) {
	key, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case err == nil && len(key) == ed25519.SeedSize:
		key = ed25519.NewKeyFromSeed(key)
	case err != nil || len(key) != ed25519.PrivateKeySize:
		return nil, errors.New("must have an ed25519 private key of 64 bytes, or its seed of 32, in base64 after whsk_")
	case !bytes.Equal(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key):
		return nil, errors.New("has an ed25519 private key whose public half doesn't belong to it")
	}
	return func(content []byte) string {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, content))
	}, nil
}

// sign signs a request with every secret, so that a receiver that knows one of the
// secrets accepts the request. The timestamp is the time of this attempt, because
// receivers refuse old timestamps.
func (s *Sink) sign(header http.Header, id string, body []byte) {
	signatures := s.secrets.Load().signatures
	if len(signatures) == 0 {
		return
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	content := append([]byte(id+"."+now+"."), body...)
	signed := make([]string, len(signatures))
	for i, signature := range signatures {
		signed[i] = signature(content)
	}
	header.Set(headerSignedID, id)
	header.Set(headerTimestamp, now)
	header.Set(headerSignature, strings.Join(signed, " "))
}
