package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// fakeQueue answers requests to send messages with a function of the bodies of their entries.
type fakeQueue struct {
	url    string
	answer func(bodies []string) (status int, text string)

	mu       sync.Mutex
	requests [][]string
	signed   string // the last Authorization header
}

func newFakeQueue(t testing.TB, answer func(bodies []string) (int, string)) *fakeQueue {
	t.Helper()
	f := &fakeQueue{answer: answer}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	f.url = server.URL + "/1/orders.fifo"
	return f
}

func (f *fakeQueue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.signed = r.Header.Get("Authorization")
	if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".SendMessageBatch") {
		fmt.Fprint(w, "{}")
		return
	}
	var request struct {
		Entries []struct{ MessageBody string }
	}
	_ = json.Unmarshal(body, &request)
	var bodies []string
	for _, e := range request.Entries {
		bodies = append(bodies, e.MessageBody)
	}
	f.requests = append(f.requests, bodies)
	status, text := f.answer(bodies)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// stored answers that all entries were stored.
func stored(bodies []string) (int, string) {
	var answer struct{ Successful []map[string]string }
	for i := range bodies {
		answer.Successful = append(answer.Successful, map[string]string{"Id": fmt.Sprint(i), "MessageId": "m", "SequenceNumber": "7"})
	}
	text, _ := json.Marshal(answer)
	return 200, string(text)
}

// opened returns the sink itself, not the plug-in. The sink uses the credentials of
// the tests.
func opened(t testing.TB, config map[string]any) *sink {
	t.Helper()
	values, err := kind().Parse(config)
	check(t, err)
	made, err := newSink(values)
	check(t, err)
	s := made.(*sink)
	s.credentials = credentials()
	check(t, s.Open(t.Context()))
	return s
}

func batchOf(keys ...string) []sinks.Message {
	batch := make([]sinks.Message, len(keys))
	for i, key := range keys {
		batch[i] = message(key)
		batch[i].ID, batch[i].Payload = fmt.Sprint("id-", i), []byte(fmt.Sprint("p", i))
	}
	return batch
}

// summary returns one letter for each outcome: Delivered, Retry, X for rejected, Unavailable, Postponed, Blocked, Cancelled.
func summary(outcomes []sinks.Outcome) (text string) {
	for _, o := range outcomes {
		letter := map[sinks.Result]string{sinks.Delivered: "D", sinks.Retry: "R", sinks.Reject: "X", sinks.Unavailable: "U"}[o.Result]
		if o.Result == sinks.Unsent {
			letter = map[sinks.Reason]string{sinks.ReasonBlocked: "B", sinks.ReasonCancelled: "C"}[o.Reason]
		}
		if o.RetryAfter > 0 {
			letter = "P"
		}
		text += letter
	}
	return text
}

// TestErrors: the code of an error, of a whole request or of an entry, decides the outcome.
func TestErrors(t *testing.T) {
	t.Parallel()
	type outcome struct {
		letter string
		reason sinks.Reason
	}
	for _, test := range []struct {
		status          int
		code, text      string
		whole, byTopics outcome // the outcomes if all messages go to one queue, and if messages choose their queues
		entry           bool    // whether the code may also be the answer for one entry
	}{
		{400, "com.amazonaws.sqs#QueueDoesNotExist", "", outcome{"U", sinks.ReasonConfig}, outcome{"P", sinks.ReasonUnroutable}, false},
		{400, "AWS.SimpleQueueService.NonExistentQueue", "", outcome{"U", sinks.ReasonConfig}, outcome{"P", sinks.ReasonUnroutable}, false},
		{403, "AccessDenied", "", outcome{"U", sinks.ReasonAuth}, outcome{"P", sinks.ReasonAuth}, false},
		{403, "AccessDeniedException", "", outcome{"U", sinks.ReasonAuth}, outcome{"P", sinks.ReasonAuth}, false},
		{400, "KmsDisabled", "", outcome{"U", sinks.ReasonConfig}, outcome{"P", sinks.ReasonUnroutable}, true},
		{400, "KmsAccessDenied", "", outcome{"U", sinks.ReasonAuth}, outcome{"P", sinks.ReasonAuth}, true},
		{400, "KMS.DisabledException", "", outcome{"U", sinks.ReasonConfig}, outcome{"P", sinks.ReasonUnroutable}, true},
		{403, "InvalidClientTokenId", "", outcome{"U", sinks.ReasonAuth}, outcome{"U", sinks.ReasonAuth}, false},
		{403, "ExpiredToken", "", outcome{"U", sinks.ReasonAuth}, outcome{"U", sinks.ReasonAuth}, false},
		{403, "SignatureDoesNotMatch", "", outcome{"U", sinks.ReasonAuth}, outcome{"U", sinks.ReasonAuth}, false},
		{400, "RequestThrottled", "", outcome{"U", sinks.ReasonThrottled}, outcome{"U", sinks.ReasonThrottled}, true},
		{400, "KmsThrottled", "", outcome{"U", sinks.ReasonThrottled}, outcome{"U", sinks.ReasonThrottled}, true},
		{400, "ThrottlingException", "", outcome{"U", sinks.ReasonThrottled}, outcome{"U", sinks.ReasonThrottled}, true},
		{403, "OverLimit", "", outcome{"U", sinks.ReasonThrottled}, outcome{"U", sinks.ReasonThrottled}, true},
		{503, "ServiceUnavailable", "", outcome{"U", sinks.ReasonConnection}, outcome{"U", sinks.ReasonConnection}, true},
		{500, "InternalFailure", "", outcome{"R", sinks.ReasonServerError}, outcome{"R", sinks.ReasonServerError}, true},
		{502, "", "", outcome{"R", sinks.ReasonServerError}, outcome{"R", sinks.ReasonServerError}, false},
		{400, "AWS.SimpleQueueService.BatchRequestTooLong", "", outcome{"X", sinks.ReasonTooLarge}, outcome{"X", sinks.ReasonTooLarge}, false},
		{400, "InvalidParameterValue", "Reason: Message must be shorter than 1024 bytes.", outcome{"X", sinks.ReasonTooLarge}, outcome{"X", sinks.ReasonTooLarge}, true},
		{400, "InvalidMessageContents", "", outcome{"X", sinks.ReasonInvalid}, outcome{"X", sinks.ReasonInvalid}, true},
		{400, "SomethingNew", "", outcome{"X", sinks.ReasonRefused}, outcome{"X", sinks.ReasonRefused}, true},
	} {
		code := test.code[strings.LastIndex(test.code, "#")+1:]
		for _, byEntry := range []bool{false, test.entry} {
			f := newFakeQueue(t, func([]string) (int, string) {
				if byEntry {
					return 200, fmt.Sprintf(`{"Failed":[{"Id":"0","Code":%q,"Message":%q,"SenderFault":%t}]}`, code, test.text, test.status < 500)
				}
				return test.status, fmt.Sprintf(`{"__type":%q,"message":%q}`, test.code, test.text)
			})
			for url, want := range map[string]outcome{f.url: test.whole, strings.Replace(f.url, "orders.fifo", "{topic}.fifo", 1): test.byTopics} {
				s := opened(t, map[string]any{"queue": url, "region": "eu-west-1"})
				o := s.Send(t.Context(), batchOf("a"))
				if summary(o) != want.letter || o[0].Reason != want.reason || !strings.Contains(o[0].Detail, code) {
					t.Errorf("%d %s, by entry %v, to %s: %+v", test.status, test.code, byEntry, url, o[0])
				}
			}
		}
	}
}

// TestOneMessageIsTheCause: if a request is refused because of one message, its messages are sent one at a time.
func TestOneMessageIsTheCause(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"BatchRequestTooLong", "InvalidParameterValue"} {
		f := newFakeQueue(t, func(bodies []string) (int, string) {
			for _, body := range bodies {
				if body == "p2" {
					return 400, `{"__type":"` + code + `"}`
				}
			}
			return stored(bodies)
		})
		s := opened(t, map[string]any{"queue": f.url, "region": "eu-west-1"})
		if got := summary(s.Send(t.Context(), batchOf("a", "b", "c", "d", "c", "a", ""))); got != "DDXDBDD" {
			t.Errorf("%s: %s", code, got)
		}
	}
}

// TestRequests: a request has up to 10 messages and the service's maximum size, and at most one message of each key.
func TestRequests(t *testing.T) {
	t.Parallel()
	f := newFakeQueue(t, stored)
	s := opened(t, map[string]any{"queue": f.url, "region": "eu-west-1", "concurrency": 1})
	send := func(want string, requests string, batch []sinks.Message) {
		t.Helper()
		f.requests = nil
		outcomes := s.Send(t.Context(), batch)
		var sizes []string
		for _, bodies := range f.requests {
			sizes = append(sizes, fmt.Sprint(len(bodies)))
		}
		if got := summary(outcomes); got != want || strings.Join(sizes, " ") != requests {
			t.Errorf("outcomes %s, want %s; requests of %v, want %s", got, want, sizes, requests)
		}
	}
	send(strings.Repeat("D", 25), "10 10 5", batchOf(make([]string, 25)...))
	send("DDDDDD", "3 2 1", batchOf("a", "b", "a", "a", "b", ""))
	large := batchOf("", "", "", "", "")
	for i, size := range []int{400 << 10, 400 << 10, 400 << 10, 1 << 20, 1<<20 - 200} {
		large[i].Payload = []byte(strings.Repeat("x", size))
	}
	send("DDDXD", "2 1 1", large)
	if o := s.Send(t.Context(), batchOf("a"))[0]; o.Receipt != "m 7" {
		t.Errorf("receipt %q", o.Receipt)
	}
}

// TestUnmentionedMessagesAreSentAgain: an answer that doesn't mention a message doesn't deliver it.
func TestUnmentionedMessagesAreSentAgain(t *testing.T) {
	t.Parallel()
	f := newFakeQueue(t, func([]string) (int, string) { return stored([]string{"first"}) })
	s := opened(t, map[string]any{"queue": f.url, "region": "eu-west-1"})
	if got := summary(s.Send(t.Context(), batchOf("a", "b", "b"))); got != "DRB" {
		t.Error(got)
	}
}

// TestOpen reports why the sink can't be used.
func TestOpen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		code   string
		want   sinks.Reason // "" if Open succeeds
	}{
		{400, "QueueDoesNotExist", sinks.ReasonConfig},
		{403, "AccessDenied", ""}, // perhaps only the right to look for the queue is missing
		{403, "InvalidClientTokenId", sinks.ReasonAuth},
		{503, "ServiceUnavailable", sinks.ReasonConnection},
		{500, "InternalFailure", sinks.ReasonConnection},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			fmt.Fprintf(w, `{"__type":%q}`, test.code)
		}))
		t.Cleanup(server.Close)
		values, err := kind().Parse(map[string]any{"queue": server.URL + "/1/q", "region": "eu-west-1"})
		check(t, err)
		made, err := newSink(values)
		check(t, err)
		made.(*sink).credentials = credentials()
		got := sinks.Reason("")
		if failed, _ := made.Open(t.Context()).(*sinks.OpenError); failed != nil {
			got = failed.Reason
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.code, got, test.want)
		}
	}
}

// TestCredentials: the plug-in gets credentials as the SDK does: from its environment, from a profile, or for a web
// identity's token from STS. Without credentials it can't be opened.
func TestCredentials(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(t, r.ParseForm())
		if r.Form.Get("Action") != "AssumeRoleWithWebIdentity" || r.Form.Get("WebIdentityToken") != "t0ken" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ofrole</AccessKeyId><SecretAccessKey>s</SecretAccessKey>`+
			`<SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`)
	}))
	t.Cleanup(sts.Close)
	for name, test := range map[string]struct {
		env  map[string]settings.Secret
		want string
	}{
		"environment": {map[string]settings.Secret{"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "ofenv", "AWS_SECRET_ACCESS_KEY": "s"}, "Credential=ofenv/"},
		"profile": {map[string]settings.Secret{"AWS_PROFILE": "shop", "AWS_SHARED_CREDENTIALS_FILE": settings.Secret(write("none", "")),
			"AWS_CONFIG_FILE": settings.Secret(write("config", "[profile shop]\nregion = eu-west-1\naws_access_key_id = ofprofile\naws_secret_access_key = s\n"))}, "Credential=ofprofile/"},
		"web identity": {map[string]settings.Secret{"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL_STS": settings.Secret(sts.URL), "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/relay",
			"AWS_WEB_IDENTITY_TOKEN_FILE": settings.Secret(write("token", "t0ken"))}, "Credential=ofrole/"},
		"none":      {map[string]settings.Secret{"AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true"}, "get the credentials"},
		"no region": {map[string]settings.Secret{"AWS_ACCESS_KEY_ID": "ofenv", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true"}, "the region is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeQueue(t, stored)
			sink := pluginWith(t, map[string]string{"queue": f.url}, test.env)
			err := sink.Open(t.Context())
			defer func() { check(t, sink.Close(t.Context())) }()
			if err == nil && summary(sink.Send(t.Context(), batchOf("a"))) != "D" {
				t.Error("a message was not delivered")
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if got := fmt.Sprint(err, f.signed); !strings.Contains(got, test.want) {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestDuplicateIsStoredOnce: a FIFO queue recognises a repeated message by its
// deduplication id.
func TestDuplicateIsStoredOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t, server(t, "ROWRELAY_TEST_ELASTICMQ"), ".fifo")
	s := opened(t, map[string]any{"queue": q.url(), "region": "eu-west-1"})
	for range 2 {
		if got := summary(s.Send(t.Context(), batchOf("a", "b", "a", ""))); got != "DDDD" {
			t.Error(got)
		}
	}
	if got := q.received(); len(got) != 4 {
		t.Errorf("%d messages are in the queue, want 4", len(got))
	}
}
