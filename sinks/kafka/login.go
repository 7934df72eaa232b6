package kafka

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// mechanism is a way to log in by SASL.
type mechanism struct {
	name  string
	begin func() step
}

// step takes what the broker said, nothing at first, and returns what to say to
// it, or that the login is complete.
type step func(said []byte) (say []byte, done bool, err error)

// mechanisms are by the names of the settings.
var mechanisms = map[string]func(user, password string) *mechanism{
	"plain":         plain,
	"scram-sha-256": func(user, password string) *mechanism { return scram("SCRAM-SHA-256", sha256.New, user, password) },
	"scram-sha-512": func(user, password string) *mechanism { return scram("SCRAM-SHA-512", sha512.New, user, password) },
}

func plain(user, password string) *mechanism {
	return &mechanism{name: "PLAIN", begin: func() step {
		spoken := false
		return func([]byte) ([]byte, bool, error) {
			done := spoken
			spoken = true
			return []byte("\x00" + user + "\x00" + password), done, nil
		}
	}}
}

// scram is RFC 5802's, with the password as it is: Kafka doesn't normalise it.
func scram(name string, newHash func() hash.Hash, user, password string) *mechanism {
	return &mechanism{name: name, begin: func() step {
		c := &conversation{newHash: newHash, user: user, password: password, nonce: rand.Text()}
		c.next = c.first
		return func(said []byte) ([]byte, bool, error) { return c.next(said) }
	}}
}

// conversation is one login by SCRAM.
type conversation struct {
	newHash              func() hash.Hash
	user, password       string
	nonce, bare, proofOf string
	signature            []byte
	next                 step
}

func (c *conversation) first([]byte) ([]byte, bool, error) {
	c.bare = "n=" + strings.NewReplacer("=", "=3D", ",", "=2C").Replace(c.user) + ",r=" + c.nonce
	c.next = c.second
	return []byte("n,," + c.bare), false, nil
}

var errScram = errors.New("the broker's answer is not one of SCRAM")

func (c *conversation) second(said []byte) ([]byte, bool, error) {
	fields := scramFields(said)
	salt, err := base64.StdEncoding.DecodeString(fields["s"])
	rounds, wrong := strconv.Atoi(fields["i"])
	const fewest, most = 4096, 1 << 20 // what the RFC asks for, and what takes about a second
	if err != nil || wrong != nil || rounds < fewest || rounds > most || !strings.HasPrefix(fields["r"], c.nonce) {
		return nil, false, errScram
	}
	salted, err := pbkdf2.Key(c.newHash, c.password, salt, rounds, c.newHash().Size())
	if err != nil {
		return nil, false, fmt.Errorf("derive a key of the password: %w", err)
	}
	final := "c=biws,r=" + fields["r"]
	c.proofOf = c.bare + "," + string(said) + "," + final
	c.signature = c.mac(c.mac(salted, "Server Key"), c.proofOf)
	c.next = c.third
	return []byte(final + ",p=" + base64.StdEncoding.EncodeToString(c.proof(salted))), false, nil
}

func (c *conversation) proof(salted []byte) []byte {
	client := c.mac(salted, "Client Key")
	stored := c.newHash()
	stored.Write(client)
	proof := c.mac(stored.Sum(nil), c.proofOf)
	for i := range proof {
		proof[i] ^= client[i]
	}
	return proof
}

// third makes sure that the broker knows the password too.
func (c *conversation) third(said []byte) ([]byte, bool, error) {
	signature, err := base64.StdEncoding.DecodeString(scramFields(said)["v"])
	if err != nil || !hmac.Equal(signature, c.signature) {
		return nil, false, errors.New("the broker doesn't prove that it knows the password")
	}
	return nil, true, nil
}

func (c *conversation) mac(key []byte, text string) []byte {
	mac := hmac.New(c.newHash, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func scramFields(text []byte) map[string]string {
	fields := map[string]string{}
	for field := range bytes.SplitSeq(text, []byte(",")) {
		if name, value, found := strings.Cut(string(field), "="); found {
			fields[name] = value
		}
	}
	return fields
}
