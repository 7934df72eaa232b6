package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

func message(key string) sinks.Message {
	return sinks.Message{Message: outbox.Message{ID: "0195c0de-1", Topic: "orders", Key: key, Payload: []byte("{}")}}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		payload    []byte
		body, mark string
	}{
		{nil, "null", "null"},
		{[]byte{}, "empty", "empty"},
		{[]byte("null"), "null", ""},
		{[]byte("a\tb\r\n ü 🛒"), "a\tb\r\n ü 🛒", ""},
		{[]byte("a\x00b"), "YQBi", "base64"},
		{[]byte("\xff"), "/w==", "base64"},
		{[]byte("\uffff"), "77+/", "base64"},
	} {
		m := message("")
		m.Payload = test.payload
		e, err := encode(&m, false)
		check(t, err)
		if e.body != test.body || e.attributes[payloadAttribute] != test.mark {
			t.Errorf("%q: body %q, mark %q", test.payload, e.body, e.attributes[payloadAttribute])
		}
	}
}

// TestHeaders: a header becomes an attribute if there is room for one more and the service
// accepts the header. The other headers share one attribute.
func TestHeaders(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 12 {
		many[fmt.Sprintf("h%02d", i)] = "v"
	}
	for _, test := range []struct {
		key     string
		headers map[string]string
		rest    string
		of      int // number of attributes
	}{
		{"", nil, "", 2},
		{"k", map[string]string{"a": "1", "b.c-d_e": "2"}, "", 5},
		{"k", map[string]string{"a": "", "b": "\x01", "c c": "3", ".d": "4", "AWS.e": "5", "f..g": "6", "h": "7"}, `{".d":"4","AWS.e":"5","a":"","b":"\u0001","c c":"3","f..g":"6"}`, 5},
		{"", many, `{"h07":"v","h08":"v","h09":"v","h10":"v","h11":"v"}`, 10},
		{"k", many, `{"h06":"v","h07":"v","h08":"v","h09":"v","h10":"v","h11":"v"}`, 10},
		{"k", map[string]string{"1": "v", "2": "v", "3": "v", "4": "v", "5": "v", "6": "v", "7": "v"}, "", 10},
		{"k", map[string]string{"1": "v", "2": "v", "3": "v", "4": "v", "5": "v", "6": "v", "7": ""}, `{"7":""}`, 10},
	} {
		m := message(test.key)
		m.Headers = test.headers
		e, err := encode(&m, false)
		check(t, err)
		if e.attributes[headersAttribute] != test.rest || len(e.attributes) != test.of {
			t.Errorf("%q: rest %s, %d attributes: %q", test.headers, e.attributes[headersAttribute], len(e.attributes), e.attributes)
		}
	}
}

func TestMessagesThatCannotBeCarried(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*outbox.Message){
		"key can't be":               func(m *outbox.Message) { m.Key = "a\x00" },
		"topic can't be":             func(m *outbox.Message) { m.Topic = "\xff" },
		"message-id can't be":        func(m *outbox.Message) { m.ID = "\uffff" },
		"is not UTF-8":               func(m *outbox.Message) { m.Headers = map[string]string{"a": "\xff"} },
		"belongs to the plug-in":     func(m *outbox.Message) { m.Headers = map[string]string{"rowrelay-key": "a"} },
		"an attribute can't contain": func(m *outbox.Message) { m.Headers = map[string]string{"a": "\ufffe"} },
	} {
		m := message("k")
		change(&m.Message)
		if _, err := encode(&m, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestGroupsAndDeduplication: the group is the key, or the key's hash if the key can't be a group. A message without a
// key has a group of its own.
func TestGroupsAndDeduplication(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ key, id, group, dedup string }{
		{"order-42", "0195", "order-42", "0195"},
		{"", "0195", "0195", "0195"},
		{"a b", "0195", "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65", "0195"},
		{strings.Repeat("k", 128), "0195", strings.Repeat("k", 128), "0195"},
		{strings.Repeat("k", 129), "ü", "9094034fb2d0ce2e407c9b260f2806ab2efb352e200722fd6296d9cf1cf7e6f5", "607474ca475a9724d7360aba71a56d5df77e61350e3f724cfa1f46e857e2d85f"},
	} {
		m := message(test.key)
		m.ID = test.id
		e, err := encode(&m, true)
		check(t, err)
		if e.group != test.group || e.dedup != test.dedup {
			t.Errorf("key %q, id %q: group %q, dedup %q", test.key, test.id, e.group, e.dedup)
		}
		m.Headers = map[string]string{sinks.ReplayedHeader: "r-1"}
		if e, err := encode(&m, true); err != nil || e.group != test.group || e.dedup != identifier(test.id+"/r-1") {
			t.Errorf("the copy of a replay: %+v, %v", e, err)
		}
		if e, err := encode(&m, false); err != nil || e.group != "" || e.dedup != "" {
			t.Errorf("a queue that isn't FIFO: %+v, %v", e, err)
		}
	}
}
