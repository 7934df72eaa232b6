package rabbitmq_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func registry(t testing.TB) *sinks.Registry {
	t.Helper()
	r, err := sinks.NewRegistry(rabbitmq.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKind(t *testing.T) {
	t.Parallel()
	sinktest.Kind(t, rabbitmq.Kind(),
		map[string]any{"hosts": []any{"one:5672", "two"}, "username": "user", "password": "p4ssword", "exchange": "orders"},
		map[string]any{
			"hosts": []any{"[::1]:5671"}, "tls": true, "routing_key": "{topic}.{header:country}.{{}}", "mandatory": false, "expiration": "1h",
			"declare_queue": "q", "declare_exchange": "topic", "exchange": "orders", "declare_binding_key": "#",
		},
	)
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"amqp://host", "amqps://host/", "amqp://u:p%2Fw@one,two:5673,three:5674/%2Fv%2Fhost?exchange=orders&routing_key={topic}&connections=4&mandatory=false",
		"amqp://[::1]:5672/?declare_queue=q", "amqp://one,two",
	} {
		sink, err := registry(t).FromURL(good)
		if err != nil {
			t.Errorf("%s: %v", good, err)
			continue
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]sinks.Address{
		"amqp://host": {System: "rabbitmq", Name: "orders", RoutingKey: "orders"},
		"amqp://host?exchange=shop&routing_key=new.{topic}": {System: "rabbitmq", Name: "shop:new.orders", RoutingKey: "new.orders"},
		"amqp://host?exchange={topic}&routing_key={key}":    {System: "rabbitmq", Name: "orders:{key}", RoutingKey: "{key}"},
	} {
		sink, err := registry(t).FromURL(rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		if got := sink.(sinks.Addressing).Address("orders"); got != want {
			t.Errorf("%s: %+v, want %+v", rawURL, got, want)
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestInvalidURLs(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"amqp:":                                    "it must have the form amqp://",
		"amqp:///?exchange=s3cret":                 "it must have the form amqp://",
		"amqp://u:s3cret@h/#x":                     "with %23 for a #",
		"amqp://u:s3cret@h:0/":                     "setting hosts: has \"h:0\"",
		"amqp://u:s3cret@one,/":                    "setting hosts: has \"\"",
		"amqp://u:s3cret@h/?exchange=a&exchange=b": "the setting exchange is given twice",
		"amqp://h/?password=s3cret":                "password can't be in the query",
		"amqp://h/?no=x":                           "setting no: is not known",
		"amqp://h/?exchange=%zz":                   "must be settings like",
		"amqp://h/?connections=17":                 "setting connections: must be at most 16",
		"amqp://h/?exchange={topic":                "setting exchange: has an unknown placeholder",
		"amqp://h/?ca_file=x":                      "need TLS",
	} {
		if _, err := registry(t).FromURL(rawURL); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("FromURL(%q): %v, want %s", rawURL, err, want)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	tests := []struct {
		name  string
		value any
		want  string
	}{
		{"hosts", []any{}, "setting hosts: is empty"},
		{"hosts", []any{"a:b:c"}, "setting hosts: has \"a:b:c\""},
		{"routing_key", "a}", "setting routing_key: has an unknown placeholder"},
		{"routing_key", "{payload}", "setting routing_key: has an unknown placeholder"},
		{"routing_key", "{header:}", "setting routing_key: has an unknown placeholder"},
		{"content_type", long, "setting content_type: has 256 bytes"},
		{"window", 1001, "setting window: must be at most 1000"},
		{"heartbeat", "1s", "setting heartbeat: must be at least 2s"},
		{"expiration", "1500us", "the expiration must be a whole number of milliseconds"},
		{"declare_exchange", "x", "setting declare_exchange: must be one of"},
		{"declare_exchange", "topic", "only if its name is set"},
		{"declare_binding_key", "#", "a binding needs the name of a queue"},
		{"declare_queue", long, "setting declare_queue: has 256 bytes"},
		{"login_by_certificate", true, "needs TLS with a client certificate"},
	}
	for _, test := range tests {
		_, err := registry(t).Make("rabbitmq", map[string]any{"hosts": []any{"h"}, test.name: test.value})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s = %v: %v, want %s", test.name, test.value, err, test.want)
		}
	}
}

func TestDeclaredQueueNeedsABinding(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ exchange, kind, key, want string }{
		{exchange: ""},
		{exchange: "e", kind: "fanout"},
		{exchange: "e", kind: "headers"},
		{exchange: "e", kind: "topic", key: "#"},
		{exchange: "e", key: "orders"},
		{exchange: "e", kind: "topic", want: "the queue \"q\" would receive nothing"},
		{exchange: "e", kind: "direct", want: "the queue \"q\" would receive nothing"},
		{exchange: "e", want: "the queue \"q\" would receive nothing"},
		{exchange: "e.{topic}", key: "#", want: "all messages are published to the same exchange"},
		{exchange: "{header:exchange}", want: "all messages are published to the same exchange"},
	} {
		set := map[string]any{"hosts": []any{"h"}, "declare_queue": "q"}
		for name, value := range map[string]string{"exchange": test.exchange, "declare_exchange": test.kind, "declare_binding_key": test.key} {
			if value != "" {
				set[name] = value
			}
		}
		_, err := registry(t).Make("rabbitmq", set)
		if text := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(text, test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

func TestInvalidTLSFiles(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, settings := range map[string]map[string]any{
		"read the certificates to trust: open":  {"ca_file": missing},
		"has no certificate in PEM form":        {"ca_file": empty},
		"belong together":                       {"key_file": empty},
		"read the client's certificate and key": {"cert_file": empty, "key_file": empty},
	} {
		settings["hosts"], settings["tls"] = []any{"h"}, true
		if _, err := registry(t).Make("rabbitmq", settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", settings, err, want)
		}
	}
}
