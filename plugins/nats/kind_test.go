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
	sinktest.Kind(t, kind(),
		map[string]any{"stream": "ORDERS", "username": "relay", "password": "pa55word"},
		map[string]any{"stream": "ORDERS", "token": "t0ken-text", "servers": "nats://one:4222, tls://two:4222", "subject": "orders.{key}"},
		map[string]any{"stream": "ORDERS", "nkey_file": seedFile(t), "create_subjects": "orders.>, invoices.*"},
	)
}

func seedFile(t testing.TB) string {
	t.Helper()
	user, err := nkeys.CreateUser()
	check(t, err)
	seed, err := user.Seed()
	check(t, err)
	path := filepath.Join(t.TempDir(), "user.nk")
	check(t, os.WriteFile(path, seed, 0o600))
	return path
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
