package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

const secretKey = "s3cret/key+with+signs"

// TestMain runs the plug-in if a test has started this program as one.
func TestMain(m *testing.M) {
	if os.Getenv("ROWRELAY_PLUGIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// server returns the address of a server that deploy/servers starts.
func server(t testing.TB, variable string) *url.URL {
	t.Helper()
	address := os.Getenv(variable)
	if address == "" && os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatalf("%s is not set: deploy/servers/servers up starts the server", variable)
	}
	if address == "" {
		t.Skipf("%s is not set: deploy/servers/servers up starts the server", variable)
	}
	u, err := url.Parse(address)
	check(t, err)
	return u
}

// link is a proxy between the sink and an emulator.
type link struct {
	t        testing.TB
	address  string
	emulator http.Handler
	server   *http.Server

	mu      sync.Mutex
	answers map[string]sinks.Result
	stalled *stall
}

// stall holds back the answers of the emulator.
type stall struct {
	reached, released chan struct{}
	once              sync.Once
}

func newLink(t testing.TB, emulator http.Handler) *link {
	t.Helper()
	// Use a separate address, so that no other process gets the port while the proxy is stopped.
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)))
	check(t, err)
	l := &link{t: t, address: listener.Addr().String(), emulator: emulator, answers: map[string]sinks.Result{}}
	l.serve(listener)
	t.Cleanup(l.stop)
	return l
}

func (l *link) serve(listener net.Listener) {
	l.server = &http.Server{Handler: http.HandlerFunc(l.handle)}
	go func(s *http.Server) {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			l.t.Error(err)
		}
	}(l.server)
}

func (l *link) start() {
	listener, err := net.Listen("tcp", l.address)
	check(l.t, err)
	l.serve(listener)
}

func (l *link) stop() { check(l.t, l.server.Close()) }

// stall holds back the next answers to messages.
func (l *link) stall() (<-chan struct{}, func()) {
	s := &stall{reached: make(chan struct{}), released: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = s
	return s.reached, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.stalled = nil
		close(s.released)
	}
}

// answer sets the answer to a message.
func (l *link) answer(id string, result sinks.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[id] = result
}

// refusal returns the error code for a message, and whether the message is the cause.
func (l *link) refusal(message []byte) (code string, byClient bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, result := range l.answers {
		switch {
		case !bytes.Contains(message, []byte(id)):
		case result == sinks.Retry:
			return "InternalError", false
		case result == sinks.Reject:
			return "InvalidMessageContents", true
		}
	}
	return "", false
}

func (l *link) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	l.mu.Lock()
	stalled := l.stalled
	l.mu.Unlock()
	if stalled == nil || !bytes.Contains(body, []byte("rowrelay-message-id")) {
		l.emulator.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	l.emulator.ServeHTTP(answer, r)
	stalled.once.Do(func() { close(stalled.reached) })
	<-stalled.released
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// queue is a queue of an emulator behind a link.
type queue struct {
	*link
	client *sqs.Client // connects directly to the emulator
	name   string
	direct string // the queue's URL without the link

	mu  sync.Mutex
	got []outbox.Message
}

const account = "000000000000" // of emulators

var queues atomic.Int64

// newQueue makes a queue of an emulator. A queue whose name ends with .fifo is a FIFO queue.
func newQueue(t testing.TB, at *url.URL, suffix string) *queue {
	t.Helper()
	q := &queue{name: fmt.Sprintf("test-%d-%d%s", time.Now().UnixNano(), queues.Add(1), suffix)}
	q.client = sqs.New(sqs.Options{Region: "eu-west-1", BaseEndpoint: aws.String(at.String()), Credentials: credentials()})
	attributes := map[string]string{"VisibilityTimeout": "600"}
	if suffix == ".fifo" {
		attributes["FifoQueue"] = "true"
	}
	made, err := q.client.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: &q.name, Attributes: attributes})
	check(t, err)
	q.direct = *made.QueueUrl
	t.Cleanup(func() {
		_, err := q.client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: &q.direct})
		check(t, err)
	})
	forward := httputil.NewSingleHostReverseProxy(at)
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	q.link = newLink(t, forward)
	q.emulator = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { q.refusing(w, r, forward) })
	return q
}

func credentials() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "test", SecretAccessKey: secretKey}, nil
	})
}

// url returns the queue's URL through the link.
func (q *queue) url() string { return "http://" + q.address + "/" + account + "/" + q.name }

// refusing answers a request as SQS does if it refuses some of its messages. It forwards the other
// messages to the emulator.
func (q *queue) refusing(w http.ResponseWriter, r *http.Request, emulator http.Handler) {
	body, err := io.ReadAll(r.Body)
	check(q.t, err)
	var request struct {
		QueueURL string `json:"QueueUrl"`
		Entries  []json.RawMessage
	}
	var answer struct{ Successful, Failed []any }
	kept := []json.RawMessage{}
	if json.Unmarshal(body, &request) == nil {
		for _, text := range request.Entries {
			var entry struct{ Id string }
			check(q.t, json.Unmarshal(text, &entry))
			if code, byClient := q.refusal(text); code != "" {
				answer.Failed = append(answer.Failed, map[string]any{"Id": entry.Id, "SenderFault": byClient, "Code": code, "Message": "not now"})
			} else {
				kept = append(kept, text)
			}
		}
	}
	if len(answer.Failed) > 0 {
		request.Entries = kept
		body, err = json.Marshal(request)
		check(q.t, err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(answer.Failed) == 0 {
		emulator.ServeHTTP(w, r)
		return
	}
	if len(kept) > 0 {
		part := httptest.NewRecorder()
		emulator.ServeHTTP(part, r)
		check(q.t, json.Unmarshal(part.Body.Bytes(), &answer))
	}
	check(q.t, json.NewEncoder(w).Encode(answer))
}

// received receives all messages that are in the queue, appends them to those of earlier calls,
// and returns all.
func (q *queue) received() []outbox.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		got, err := q.client.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{QueueUrl: &q.direct, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
		check(q.t, err)
		if len(got.Messages) == 0 {
			return slices.Clone(q.got)
		}
		var done []sqstypes.DeleteMessageBatchRequestEntry
		for i, m := range got.Messages {
			attributes := map[string]string{}
			for name, value := range m.MessageAttributes {
				attributes[name] = *value.StringValue
			}
			q.got = append(q.got, decode(q.t, *m.Body, attributes))
			done = append(done, sqstypes.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
		}
		_, err = q.client.DeleteMessageBatch(context.Background(), &sqs.DeleteMessageBatchInput{QueueUrl: &q.direct, Entries: done})
		check(q.t, err)
	}
}

// subscribed makes a topic with the queue's name, to which the queue subscribes, and returns the topic's ARN.
func (q *queue) subscribed(at *url.URL) string {
	ctx, fifo := context.Background(), strconv.FormatBool(strings.HasSuffix(q.name, ".fifo"))
	client := sns.New(sns.Options{Region: "eu-west-1", BaseEndpoint: aws.String(at.String()), Credentials: credentials()})
	made, err := client.CreateTopic(ctx, &sns.CreateTopicInput{Name: &q.name, Attributes: map[string]string{"FifoTopic": fifo}})
	check(q.t, err)
	arn := "arn:aws:sqs:eu-west-1:" + account + ":" + q.name
	_, err = client.Subscribe(ctx, &sns.SubscribeInput{TopicArn: made.TopicArn, Protocol: aws.String("sqs"), Endpoint: &arn, Attributes: map[string]string{"RawMessageDelivery": "true"}})
	check(q.t, err)
	return *made.TopicArn
}

// topic imitates SNS as far as the plug-in needs it: two actions of its protocol, deduplication, and the order of groups.
type topic struct {
	*link
	mu   sync.Mutex
	got  []outbox.Message
	seen map[string]bool
}

const topicARN = "arn:aws:sns:eu-west-1:000000000000:orders.fifo"

func newTopic(t testing.TB) *topic {
	t.Helper()
	f := &topic{seen: map[string]bool{}}
	f.link = newLink(t, f)
	return f
}

func (f *topic) received() []outbox.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.got)
}

func (f *topic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	check(f.t, r.ParseForm())
	action, results := r.Form.Get("Action"), ""
	if r.Form.Get("TopicArn") != topicARN {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `<ErrorResponse><Error><Type>Sender</Type><Code>NotFound</Code><Message>Topic does not exist</Message></Error></ErrorResponse>`)
		return
	}
	if action == "PublishBatch" {
		results = f.publish(r.Form)
	}
	fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult>%s</%[1]sResult></%[1]sResponse>", action, results)
}

func (f *topic) publish(form url.Values) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var successful, failed string
	for n := 1; form.Has(fmt.Sprintf("PublishBatchRequestEntries.member.%d.Id", n)); n++ {
		field := func(name string) string {
			return form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.%s", n, name))
		}
		attributes := map[string]string{}
		for i := 1; field(fmt.Sprintf("MessageAttributes.entry.%d.Name", i)) != ""; i++ {
			attributes[field(fmt.Sprintf("MessageAttributes.entry.%d.Name", i))] = field(fmt.Sprintf("MessageAttributes.entry.%d.Value.StringValue", i))
		}
		if code, byClient := f.refusal([]byte(attributes[idAttribute])); code != "" {
			failed += fmt.Sprintf("<member><Id>%s</Id><Code>%s</Code><SenderFault>%t</SenderFault></member>", field("Id"), code, byClient)
			continue
		}
		if dedup := field("MessageDeduplicationId"); !f.seen[dedup] && field("MessageGroupId") != "" {
			f.seen[dedup] = true
			f.got = append(f.got, decode(f.t, field("Message"), attributes))
		}
		successful += fmt.Sprintf("<member><Id>%s</Id><MessageId>m%d</MessageId><SequenceNumber>%[2]d</SequenceNumber></member>", field("Id"), len(f.got))
	}
	return "<Successful>" + successful + "</Successful><Failed>" + failed + "</Failed>"
}

// pluginSink returns the plug-in as a relay uses it.
func pluginSink(t testing.TB, config map[string]string) *plugins.Sink {
	t.Helper()
	return pluginWith(t, config, map[string]settings.Secret{"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": secretKey})
}

func pluginWith(t testing.TB, config map[string]string, env map[string]settings.Secret) *plugins.Sink {
	t.Helper()
	program, err := os.Executable()
	check(t, err)
	directory, err := os.MkdirTemp("", "p")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(directory)) })
	sink, err := plugins.New(plugins.Options{Path: program, Directory: directory, Config: config, Env: env})
	check(t, err)
	return sink
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
