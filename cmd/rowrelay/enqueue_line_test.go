package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
)

func TestParseLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]outbox.Message{
		`{"topic":"a"}`:                                   {Topic: "a"},
		`{"topic":"a","payload":"text"}`:                  {Topic: "a", Payload: []byte("text")},
		`{"topic":"a","payload":""}`:                      {Topic: "a", Payload: []byte{}},
		`{"topic":"a","payload":null}`:                    {Topic: "a"},
		`{"topic":"a","payload":{"b": [1, 2.50, "ü"]}}`:   {Topic: "a", Payload: []byte(`{"b": [1, 2.50, "ü"]}`)},
		`{"topic":"a","payload": [ ]  }`:                  {Topic: "a", Payload: []byte(`[ ]`)},
		`{"topic":"a","payload":12345678901234567890.10}`: {Topic: "a", Payload: []byte(`12345678901234567890.10`)},
		`{"topic":"a","payload":true}`:                    {Topic: "a", Payload: []byte(`true`)},
		`{"topic":"a","payload":"\ud83d\ude00\n\ufffd"}`:  {Topic: "a", Payload: []byte("😀\n\ufffd")},
		"{\"topic\":\"a\",\"payload\":\"\ufffd\"}":        {Topic: "a", Payload: []byte("\ufffd")},
		`{"topic":"a","payload_base64":"AP8="}`:           {Topic: "a", Payload: []byte{0, 255}},
		`{"topic":"a","payload_base64":""}`:               {Topic: "a", Payload: []byte{}},
		`{"topic":"a","key":"k","priority":-32768}`:       {Topic: "a", Key: "k", Priority: -32768},
		`{"topic":"a","headers":{"X":"y","x":""}}`:        {Topic: "a", Headers: map[string]string{"X": "y", "x": ""}},
		`{"topic":"a","headers":null,"key":null}`:         {Topic: "a"},
		`{"topic":"a","available_at":"2026-01-31T12:00:00.5+01:00"}`: {Topic: "a",
			AvailableAt: time.Date(2026, 1, 31, 11, 0, 0, 5e8, time.UTC)},
		`{"topic":"a","expires_at":"2026-01-31T12:00:00Z"}`:                           {Topic: "a", ExpiresAt: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)},
		` { "topic" : "a" , "message_id" : "019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60" } `: {Topic: "a", ID: "019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60"},
		`{"topic":"a","attempt":3,"sequence":7,"created_at":"2026-01-31T12:00:00Z"}`:  {Topic: "a"},
		`{}`: {}, // parseLine accepts it, and the Writer refuses it
	} {
		got, err := parseLine([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !got.AvailableAt.Equal(want.AvailableAt) {
			t.Errorf("%s: at %v, want %v", line, got.AvailableAt, want.AvailableAt)
		}
		got.AvailableAt = want.AvailableAt
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}

func TestErrorsOfALineHideItsContent(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`hunter2`:                           "isn't a JSON object",
		`"hunter2"`:                         "isn't a JSON object",
		`[{"topic":"hunter2"}]`:             "isn't a JSON object",
		`null`:                              "isn't a JSON object",
		``:                                  "isn't a JSON object",
		`{"topic":"a"`:                      "ends too early",
		`{"topic":"a","payload":"hunter2`:   "ends too early",
		`{"topic":"a",}`:                    "isn't valid JSON",
		`{"topic" "a"}`:                     "isn't valid JSON",
		`{topic:"a"}`:                       "isn't valid JSON",
		`{"topic":"a"} {"topic":"hunter2"}`: "has text after its object",
		`{"topic":"a"}x`:                    "has text after its object",
		`{"topic":"a","topic":"b"}`:         "has topic twice",
		`{"topic":"a","payload":null,"payload":"b"}`: "has payload twice",
		`{"Topic":"a"}`:                    `has an unknown member`,
		`{"topic":"a","paylod":"hunter2"}`: `has an unknown member "paylod"`,
		`{"topic":1}`:                      "topic must be a string",
		`{"topic":["a"]}`:                  "topic must be a string",
		`{"topic":"a","key":{"k":1}}`:      "key must be a string",
		`{"topic":"a","message_id":7}`:     "message_id must be a string",
		`{"topic":"a","payload":"x","payload_base64":"aHVudGVyMg=="}`: "has both payload and payload_base64",
		`{"topic":"a","payload_base64":"hunter2"}`:                    "payload_base64 isn't base64",
		`{"topic":"a","payload_base64":"aHVudGVyMg"}`:                 "payload_base64 isn't base64",
		`{"topic":"a","payload_base64":"AB=="}`:                       "payload_base64 isn't base64",
		`{"topic":"a","payload_base64":[1]}`:                          "payload_base64 must be a string",
		`{"topic":"a","headers":["hunter2"]}`:                         "headers must be an object of strings",
		`{"topic":"a","headers":{"a":1}}`:                             "headers must be an object of strings",
		`{"topic":"a","headers":{"a":null}}`:                          "has a null",
		`{"topic":"a","available_at":"tomorrow"}`:                     "available_at isn't a time such as",
		`{"topic":"a","available_at":"2026-01-31"}`:                   "available_at isn't a time such as",
		`{"topic":"a","available_at":1769860800}`:                     "available_at must be a string",
		`{"topic":"a","expires_at":"tomorrow"}`:                       "expires_at isn't a time such as",
		`{"topic":"a","priority":"1"}`:                                "priority must be a whole number",
		`{"topic":"a","priority":32768}`:                              "priority must be a whole number",
		`{"topic":"a","priority":1.5}`:                                "priority must be a whole number",
		`{"topic":"a","payload":"\ud83d hunter2"}`:                    "half of a surrogate pair",
		`{"topic":"a","headers":{"a":"\ud83d"}}`:                      "half of a surrogate pair",
		`{"topic":"a","headers":{"\ud83d":"a"}}`:                      "half of a surrogate pair",
		`{"topic":"\ude00"}`:                                          "half of a surrogate pair",
		"{\"topic\":\"a\",\"payload\":\"hunter2\xff\"}":               "isn't UTF-8",
		`{"topic":"a","payload":` + strings.Repeat("[", 20_000) + `}`: "isn't valid JSON",
		`{"` + strings.Repeat("x", 10_000) + `":1}`:                   "has an unknown member",
	} {
		_, err := parseLine([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want %q in it", line, err, want)
		} else if strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 300 {
			t.Errorf("%.80s: the error repeats it: %v", line, err)
		}
	}
}

// FuzzParseLine searches for lines that make the reader panic, or that the reader accepts
// although encoding/json refuses them.
func FuzzParseLine(f *testing.F) {
	for _, line := range []string{`{"topic":"a","payload":{"b":[1]}}`, `{"topic":"a","headers":{"b":"c"}}`, `{"a":`, `{"topic":"\ud800"}`, `{}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if m, err := parseLine(line); err == nil && len(m.Topic) > len(line) {
			t.Errorf("the topic of %q is %q", line, m.Topic)
		}
	})
}

func TestLines(t *testing.T) {
	t.Parallel()
	read := func(text string, most int) (got []string, numbers []int, err error) {
		l := newLines(strings.NewReader(text), 0)
		l.most = most
		for {
			line, ok, err := l.next()
			if err != nil || !ok {
				return got, numbers, err
			}
			got, numbers = append(got, string(line)), append(numbers, l.number)
		}
	}
	for text, want := range map[string][]string{
		"":                        nil,
		"\n \n\t\r\n":             nil,
		"a":                       {"a"},
		"a\n":                     {"a"},
		"a\r\nb":                  {"a", "b"},
		"\ufeffa\n\n  b  \n\n":    {"a", "b"},
		strings.Repeat("x", 1000): {strings.Repeat("x", 1000)},
	} {
		got, _, err := read(text, 1000)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, %v", text, got, err)
		}
	}
	if _, numbers, err := read("a\n\nb\n \nc", 10); err != nil || !reflect.DeepEqual(numbers, []int{1, 3, 5}) {
		t.Errorf("numbers %v, %v; blank lines count", numbers, err)
	}
	for _, text := range []string{"a\n" + strings.Repeat("x", 1001), "a\n" + strings.Repeat("x", 200_000) + "\n"} {
		if got, _, err := read(text, 1000); err == nil || !strings.Contains(err.Error(), "line 2 has more than 1000 bytes") || len(got) != 1 {
			t.Errorf("got %d lines, %v; want an error about the second", len(got), err)
		}
	}
}
