package cloudevents_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
)

var shop = cloudevents.Options{Mode: cloudevents.Binary, Source: "/shop"}

func message(payload string, headers map[string]string) sinks.Message {
	return sinks.Message{
		Message:   outbox.Message{ID: "0197a3b4-0000-7abc-8def-0123456789ab", Topic: "order.placed", Key: "customer-7", Payload: []byte(payload), Headers: headers},
		CreatedAt: time.Date(2026, 1, 31, 23, 59, 59, 5e6, time.UTC),
	}
}

func encoder(t *testing.T, binding cloudevents.Binding, options cloudevents.Options) *cloudevents.Encoder {
	t.Helper()
	e, err := cloudevents.New(binding, options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestBinaryModeByProtocol(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		binding cloudevents.Binding
		want    map[string]string
	}{
		"HTTP": {cloudevents.HTTP, map[string]string{
			"ce-specversion": "1.0", "ce-id": "0197a3b4-0000-7abc-8def-0123456789ab", "ce-source": "/shop", "ce-type": "order.placed",
			"ce-subject": "customer-7", "ce-time": "2026-01-31T23:59:59.005Z", "ce-note": "Euro%20%E2%82%AC%20%22%25%22", "Content-Type": "application/json", "trace": "x",
		}},
		"Kafka": {cloudevents.Kafka, map[string]string{
			"ce_specversion": "1.0", "ce_id": "0197a3b4-0000-7abc-8def-0123456789ab", "ce_source": "/shop", "ce_type": "order.placed",
			"ce_subject": "customer-7", "ce_time": "2026-01-31T23:59:59.005Z", "ce_note": `Euro € "%"`, "content-type": "application/json", "trace": "x",
		}},
		"AMQP": {cloudevents.AMQP, map[string]string{
			"cloudEvents:specversion": "1.0", "cloudEvents:id": "0197a3b4-0000-7abc-8def-0123456789ab", "cloudEvents:source": "/shop", "cloudEvents:type": "order.placed",
			"cloudEvents:subject": "customer-7", "cloudEvents:time": "2026-01-31T23:59:59.005Z", "cloudEvents:note": `Euro € "%"`, "content-type": "application/json", "trace": "x",
		}},
	}
	for name, test := range tests {
		made, err := encoder(t, test.binding, shop).Message(message(`{"n":1}`, map[string]string{"trace": "x", "CE_Note": `Euro € "%"`}))
		if err != nil || string(made.Payload) != `{"n":1}` || !maps.Equal(made.Headers, test.want) {
			t.Errorf("%s: %v, payload %s, headers\n%q\nwant\n%q", name, err, made.Payload, made.Headers, test.want)
		}
	}
}

// The official SDK can read events in structured mode.
func TestOfficialSDKReadsStructuredMode(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		payload     []byte
		headers     map[string]string
		contentType string
		member      string // the member with the data
	}{
		"JSON":                    {[]byte(`{"n": 1}`), nil, "application/json", `"data":{`},
		"text":                    {[]byte("héllo"), map[string]string{"content-type": "text/plain"}, "text/plain", `"data":"h`},
		"bytes":                   {[]byte{0, 255}, nil, "application/octet-stream", `"data_base64"`},
		"what isn't JSON at all":  {[]byte("{"), map[string]string{"Content-Type": "application/json"}, "application/json", `"data_base64"`},
		"an empty payload":        {[]byte{}, nil, "application/octet-stream", `"data_base64":""`},
		"text that isn't Unicode": {[]byte("\xff"), map[string]string{"Content-Type": "text/plain"}, "text/plain", `"data_base64"`},
	}
	structured := encoder(t, cloudevents.Kafka, cloudevents.Options{Mode: cloudevents.Structured, Source: "https://shop.example/orders", Type: "com.example.order"})
	for name, test := range tests {
		m := message("", test.headers)
		m.Payload = test.payload
		made, err := structured.Message(m)
		if err != nil || made.Headers["content-type"] != "application/cloudevents+json; charset=UTF-8" || !strings.Contains(string(made.Payload), test.member) {
			t.Errorf("%s: %v, headers %q, %s", name, err, made.Headers, made.Payload)
		}
		var read event.Event
		if err := json.Unmarshal(made.Payload, &read); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := read.Validate(); err != nil || read.ID() != m.ID || read.Source() != "https://shop.example/orders" || read.Type() != "com.example.order" ||
			read.Subject() != "customer-7" || !read.Time().Equal(m.CreatedAt) || read.DataContentType() != test.contentType {
			t.Errorf("%s: the SDK reads %v (%v)", name, read, err)
		}
		if got := strings.ReplaceAll(string(read.Data()), " ", ""); got != strings.ReplaceAll(string(test.payload), " ", "") {
			t.Errorf("%s: the data is %q", name, got)
		}
	}
}

// According to the specification, a type ending in +json is JSON. The Go SDK (2.16)
// doesn't treat it so.
func TestTypesEndingInJSONAreJSON(t *testing.T) {
	t.Parallel()
	made, err := encoder(t, cloudevents.Kafka, cloudevents.Options{Mode: cloudevents.Structured, Source: "/shop"}).Message(
		message("[1]", map[string]string{"Content-Type": "application/hal+json; charset=utf-8"}))
	if err != nil || !strings.Contains(string(made.Payload), `"data":[1]`) || !strings.Contains(string(made.Payload), `"datacontenttype":"application/hal+json; charset=utf-8"`) {
		t.Errorf("%s, %v", made.Payload, err)
	}
}

func TestNullPayloadHasNoData(t *testing.T) {
	t.Parallel()
	m := message("", nil)
	m.Payload = nil
	made, err := encoder(t, cloudevents.Kafka, cloudevents.Options{Mode: cloudevents.Structured, Source: "/shop"}).Message(m)
	if err != nil || strings.Contains(string(made.Payload), "data") {
		t.Errorf("structured: %s, %v", made.Payload, err)
	}
	made, err = encoder(t, cloudevents.Kafka, shop).Message(m)
	if _, typed := made.Headers["content-type"]; err != nil || made.Payload != nil || typed {
		t.Errorf("binary: %v, %q, %v", made.Payload, made.Headers, err)
	}
}

func TestExpiryIsAnExtension(t *testing.T) {
	t.Parallel()
	m := message("{}", nil)
	m.ExpiresAt = time.Date(2026, 2, 1, 1, 0, 0, 0, time.FixedZone("", 3600))
	made, err := encoder(t, cloudevents.HTTP, shop).Message(m)
	if err != nil || made.Headers["ce-expirytime"] != "2026-02-01T00:00:00Z" {
		t.Errorf("%v, headers %q", err, made.Headers)
	}
}

func TestHeadersSetAttributes(t *testing.T) {
	t.Parallel()
	made, err := encoder(t, cloudevents.Kafka, shop).Message(message("{}", map[string]string{
		"ce-id": "own", "ce-source": "urn:x", "ce-type": "own.type", "ce-subject": "s", "ce-time": "2020-01-01T00:00:00+01:00", "ce-dataschema": "https://x.example/s",
	}))
	if err != nil || made.Headers["ce_id"] != "own" || made.Headers["ce_source"] != "urn:x" || made.Headers["ce_type"] != "own.type" ||
		made.Headers["ce_subject"] != "s" || made.Headers["ce_time"] != "2020-01-01T00:00:00+01:00" || made.Headers["ce_dataschema"] != "https://x.example/s" {
		t.Errorf("%q, %v", made.Headers, err)
	}
}

func TestErrorNamesTheInvalidAttribute(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"ce-": "x", "ce-my-name": "x", "ce-data": "x", "ce-datacontenttype": "text/plain", "ce-subject": "", "ce-note": "a\nb", "ce-other": "\xff",
		"ce-specversion": "0.3", "ce-time": "yesterday", "ce-expirytime": "tomorrow", "ce-source": "%zz", "ce-dataschema": "/relative",
	} {
		_, err := encoder(t, cloudevents.HTTP, shop).Message(message("{}", map[string]string{name: value}))
		if err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
			t.Errorf("%s: %q gave %v", name, value, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, options := range []cloudevents.Options{
		{Mode: "loud", Source: "/x"}, {Mode: cloudevents.Binary}, {Mode: cloudevents.Structured, Source: "%zz"}, {Source: "/x"}, {Mode: cloudevents.Off, Type: "x"},
	} {
		if _, err := cloudevents.New(cloudevents.HTTP, options); err == nil {
			t.Errorf("%+v was accepted", options)
		}
	}
}

func TestOffLeavesMessagesUnchanged(t *testing.T) {
	t.Parallel()
	off := encoder(t, cloudevents.HTTP, cloudevents.Options{})
	m := message("x", map[string]string{"ce-my-name": "x"})
	if made, err := off.Message(m); err != nil || !maps.Equal(made.Headers, m.Headers) || string(made.Payload) != "x" {
		t.Errorf("%v, %v", made, err)
	}
}
