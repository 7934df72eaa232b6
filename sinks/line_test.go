package sinks_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

func TestWriteLine(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 3, 1, 13, 0, 0, 5000, time.FixedZone("", 3600))
	full := sinks.Message{
		Message: outbox.Message{
			ID: "0195", Topic: "orders", Key: "k", Payload: []byte("<a&b>\n\"é\""),
			Headers: map[string]string{"b": "2", "a": "ü"}, AvailableAt: created, ExpiresAt: created, Priority: -3,
		},
		Attempt: 2, Sequence: 7, CreatedAt: created,
	}
	tests := []struct {
		name string
		m    sinks.Message
		want string
	}{
		{"everything", full, `{"message_id":"0195","topic":"orders","key":"k","payload":"<a&b>\n\"é\"","headers":{"a":"ü","b":"2"},` +
			`"available_at":"2026-03-01T12:00:00.000005Z","expires_at":"2026-03-01T12:00:00.000005Z","priority":-3,"attempt":2,"sequence":7,"created_at":"2026-03-01T12:00:00.000005Z"}`},
		{"null", message(nil), `{"topic":"t","payload":null}`},
		{"empty", message([]byte{}), `{"topic":"t","payload":""}`},
		{"binary", message([]byte{0xff, 0}), `{"topic":"t","payload_base64":"/wA="}`},
	}
	for _, test := range tests {
		var buffer bytes.Buffer
		if err := sinks.WriteLine(&buffer, test.m); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := buffer.String(); got != test.want+"\n" {
			t.Errorf("%s:\n got %swant %s", test.name, got, test.want)
		}
	}
}

func message(payload []byte) sinks.Message {
	return sinks.Message{Message: outbox.Message{Topic: "t", Payload: payload}}
}

func TestWriteLineRefusesInvalidUTF8(t *testing.T) {
	t.Parallel()
	const bad = "s3cret\xff"
	tests := []struct {
		m    outbox.Message
		want string
	}{
		{outbox.Message{ID: bad}, "the id is not UTF-8, so JSON can't carry it"},
		{outbox.Message{Topic: bad}, "the topic is not UTF-8, so JSON can't carry it"},
		{outbox.Message{Key: bad}, "the key is not UTF-8, so JSON can't carry it"},
		{outbox.Message{Headers: map[string]string{"h": bad}}, `the header "h" is not UTF-8, so JSON can't carry it`},
		{outbox.Message{Headers: map[string]string{"\xff": ""}}, `the header "\xff" is not UTF-8, so JSON can't carry it`},
	}
	for _, test := range tests {
		var buffer bytes.Buffer
		err := sinks.WriteLine(&buffer, sinks.Message{Message: test.m})
		if err == nil || err.Error() != test.want || buffer.Len() > 0 {
			t.Errorf("%v with %d bytes written, want %s", err, buffer.Len(), test.want)
		}
	}
}

func TestWriteLines(t *testing.T) {
	t.Parallel()
	batch := keyed("a", "a", "b", "", "", "a")
	batch[1].Headers = map[string]string{"h": "\xff"}
	batch[3].Headers = batch[1].Headers
	var buffer bytes.Buffer
	outcomes, ends := sinks.WriteLines(&buffer, batch)
	if got := summary(outcomes); got != "DRDRDN" {
		t.Errorf("the outcomes are %s", got)
	}
	start, written := 0, ""
	for _, end := range ends {
		if m, err := sinks.ReadLine(buffer.Bytes()[start:end]); err == nil {
			written += m.ID + " "
		}
		start = end
	}
	if written != "a1 b1 2 " || start != buffer.Len() {
		t.Errorf("the lines are %s", written)
	}
}

func TestReadLineRefusesOtherText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "s3cret", `{"topic":1}`, `{"topic":"a"`, `{"payload_base64":"s3cret%"}`} {
		if _, err := sinks.ReadLine([]byte(text)); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("ReadLine(%q): %v", text, err)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("id", "topic", "key", []byte("payload"), true, "header", "value", int16(1), int64(0))
	f.Add("", "t", "", []byte{0xff}, false, "", "", int16(0), int64(-1))
	f.Add("", "\u2028", "</script>", []byte{}, true, "\x00", "\U0001F600", int16(-1), int64(1e18))
	f.Fuzz(func(t *testing.T, id, topic, key string, payload []byte, null bool, name, value string, priority int16, nanos int64) {
		want := sinks.Message{
			Message:   outbox.Message{ID: id, Topic: topic, Key: key, Payload: payload, Headers: map[string]string{name: value}, Priority: priority},
			CreatedAt: time.Unix(0, nanos).UTC(),
		}
		if null {
			want.Payload = nil
		}
		var buffer bytes.Buffer
		if err := sinks.WriteLine(&buffer, want); err != nil {
			if utf8.ValidString(strings.Join([]string{id, topic, key, name, value}, " ")) {
				t.Fatal(err)
			}
			return
		}
		if bytes.Count(buffer.Bytes(), []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", buffer.String())
		}
		got, err := sinks.ReadLine(buffer.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
	})
}
