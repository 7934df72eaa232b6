package outboxtest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

func TestExpectAmong(t *testing.T) {
	t.Parallel()
	later := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	written := []outbox.Message{
		{ID: outbox.NewID(), Topic: "users.new", Key: "user-7", Payload: []byte("\xff")},
		{Topic: "orders.paid", Key: "order-41", Payload: []byte(`{"order":41}`)},
		{Topic: "orders.paid", Key: "order-42", Headers: map[string]string{"a": "1", "b": "2"}, AvailableAt: later, ExpiresAt: later.Add(1), Priority: 3,
			Payload: []byte(`{"order":9007199254740993,"customer":{"id":7,"name":"Ada"},"lines":[{"sku":"a","n":1},{"sku":"b","n":2.50}],"gift":true,"note":null}`)},
	}
	for name, c := range map[string]struct {
		want     outbox.Message
		reported string // | separates lines
	}{
		"an empty message":       {outbox.Message{}, ""},
		"topic":                  {outbox.Message{Topic: "users.new"}, ""},
		"topic and key":          {outbox.Message{Topic: "orders.paid", Key: "order-42"}, ""},
		"key":                    {outbox.Message{Key: "order-42"}, ""},
		"the other fields":       {outbox.Message{AvailableAt: later, ExpiresAt: later.Add(1), Priority: 3, Headers: map[string]string{"b": "2"}}, ""},
		"a member":               {outbox.Message{Payload: []byte(`{"order":9007199254740993}`)}, ""},
		"a member of a member":   {outbox.Message{Payload: []byte(`{"customer": {"id": 7.0}}`)}, ""},
		"a list":                 {outbox.Message{Payload: []byte(`{"lines":[{"sku":"a"},{"n":25e-1}],"gift":true,"note":null}`)}, ""},
		"bytes":                  {outbox.Message{Payload: []byte("\xff")}, ""},
		"a typo in the topic":    {outbox.Message{Topic: "orders.payd"}, `no message has Topic "orders.payd"; the written topics are ["orders.paid" "users.new"]`},
		"another key":            {outbox.Message{Topic: "orders.paid", Key: "order-43"}, `no message matches the wanted one with Topic "orders.paid" and Key "order-43"; message 1, the closest of 3, differs:|Key is order-41, want order-43`},
		"other members":          {outbox.Message{Topic: "orders.paid", Key: "order-42", Payload: []byte(`{"order":9007199254740992,"customer":{"id":8,"mail":"a@b"},"gift":"yes"}`)}, `no message matches the wanted one with Topic "orders.paid" and Key "order-42"; message 2, the closest of 3, differs:|Payload.customer.id is 7, want 8|Payload.customer.mail is missing, want "a@b"|Payload.gift is true, want "yes"|Payload.order is 9007199254740993, want 9007199254740992`},
		"a longer list":          {outbox.Message{Key: "order-42", Payload: []byte(`{"lines":[]}`)}, `|Payload.lines is [{"n":1,"sku":"a"},{"n":2.50,"sku":"b"}], want []`},
		"an element":             {outbox.Message{Key: "order-42", Payload: []byte(`{"lines":[{},{"n":3}]}`)}, `|Payload.lines[1].n is 2.50, want 3`},
		"no JSON":                {outbox.Message{Topic: "users.new", Payload: []byte(`{"id":7}`)}, `|Payload is "\xff", want a JSON object`},
		"JSON that is no object": {outbox.Message{Key: "order-41", Payload: []byte(`[41]`)}, `|Payload is "{\"order\":41}", want "[41]"`},
		"a header":               {outbox.Message{Key: "order-42", Headers: map[string]string{"a": "2"}}, `|the header a is "1", want "2"`},
		"a priority":             {outbox.Message{Key: "order-42", Priority: 4}, `|Priority is 3, want 4`},
	} {
		reported := reports(t, func(t testing.TB) { outboxtest.ExpectAmong(t, written, c.want) })
		got := strings.ReplaceAll(strings.Join(reported, "\n"), "\n\t", "|")
		if got != c.reported && !(strings.HasPrefix(c.reported, "|") && strings.HasSuffix(got, c.reported)) {
			t.Errorf("%s: it reports %s, want %s", name, got, c.reported)
		}
	}
	if reported := reports(t, func(t testing.TB) { outboxtest.ExpectAmong(t, nil, outbox.Message{Topic: "a"}) }); len(reported) != 1 || !strings.HasPrefix(reported[0], "no message was written") {
		t.Errorf("without messages it reports %q", reported)
	}
}
