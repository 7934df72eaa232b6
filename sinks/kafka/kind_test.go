package kafka_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/sinktest"
)

func registry(t *testing.T) *sinks.Registry {
	t.Helper()
	r, err := sinks.NewRegistry(kafka.Kind())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestKind(t *testing.T) {
	t.Parallel()
	brokers := []any{"a:9092", "b"}
	sinktest.Kind(t, kafka.Kind(),
		map[string]any{"brokers": brokers},
		map[string]any{"brokers": brokers, "sasl": "scram-sha-512", "username": "user", "password": "p4ssword"},
		map[string]any{"brokers": brokers, "schema_registry": "https://registry:8081", "schema_registry_username": "user", "schema_registry_password": "p4ssw0rd"},
		map[string]any{"brokers": brokers, "schema_id": "{header:schema-id}", "schema_message": "1,0"},
		map[string]any{"brokers": brokers, "sasl": "oauthbearer", "token": "t0ken"},
		map[string]any{"brokers": brokers, "sasl": "oauthbearer", "oauth2_token_url": "https://id.example/token", "oauth2_client_id": "relay", "oauth2_client_secret": "cl1ent"},
	)
}

// TestFromURL: sinks from URLs deliver to the expected topics.
func TestFromURL(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "orders", "all"))
	address := cluster.ListenAddrs()[0]
	for rawURL, want := range map[string]string{
		"kafka://" + address:       "orders",
		"kafka://" + address + "/": "orders",
		"kafka://nobody.invalid:1," + address + "/all?compression=zstd":         "all",
		"kafka://" + address + "/all?max_message_bytes=2MiB&create_topics=true": "all",
		"kafka://" + address + "/%7Btopic%7D":                                   "orders",
	} {
		sink, err := registry(t).FromURL(rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		m := message("orders", "a", "")
		if o := sink.Send(t.Context(), []sinks.Message{m})[0]; o.Result != sinks.Delivered {
			t.Errorf("%s: %+v", rawURL, o)
		}
		got := records(t, cluster.ListenAddrs(), want, 1)
		if id := headerOf(got[len(got)-1], "rowrelay-message-id"); want == "orders" && id == "" {
			t.Errorf("%s: the topic %s has no such message", rawURL, want)
		}
		if got := sink.(sinks.Addressing).Address("orders"); got != (sinks.Address{System: "kafka", Name: want}) {
			t.Errorf("%s: the address is %+v", rawURL, got)
		}
		if err := sink.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestInvalidURLs(t *testing.T) {
	t.Parallel()
	for rawURL, want := range map[string]string{
		"kafka:":                    "the host is missing",
		"kafka:///topic":            "the host is missing",
		"kafka://h/a/b":             "setting topic: may contain only letters",
		"kafka://h?topic=t":         "topic can't be in the query",
		"kafka://h?password=s3cret": "password can't be in the query",
		"kafka://h?schema_registry=http://r&schema_registry_password=s3cret": "schema_registry_password can't be in the query",
		"kafka://h?schema_registry=http://r&schema_id=1":                     "are mutually exclusive",
		"kafka://h?schema_id=1&schema_subject=a":                             "need a schema registry",
		"kafka://h?schema_registry=http://r&schema_registry_username=u":      "needs a user name and a password",
		"kafka://h?schema_id=1&cloudevents=structured&cloudevents_source=/":  "structured CloudEvents have no schema",
		"kafka://h?nothing=s3cret":                                           "setting nothing: is not known",
		"kafka://h?compression=zip":                                          "setting compression: must be one of",
		"kafka://h?concurrency=1&concurrency=2":                              "the setting concurrency is given twice",
		"kafka://u:s3cret@h?sasl=gssapi":                                     "setting sasl: must be one of",
		"kafka://u@h":                                                        "needs a user name and a password",
		"kafka://h?sasl=plain":                                               "needs a user name and a password",
		"kafka://h,:9092":                                                    "setting brokers: must be addresses",
	} {
		if _, err := registry(t).FromURL(rawURL); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("FromURL(%q): %v, want %s", rawURL, err, want)
		}
	}
}

func TestInvalidSettings(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		value any
		want  string
	}{
		{"brokers", []any{}, "setting brokers: must be addresses such as host:9092: the brokers are missing"},
		{"brokers", []any{"kafka://a"}, "setting brokers: must be addresses"},
		{"topic", "{nothing}", "setting topic: has an unknown placeholder"},
		{"topic", "a b", "setting topic: may contain only letters"},
		{"topic", "..", "setting topic: must not be \".\" or \"..\""},
		{"timestamp", "never", "setting timestamp: must be one of sent, created"},
		{"max_message_bytes", "1023", "setting max_message_bytes: must be at least 1KiB"},
		{"concurrency", 0, "setting concurrency: must be at least 1"},
		{"unknown_topic", "drop", "setting unknown_topic: must be one of wait, park"},
		{"username", "user", "has a user name or password, but no SASL mechanism"},
		{"password", "s3cret", "has a user name or password, but no SASL mechanism"},
		{"ca_file", filepath.Join("no", "such.pem"), "read the certificates to trust: open no"},
		{"ca_file", "README.md", "read the certificates to trust: README.md has no certificate in PEM form"},
		{"cert_file", "README.md", "belong together"},
		{"schema_id", "one", "setting schema_id: must be a number, or a template"},
		{"schema_id", "4294967296", "setting schema_id: must be a number"},
		{"schema_message", "1,", "setting schema_message: must be a number or several numbers, such as 0 or 1,0"},
		{"schema_message", "1", "need its id or a schema registry"},
		{"schema_subject", "{nothing}", "setting schema_subject: has an unknown placeholder"},
		{"schema_registry", "registry:8081", "setting schema_registry: must be a URL"},
		{"schema_registry", "https://user:s3cret@registry", "setting schema_registry: must not contain a login"},
		{"schema_registry", "https://registry/a b", "setting schema_registry: must be a URL"},
		{"schema_registry_password", "s3cret", "need its id or a schema registry"},
	} {
		settings := map[string]any{"brokers": []any{"a"}}
		settings[test.name] = test.value
		if _, err := registry(t).Make("kafka", settings); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s = %v: %v, want %s", test.name, test.value, err, test.want)
		}
	}
}

// TestTLSFiles: with the settings for certificate files, the real broker accepts the
// sink's client certificate.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	at, topic := logins(t), newTopic(t, []string{broker(t)}, 1)
	folder := at.Get("folder")
	settings := map[string]any{
		"brokers": []any{at.Get("mtls")}, "topic": topic, "server_name": "localhost",
		"ca_file": filepath.Join(folder, "ca.pem"), "cert_file": filepath.Join(folder, "client.pem"), "key_file": filepath.Join(folder, "client.key"),
	}
	sink, err := registry(t).Make("kafka", settings)
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close(t.Context())
	if o := sink.Send(t.Context(), []sinks.Message{message("any", "a", "")})[0]; o.Result != sinks.Delivered {
		t.Errorf("outcome %+v", o)
	}
}
