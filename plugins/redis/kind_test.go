package main

import (
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, kind(),
		map[string]any{"password": "pa55word", "username": "relay", "tls": "true", "max_length": "1000"},
		map[string]any{"addresses": "one:26379, two:26379", "master_name": "shop", "sentinel_password": "53ntinel", "duplicate_window": "1h"},
		map[string]any{"addresses": "one:6379,two:6379", "cluster": true, "stream": "{topic}.{key}"},
	)
}

func TestSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	registry, err := sinks.NewRegistry(kind())
	check(t, err)
	for _, raw := range []map[string]any{
		{"addresses": "localhost"},
		{"addresses": "redis://relay:secret@localhost:6379"},
		{"addresses": " , "},
		{"addresses": "one:6379,two:6379"},
		{"cluster": true, "master_name": "shop"},
		{"cluster": true, "database": 1},
		{"sentinel_password": "secret"},
		{"username": "relay"},
		{"ca_file": "/no/such/file", "tls": true},
		{"stream": "{nothing}"},
		{"max_length": 1, "max_age": "1h"},
	} {
		if _, err := registry.Make("redis", raw); err == nil {
			t.Errorf("%v were accepted", raw)
		}
	}
}
