package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

// certificates are the certificates that the scripts of the test broker created.
type certificates struct {
	CA, Certificate, Key string
}

func (b *broker) certificates(t testing.TB) certificates {
	t.Helper()
	var parameter struct{ Value certificates }
	b.api(t, "GET", "/api/global-parameters/rowrelay_test", nil, &parameter)
	return parameter.Value
}

func (c certificates) config(t testing.TB) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(c.CA)) {
		t.Fatal("no certificate of the authority")
	}
	return &tls.Config{RootCAs: roots}
}

func (c certificates) client(t testing.TB) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
	if err != nil {
		t.Fatal(err)
	}
	config := c.config(t)
	config.Certificates = []tls.Certificate{pair}
	return config
}

// unopened returns a sink that is closed after the test.
func unopened(t testing.TB, options rabbitmq.Options) *rabbitmq.Sink {
	t.Helper()
	sink := newSink(t, options)
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	return sink
}

func TestTLS(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	made := b.certificates(t)
	queue := b.client(t).queue("classic", nil)
	plain := b.options(b.port(2))
	plain.TLS = made.config(t)
	byCertificate := rabbitmq.Options{Hosts: plain.Hosts, External: true, TLS: made.client(t)}
	withBoth := plain
	withBoth.TLS = made.client(t)
	for name, options := range map[string]rabbitmq.Options{"password": plain, "certificate": byCertificate, "both": withBoth} {
		if outcomes := opened(t, options).Send(t.Context(), []sinks.Message{to(queue, "a"), to(queue, "a")}); outcomes[1].Result != sinks.Delivered {
			t.Errorf("%s: %+v", name, outcomes)
		}
	}
}

func TestTLSErrors(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	made := b.certificates(t)
	named, other := made.config(t), &tls.Config{RootCAs: x509.NewCertPool()}
	named.ServerName = "other.example"
	byItself := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(state tls.ConnectionState) error {
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: x509.NewCertPool()})
		return err
	}}
	for name, test := range map[string]struct {
		port   int
		tls    *tls.Config
		reason sinks.Reason
		text   string
	}{
		"another authority": {2, other, sinks.ReasonConfig, "unknown authority"},
		"another name":      {2, named, sinks.ReasonConfig, "other.example"},
		"its own verifier":  {2, byItself, sinks.ReasonConfig, "unknown authority"},
		"TLS to no TLS":     {0, made.config(t), sinks.ReasonConfig, "TLS handshake"},
		"no TLS to TLS":     {2, nil, sinks.ReasonConnection, "connect to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := b.options(b.port(test.port))
			options.TLS = test.tls
			unavailable(t, unopened(t, options).Open(t.Context()), test.reason, test.text)
		})
	}
}

// TestTLSSettings connects over TLS with the settings of a configuration file.
func TestTLSSettings(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	made, settings := b.certificates(t), map[string]any{"hosts": []any{b.port(2)}, "tls": true, "login_by_certificate": true}
	for setting, text := range map[string]string{"ca_file": made.CA, "cert_file": made.Certificate, "key_file": made.Key} {
		path := filepath.Join(t.TempDir(), setting)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		settings[setting] = path
	}
	sink, err := registry(t).Make("rabbitmq", settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	if err := sink.Open(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLoginErrors(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	user := b.user(t, name(), "", "")
	wrong, noHost, noRight := b.options(), b.options(), user
	wrong.Password = "s3cret-and-wrong"
	noHost.VirtualHost = "no such virtual host"
	noRight.VirtualHost = b.virtualHost(t)
	for name, test := range map[string]struct {
		options rabbitmq.Options
		reason  sinks.Reason
		texts   []string
	}{
		"password":              {wrong, sinks.ReasonAuth, []string{"username or password not allowed"}},
		"no virtual host":       {noHost, sinks.ReasonConfig, []string{"NOT_ALLOWED - vhost no such virtual host not found"}},
		"not this virtual host": {noRight, sinks.ReasonAuth, []string{"NOT_ALLOWED - access to vhost"}},
	} {
		sink := unopened(t, test.options)
		unavailable(t, sink.Open(t.Context()), test.reason, test.texts...)
		expect(t, sink.Send(t.Context(), []sinks.Message{to("q", "a"), to("q", "a")}), always(fmt.Sprint("unavailable ", test.reason)))
		if t.Failed() {
			t.Log(name)
		}
	}
}

// user creates a user with the right to write to and to create the objects that match
// the patterns.
func (b *broker) user(t testing.TB, name, write, configure string) rabbitmq.Options {
	t.Helper()
	b.api(t, "PUT", "/api/users/"+name, map[string]any{"password": "p4ss", "tags": ""}, nil)
	t.Cleanup(func() { b.apiAfter(t, "DELETE", "/api/users/"+name) })
	b.api(t, "PUT", "/api/permissions/%2F/"+name, map[string]any{"configure": configure, "write": write, "read": ".*"}, nil)
	options := b.options()
	options.Username, options.Password = name, "p4ss"
	return options
}

func (b *broker) virtualHost(t testing.TB) string {
	t.Helper()
	host := name()
	b.api(t, "PUT", "/api/vhosts/"+host, nil, nil)
	t.Cleanup(func() { b.apiAfter(t, "DELETE", "/api/vhosts/"+host) })
	return host
}

// TestNoRightToPublish: without the right to publish to the exchange of all messages,
// the sink is unavailable. Without the right to publish with a routing key, only the
// messages with this key are rejected.
func TestNoRightToPublish(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	queue, exchange := c.queue("classic", nil), c.exchange("topic", nil)
	c.bind(queue, "#", exchange)
	none := b.user(t, name(), "^$", "")
	none.Exchange = exchange
	sink := opened(t, none) // the broker refuses the probe, too
	expect(t, sink.Send(t.Context(), []sinks.Message{to("t", "a"), to("t", "a")}), func(i int) string {
		return []string{"unavailable auth", "unsent blocked"}[i]
	})

	some := b.user(t, name(), ".*", "")
	some.Exchange, some.Connections = exchange, 1
	b.api(t, "PUT", "/api/topic-permissions/%2F/"+some.Username, map[string]any{"exchange": exchange, "write": "^allowed", "read": ".*"}, nil)
	batch := many(20, func(i int) sinks.Message { return to([]string{"allowed", "forbidden"}[i%10/9], fmt.Sprint(i)) })
	expect(t, opened(t, some).Send(t.Context(), batch), func(i int) string {
		if i%10 == 9 {
			return "reject refused"
		}
		return "delivered"
	})
}

// TestDeclare: the created exchange and queue work. If the queue exists with other
// properties, or the user has no right to create it, the sink is unavailable.
func TestDeclare(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	c := b.client(t)
	options := b.options()
	options.Exchange = name()
	options.Declare = &rabbitmq.Topology{ExchangeType: "topic", Queue: name(), BindingKey: "orders.#"}
	t.Cleanup(func() {
		_, _ = c.QueueDelete(options.Declare.Queue, false, false, false)
		_ = c.ExchangeDelete(options.Exchange, false, false)
	})
	sink := opened(t, options)
	expect(t, sink.Send(t.Context(), []sinks.Message{to("orders.paid", "a"), to("other", "b")}), func(i int) string {
		return []string{"delivered", "reject unroutable"}[i]
	})
	if got := len((&mailbox{client: c, queue: options.Declare.Queue}).count()); got != 1 {
		t.Errorf("%d arrived, want 1", got)
	}
	if err := sink.Open(t.Context()); err != nil {
		t.Error(err)
	}
	other := *options.Declare
	other.QueueType = "classic"
	options.Declare = &other
	unavailable(t, unopened(t, options).Open(t.Context()), sinks.ReasonConfig, "create the queue")
	noRight := b.user(t, name(), ".*", "^$")
	noRight.Declare = &rabbitmq.Topology{Queue: name()}
	unavailable(t, unopened(t, noRight).Open(t.Context()), sinks.ReasonAuth, "create the queue")
}

func TestCheckDeclaresNothing(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	options := b.options()
	options.Exchange = name()
	options.Declare = &rabbitmq.Topology{ExchangeType: "topic", Queue: name(), BindingKey: "#"}
	if err := unopened(t, options).Check(t.Context()); err != nil {
		t.Errorf("check before the first start: %v", err)
	}
	if _, err := b.client(t).QueueDeclarePassive(options.Declare.Queue, true, false, false, false, nil); err == nil {
		t.Error("Check has created the queue")
	}
	if err := b.client(t).ExchangeDeclarePassive(options.Exchange, "topic", true, false, false, false, nil); err == nil {
		t.Error("Check has created the exchange")
	}
	options.Declare = nil
	unavailable(t, unopened(t, options).Check(t.Context()), sinks.ReasonConfig, options.Exchange)
}

// Check refuses an exchange or a queue that exists with other properties, as Open does.
func TestCheckFindsOtherProperties(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	options := b.options()
	options.Exchange = name()
	options.Declare = &rabbitmq.Topology{ExchangeType: "topic", Queue: name(), QueueType: "classic", BindingKey: "#"}
	client := b.client(t)
	if err := client.ExchangeDeclare(options.Exchange, "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.QueueDeclare(options.Declare.Queue, true, false, false, false, amqp.Table{"x-queue-type": "classic"}); err != nil {
		t.Fatal(err)
	}
	if err := unopened(t, options).Check(t.Context()); err != nil {
		t.Errorf("with the same properties: %v", err)
	}
	for _, other := range []rabbitmq.Topology{
		{ExchangeType: "topic", Queue: options.Declare.Queue, QueueType: "quorum", BindingKey: "#"},
		{ExchangeType: "direct", Queue: options.Declare.Queue, QueueType: "classic", BindingKey: "#"},
	} {
		options.Declare = &other
		unavailable(t, unopened(t, options).Check(t.Context()), sinks.ReasonConfig, "check the")
		unavailable(t, unopened(t, options).Open(t.Context()), sinks.ReasonConfig, "create the")
	}
}

// Check finds that the only queue to which the sink sends doesn't exist. The user may not create queues.
func TestCheckFindsAMissingQueue(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	options := b.user(t, name(), ".*", "^$")
	options.Exchange, options.RoutingKey, options.Declare = "", name(), nil
	unavailable(t, unopened(t, options).Check(t.Context()), sinks.ReasonConfig, "find the queue")
	if _, err := b.client(t).QueueDeclare(options.RoutingKey, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	if err := unopened(t, options).Check(t.Context()); err != nil {
		t.Errorf("with the queue: %v", err)
	}
	options.RoutingKey = "orders.{topic}"
	if err := unopened(t, options).Check(t.Context()); err != nil {
		t.Errorf("with a template: %v", err)
	}
}

// A probe message would appear in a firehose trace and in alternate exchanges.
func TestCheckPublishesNothing(t *testing.T) {
	t.Parallel()
	b := theBroker(t)
	p := newProxy(t, b.hosts[0])
	published := p.watch()
	if err := unopened(t, b.options(p.address())).Check(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-published:
		t.Error("Check has published a message")
	default:
	}
	if err := unopened(t, b.options(p.address())).Open(t.Context()); err != nil {
		t.Error(err)
	}
	<-published // by Open
}
