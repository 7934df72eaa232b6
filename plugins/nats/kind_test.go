package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestKind(t *testing.T) {
	t.Parallel()
	seed, _ := seedFile(t)
	sinktest.Kind(t, kind(),
		map[string]any{"stream": "ORDERS", "username": "relay", "password": "pa55word"},
		map[string]any{"stream": "ORDERS", "token": "t0ken-text", "servers": "nats://one:4222, tls://two:4222", "subject": "orders.{key}"},
		map[string]any{"stream": "ORDERS", "nkey_file": seed, "create_subjects": "orders.>, invoices.*"},
	)
}

// seedFile writes the seed of a new nkey to a file, and returns the file and the public key.
func seedFile(t testing.TB) (file, public string) {
	t.Helper()
	user, err := nkeys.CreateUser()
	check(t, err)
	seed, err := user.Seed()
	check(t, err)
	public, err = user.PublicKey()
	check(t, err)
	file = filepath.Join(t.TempDir(), "user.nk")
	check(t, os.WriteFile(file, seed, 0o600))
	return file, public
}

func TestSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(kind())
	check(t, err)
	for _, changed := range []map[string]any{
		{"servers": "localhost:4222"},
		{"servers": "nats://relay:secret@localhost"},
		{"servers": " , "},
		{"stream": "ORDERS.*"},
		{"subject": "orders.>"},
		{"subject": "{nothing}"},
		{"password": "without a user"},
		{"token": "t", "username": "u"},
		{"credentials_file": "/no/such/file"},
		{"nkey_file": "/no/such/file"},
		{"cert_file": "/no/such/file"},
		{"create_replicas": "6"},
	} {
		raw := map[string]any{"stream": "ORDERS"}
		for name, value := range changed {
			raw[name] = value
		}
		if _, err := registry.Make("nats", raw); err == nil {
			t.Errorf("%v were accepted", changed)
		}
	}
}
