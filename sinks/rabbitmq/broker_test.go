package rabbitmq_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// broker is a real RabbitMQ.
type broker struct {
	url   *url.URL
	hosts []string
}

// newBroker returns the broker whose URL is in an environment variable.
func newBroker(t testing.TB, variable string) *broker {
	t.Helper()
	text := os.Getenv(variable)
	switch {
	case text == "" && os.Getenv("REQUIRE_SERVERS") == "1":
		t.Fatalf("%s is not set: deploy/servers/servers up starts a RabbitMQ", variable)
	case text == "":
		t.Skipf("%s is not set: deploy/servers/servers up starts a RabbitMQ", variable)
	}
	parsed, err := url.Parse(text)
	if err != nil {
		t.Fatalf("%s is not a URL", variable)
	}
	return &broker{url: parsed, hosts: strings.Split(parsed.Host, ",")}
}

func theBroker(t testing.TB) *broker { return newBroker(t, "ROWRELAY_TEST_RABBITMQ") }

// options returns options for the broker, or for other hosts, such as a proxy.
func (b *broker) options(hosts ...string) rabbitmq.Options {
	password, _ := b.url.User.Password()
	if len(hosts) == 0 {
		hosts = b.hosts
	}
	return rabbitmq.Options{Hosts: hosts, Username: b.url.User.Username(), Password: settings.Secret(password)}
}

// patient returns options with time-outs that are longer than any test.
func (b *broker) patient(hosts ...string) rabbitmq.Options {
	o := b.options(hosts...)
	o.ConnectTimeout, o.Heartbeat = 5*time.Minute, 5*time.Minute
	return o
}

// port returns the address of another port of the node: offset 1 is the management
// API, offset 2 is TLS.
func (b *broker) port(offset int) string {
	host, port, _ := strings.Cut(b.hosts[0], ":")
	number, _ := strconv.Atoi(port)
	return host + ":" + strconv.Itoa(number+offset)
}

// api calls the management API and decodes the answer into result, unless it is
// nil.
func (b *broker) api(t testing.TB, method, path string, body, result any) {
	t.Helper()
	b.call(t.Context(), t, method, path, body, result)
}

// apiAfter calls the management API in a cleanup, when the test's context has ended.
func (b *broker) apiAfter(t testing.TB, method, path string) {
	t.Helper()
	b.call(context.Background(), t, method, path, nil, nil)
}

func (b *broker) call(ctx context.Context, t testing.TB, method, path string, body, result any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+b.port(1)+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := b.url.User.Password()
	request.SetBasicAuth(b.url.User.Username(), password)
	request.Close = true // leaves no goroutine behind
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode > 299 {
		t.Fatalf("%s %s: %s %s %v", method, path, response.Status, answer, err)
	}
	if result != nil {
		if err := json.Unmarshal(answer, result); err != nil {
			t.Fatal(err)
		}
	}
}

// client is a channel that tests use without the sink.
type client struct {
	*amqp.Channel
	t testing.TB
}

func (b *broker) client(t testing.TB) client {
	t.Helper()
	return client{b.channels(t, 1)[0], t}
}

// channels opens count channels on one connection.
func (b *broker) channels(t testing.TB, count int) []*amqp.Channel {
	t.Helper()
	connection, err := amqp.Dial("amqp://" + b.url.User.String() + "@" + b.hosts[0] + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	channels := make([]*amqp.Channel, count)
	for i := range channels {
		if channels[i], err = connection.Channel(); err != nil {
			t.Fatal(err)
		}
	}
	return channels
}

func name() string { return "test." + rand.Text() }

// queue creates a queue and deletes it after the test.
func (c client) queue(kind string, arguments amqp.Table) string {
	c.t.Helper()
	queue := name()
	all := amqp.Table{"x-queue-type": kind}
	for key, value := range arguments {
		all[key] = value
	}
	if _, err := c.QueueDeclare(queue, true, false, false, false, all); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _, _ = c.QueueDelete(queue, false, false, false) })
	return queue
}

// exchange creates an exchange and deletes it after the test.
func (c client) exchange(kind string, arguments amqp.Table) string {
	c.t.Helper()
	exchange := name()
	if err := c.ExchangeDeclare(exchange, kind, true, false, false, false, arguments); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = c.ExchangeDelete(exchange, false, false) })
	return exchange
}

func (c client) bind(queue, key, exchange string) {
	c.t.Helper()
	if err := c.QueueBind(queue, key, exchange, false, nil); err != nil {
		c.t.Fatal(err)
	}
}

// mailbox collects the messages of a queue.
type mailbox struct {
	client client
	queue  string
	mu     sync.Mutex
	got    []outbox.Message
}

func (b *mailbox) received() []outbox.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		d, ok, err := b.client.Get(b.queue, true)
		if err != nil {
			b.client.t.Errorf("read the queue: %v", err)
		}
		if !ok {
			return append([]outbox.Message(nil), b.got...)
		}
		b.got = append(b.got, asMessage(d))
	}
}

func asMessage(d amqp.Delivery) outbox.Message {
	m := outbox.Message{ID: d.MessageId, Payload: append([]byte{}, d.Body...)}
	for name, value := range d.Headers {
		text, isText := value.(string) // quorum queues add a number
		switch {
		case name == "rowrelay-topic":
			m.Topic = text
		case name == "rowrelay-key":
			m.Key = text
		case name == "rowrelay-payload":
			m.Payload = nil
		case isText:
			if m.Headers == nil {
				m.Headers = map[string]string{}
			}
			m.Headers[name] = text
		}
	}
	return m
}
