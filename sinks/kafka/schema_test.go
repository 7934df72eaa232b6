package kafka_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// TestSchemaFrames compares values with those that the serializers of confluent-kafka 2.16 for Python write, with the
// same schemas and data. The .proto file has the messages Address and Order, and in Order the messages Line and Note,
// and in Note the message Author.
func TestSchemaFrames(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	for i, test := range []struct{ name, id, position, payload, want string }{
		{"JSON", "7", "", hex.EncodeToString([]byte(`{"id":"7"}`)), "00000000077b226964223a2237227d"},
		{"Avro", "{header:schema-id}", "", "d804", "0000000002d804"},
		{"Address", "3", "0", "0a03556c6d", "0000000003000a03556c6d"},
		{"Order", "3", "{header:message}", "0a0137", "000000000302020a0137"},
		{"Order.Line", "3", "1,0", "0a0178", "00000000030402000a0178"},
		{"Order.Note.Author", "3", "1,1,0", "0a0141", "0000000003060202000a0141"},
		{"empty", "1", "", "", "0000000001"},
	} {
		m := message("t", "k", "")
		m.Payload, _ = hex.DecodeString(test.payload)
		m.Headers = map[string]string{"schema-id": "2", "message": "1"}
		sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Schema: kafka.SchemaOptions{ID: test.id, Message: test.position}})
		wantSummary(t, test.name, sink.Send(t.Context(), []sinks.Message{m}), "D")
		if got := records(t, cluster.ListenAddrs(), "t", i+1)[i]; hex.EncodeToString(got.Value) != test.want {
			t.Errorf("%s: the value is %x, want %s", test.name, got.Value, test.want)
		}
	}
}

// A NULL payload stays a tombstone, and a binary CloudEvent's data get a frame.
func TestSchemaFramesOfTombstonesAndEvents(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Schema: kafka.SchemaOptions{ID: "1"}, CloudEvents: cloudevents.Options{Mode: cloudevents.Binary, Source: "/shop"}})
	batch := batchOf("t", "a", "b")
	batch[0].Payload = nil
	wantSummary(t, "both", sink.Send(t.Context(), batch), "D")
	got := records(t, cluster.ListenAddrs(), "t", 2)
	if got[0].Value != nil || string(got[1].Value) != "\x00\x00\x00\x00\x011" || headerOf(got[1], "ce_source") != "/shop" {
		t.Errorf("values %q and %q", got[0].Value, got[1].Value)
	}
}

// A message without a valid id is rejected, and holds up only its key.
func TestMessagesWithoutASchemaID(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Schema: kafka.SchemaOptions{ID: "{header:schema-id}", Message: "{header:message}"}})
	batch := batchOf("t", "a", "b", "c", "d", "b")
	for i := range batch {
		batch[i].Headers = map[string]string{"schema-id": "1", "message": "0"}
	}
	delete(batch[1].Headers, "schema-id")
	batch[2].Headers["schema-id"] = "one"
	batch[3].Headers["message"] = "0,"
	outcomes := sink.Send(t.Context(), batch)
	wantSummary(t, "mixed", outcomes, "DXXXB")
	for i, want := range map[int]string{
		1: "the id of the schema needs the message's header schema-id, which is missing", 2: "the id of the schema is not a number",
		3: "the position of the Protobuf message must be a number or several numbers, such as 0 or 1,0",
	} {
		if o := outcomes[i]; o.Reason != sinks.ReasonInvalid || o.Detail != want {
			t.Errorf("message %d: %s %q, want %q", i, o.Reason, o.Detail, want)
		}
	}
}

// TestSchemasOfARegistry: a real registry has the ids.
func TestSchemasOfARegistry(t *testing.T) {
	t.Parallel()
	at, name := server(t, "ROWRELAY_TEST_REGISTRY"), fmt.Sprintf("test-%d-", time.Now().UnixNano())
	const object, proto = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`, `syntax = "proto3"; message Order { string id = 1; }`
	ids := map[string]int{
		"json": register(t, at, name+"json-value", "JSON", object), "proto": register(t, at, name+"proto-value", "PROTOBUF", proto),
		"avro": register(t, at, name+"avro-value", "AVRO", `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`),
	}
	cluster := fake(t, kfake.SeedTopics(1, name+"json", name+"proto", name+"avro", name+"none"))
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Topic: name + "{topic}", Schema: kafka.SchemaOptions{Registry: at + "/"}})
	if err := sink.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	batch := []sinks.Message{
		message("json", "a", `{"id":"7"}`), message("proto", "b", "\x0a\x017"), message("avro", "c", "\x027"), message("none", "d", "{}"),
		message("json", "e", `{"id":`), message("json", "e", `{}`),
	}
	outcomes := sink.Send(t.Context(), batch)
	wantSummary(t, "mixed", outcomes, "DDPPXB")
	for i, want := range map[int]string{2: "it is an Avro schema", 3: "look up the schema of " + name + "none-value: the registry answers 404", 4: "the payload is not JSON"} {
		if !strings.Contains(outcomes[i].Detail, want) {
			t.Errorf("message %d: %+v, want %q", i, outcomes[i], want)
		}
	}
	if got, want := records(t, cluster.ListenAddrs(), name+"json", 1)[0].Value, fmt.Sprintf("\x00\x00\x00%c%c%s", ids["json"]/256, ids["json"]%256, batch[0].Payload); string(got) != want {
		t.Errorf("JSON: %q, want %q", got, want)
	}
	if got, want := records(t, cluster.ListenAddrs(), name+"proto", 1)[0].Value, fmt.Sprintf("\x00\x00\x00%c%c\x00%s", ids["proto"]/256, ids["proto"]%256, batch[1].Payload); string(got) != want {
		t.Errorf("Protobuf: %q, want %q", got, want)
	}

	newer := register(t, at, name+"json-value", "JSON", strings.Replace(object, "object", "object\",\"title\":\"newer", 1))
	for _, age := range []time.Duration{0, time.Hour} {
		kafka.AgeSchemas(sink, age)
		wantSummary(t, "after an update", sink.Send(t.Context(), []sinks.Message{message("json", "a", "{}")}), "D")
	}
	got := records(t, cluster.ListenAddrs(), name+"json", 3)
	if id := int(got[1].Value[3])*256 + int(got[1].Value[4]); id != ids["json"] {
		t.Errorf("the id was looked up again too early: %d", id)
	}
	if id := int(got[2].Value[3])*256 + int(got[2].Value[4]); id != newer || newer == ids["json"] {
		t.Errorf("id %d, want that of the newer version, %d", id, newer)
	}
}

// register adds a version to a subject of a registry, and returns its id.
func register(t *testing.T, at, subject, format, text string) int {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"schemaType": format, "schema": text})
	response, err := http.Post(at+"/subjects/"+subject+"/versions", "application/vnd.schemaregistry.v1+json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var answer struct{ ID int }
	if all, err := io.ReadAll(response.Body); err != nil || json.Unmarshal(all, &answer) != nil || answer.ID == 0 || answer.ID > 0xffff {
		t.Fatalf("register %s: %s %s, %v", subject, response.Status, all, err)
	}
	return answer.ID
}

// fakeRegistry answers each request with the status and body that answer has.
func fakeRegistry(t *testing.T) (at string, answer *atomic.Pointer[string], requests *atomic.Int64) {
	t.Helper()
	answer, requests = new(atomic.Pointer[string]), new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		status, text := 200, ""
		fmt.Sscanf(*answer.Load(), "%d", &status)
		_, text, _ = strings.Cut(*answer.Load(), " ")
		if user, password, _ := r.BasicAuth(); user != "user" || password != "s3cret" {
			status, text = 401, `{"message":"who are you, with s3cret?"}`
		}
		if strings.Contains(r.URL.EscapedPath(), "/subjects/a%2Fmissing-value/") {
			status, text = 404, `{"error_code":40401,"message":"not found"}`
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	return s.URL, answer, requests
}

// TestRegistryErrors: an error of the registry makes the sink unavailable if no schema is known, or if all messages have
// the same subject. Otherwise it postpones messages. Schemas that are known stay in use.
func TestRegistryErrors(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "known", "new"))
	for _, test := range []struct {
		answer           string
		reason           sinks.Reason
		alone, afterward string // the letters of outcomes: of one subject; of several; of a new subject after another was found
	}{
		{"500 {}", sinks.ReasonConnection, "UU", "P"},
		{"429 {}", sinks.ReasonThrottled, "UU", "P"},
		{"401 {}", sinks.ReasonAuth, "UU", "P"},
		{"403 {}", sinks.ReasonAuth, "UP", "P"},
		{"404 {}", sinks.ReasonConfig, "UP", "P"},
		{"200 <html>", sinks.ReasonConfig, "UU", "P"},
		{`200 {"id":5,"schemaType":"THRIFT"}`, sinks.ReasonConfig, "UP", "P"},
		{`200 {"id":5}`, sinks.ReasonConfig, "UP", "P"},
	} {
		at, answer, _ := fakeRegistry(t)
		answer.Store(&test.answer)
		schema := kafka.SchemaOptions{Registry: at, Username: "user", Password: "s3cret"}
		several := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Schema: schema})
		schema.Subject = "one"
		single := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Schema: schema})
		if err := single.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "look up the schema of one") {
			t.Errorf("%s: Open: %v", test.answer, err)
		}
		got := append(single.Send(t.Context(), []sinks.Message{message("known", "a", "{}")}), several.Send(t.Context(), []sinks.Message{message("known", "a", "{}")})...)
		if summary(got) != test.alone || got[0].Reason != test.reason {
			t.Errorf("%s: %s, %+v", test.answer, summary(got), got)
		}

		fine := `200 {"id":5,"schemaType":"JSON"}`
		answer.Store(&fine)
		if err := several.Open(t.Context()); err != nil { // ends the pauses
			t.Error(err)
		}
		wantSummary(t, test.answer+", then a schema", several.Send(t.Context(), []sinks.Message{message("known", "a", "{}")}), "D")
		answer.Store(&test.answer)
		wantSummary(t, test.answer+", then a new subject", several.Send(t.Context(), []sinks.Message{message("known", "a", "{}"), message("new", "b", "{}")}), "D"+test.afterward)
	}
}

// While the registry doesn't answer, a schema is used that is older than it should be, and the registry is not asked for
// each message.
func TestOldSchemasAreUsedDuringAnOutage(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "known"))
	at, answer, requests := fakeRegistry(t)
	fine, down := `200 {"id":5,"schemaType":"JSON"}`, "503"
	answer.Store(&fine)
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Topic: "known", Schema: kafka.SchemaOptions{Registry: at, Username: "user", Password: "s3cret"}})
	send := func(what string, want string) {
		t.Helper()
		wantSummary(t, what, sink.Send(t.Context(), batchOf("any", "a", "b", "a")), want)
	}
	send("before", "D")
	answer.Store(&down)
	kafka.AgeSchemas(sink, time.Hour)
	for range 3 {
		send("during", "D")
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests, want one before the outage and one in it", n)
	}
	if err := sink.Open(t.Context()); err != nil {
		t.Errorf("Open with a known schema: %v", err)
	}
}

// TestRegistryHidesThePassword: neither outcomes nor errors contain the password that an answer repeats.
func TestRegistryHidesThePassword(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	at, answer, _ := fakeRegistry(t)
	said := `403 {"message":"not you, s3cret"}`
	answer.Store(&said)
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Topic: "t", Schema: kafka.SchemaOptions{Registry: at, Username: "user", Password: "s3cret"}})
	err := sink.Open(t.Context())
	o := sink.Send(t.Context(), batchOf("t", "a"))[0]
	if err == nil || !strings.Contains(err.Error(), "403 not you, [secret]") || !strings.Contains(o.Detail, "403 not you, [secret]") {
		t.Errorf("%v; %+v", err, o)
	}
}

// TestRegistryWithTLS: the settings for certificate files apply to the registry. The name that the brokers' certificates
// must have does not.
func TestRegistryWithTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":5,"schemaType":"JSON"}`)
	}))
	t.Cleanup(s.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(s.Certificate())
	for name, config := range map[string]*tls.Config{"trusted": {RootCAs: trusted, ServerName: "the-brokers"}, "not trusted": {RootCAs: x509.NewCertPool()}} {
		sink := newSink(t, kafka.Options{Brokers: []string{"127.0.0.1:1"}, Topic: "t", TLS: config, Schema: kafka.SchemaOptions{Registry: s.URL}})
		if err := kafka.LookUp(t.Context(), sink, "t-value"); (err == nil) != (name == "trusted") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSubjectsAreEscaped: the template's result may have any character.
func TestSubjectsAreEscaped(t *testing.T) {
	t.Parallel()
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	at, answer, _ := fakeRegistry(t)
	fine := `200 {"id":5,"schemaType":"JSON"}`
	answer.Store(&fine)
	sink := newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Schema: kafka.SchemaOptions{Registry: at, Username: "user", Password: "s3cret", Subject: "{header:type}-value"}})
	batch := batchOf("t", "a", "b", "c")
	batch[0].Headers, batch[1].Headers = map[string]string{"type": "a/missing"}, map[string]string{"type": "a/b ü?"}
	wantSummary(t, "escaped", sink.Send(t.Context(), batch), "PDX")
}

// TestTakeoverWhileTheRegistryIsDown: a relay that takes over can't make the records of a planned batch. It finds out
// whether the broker has the batch.
func TestTakeoverWhileTheRegistryIsDown(t *testing.T) {
	t.Parallel()
	addresses := []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	at, answer, _ := fakeRegistry(t)
	fine, down := `200 {"id":5,"schemaType":"JSON"}`, "503"
	options := kafka.Options{Brokers: addresses, Schema: kafka.SchemaOptions{Registry: at, Username: "user", Password: "s3cret"}}
	answer.Store(&fine)
	dead := idempotent(t, options)
	sent := planned(t, dead, batchOf(topic, "a", "b"))
	wantSummary(t, "before", dead.Send(t.Context(), sent), "D")
	unsent := planned(t, dead, batchOf(topic, "a", "b"))
	answer.Store(&down)
	next := idempotent(t, options)
	if err := next.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, "a batch that was sent", next.Send(t.Context(), sent), "D")
	wantSummary(t, "a batch that was not sent", next.Send(t.Context(), unsent), "B")
	_, outcomes := next.Plan(t.Context(), unsent)
	wantSummary(t, "its next plan", outcomes, "U")
	answer.Store(&fine)
	if err := next.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantSummary(t, "after the outage", next.Send(t.Context(), planned(t, next, unsent)), "D")
	wantOnce(t, addresses, topic, append(sent, unsent...))
}

// A renewed sink uses the new password of the schema registry, also after the registry has refused the old one.
func TestRenewedPasswordOfTheRegistry(t *testing.T) {
	t.Parallel()
	var valid atomic.Value
	valid.Store("one")
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"id":7,"schemaType":"JSON"}`)
	}))
	t.Cleanup(registry.Close)
	cluster := fake(t, kfake.SeedTopics(1, "t"))
	made := func(password settings.Secret) *kafka.Sink {
		return newSink(t, kafka.Options{Brokers: cluster.ListenAddrs(), Topic: "t", Schema: kafka.SchemaOptions{Registry: registry.URL, Username: "relay", Password: password}})
	}
	sink := made("one")
	wantSummary(t, "at first", sink.Send(t.Context(), batchOf("t", "a")), "D")
	valid.Store("two")
	kafka.AgeSchemas(sink, time.Hour)
	_ = sink.Send(t.Context(), batchOf("t", "a"))
	sink.Renew(made("two"))
	if err := sink.Open(t.Context()); err != nil {
		t.Errorf("renewed: %v", err)
	}
	kafka.AgeSchemas(sink, time.Hour)
	wantSummary(t, "renewed", sink.Send(t.Context(), batchOf("t", "a")), "D")
}
