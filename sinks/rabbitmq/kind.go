package rabbitmq

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
)

// Kind describes the sink for a registry: the kind "rabbitmq", and URLs like
// amqp://user:password@host:5672,other/vhost?exchange=orders, whose query may
// have any of the settings that are no secret.
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "rabbitmq",
		Summary: "Publishes each message to RabbitMQ, over AMQP 0-9-1.",
		Schemes: []string{"amqp", "amqps"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields:  append(fields(), cloudevents.Fields()...),
	}
}

func fields() []sinks.Field {
	return []sinks.Field{
		{Name: "hosts", Type: sinks.TypeList, Required: true, Check: checkHostsValue, Help: "The nodes of one cluster, as host or host:port. The port is 5672 by default, 5671 with TLS."},
		{Name: "virtual_host", Type: sinks.TypeString, Default: "/", Help: "The virtual host."},
		{Name: "username", Type: sinks.TypeString, Help: "The user's name. Without it and a password, guest."},
		{Name: "password", Type: sinks.TypeSecret, Help: "The user's password."},
		{Name: "tls", Type: sinks.TypeBool, Default: "false", Help: "Connects over TLS."},
		{Name: "ca_file", Type: sinks.TypeString, Help: "A file with the certificates, in PEM form, to trust instead of the system's."},
		{Name: "certificate_file", Type: sinks.TypeString, Help: "A file with the client's certificate, in PEM form."},
		{Name: "key_file", Type: sinks.TypeString, Help: "A file with the key of that certificate, in PEM form."},
		{Name: "login_by_certificate", Type: sinks.TypeBool, Default: "false", Help: "Logs in by the client's certificate instead of a password (SASL EXTERNAL)."},
		{Name: "exchange", Type: sinks.TypeString, Check: checkTemplate, Help: "The exchange to publish to, the default one if empty. A template: {topic}, {key}, {id} and {header:NAME} stand for what the message has."},
		{Name: "routing_key", Type: sinks.TypeString, Default: DefaultRoutingKey, Check: checkTemplate, Help: "The routing key, a template as well."},
		{Name: "mandatory", Type: sinks.TypeBool, Default: "true", Help: "Parks messages that no queue receives. Otherwise they count as delivered."},
		{Name: "persistent", Type: sinks.TypeBool, Default: "true", Help: "Has the broker write messages to its disk."},
		{Name: "content_type", Type: sinks.TypeString, Check: checkShortValue, Help: "The content type of messages that don't set it. By default application/json for a JSON object or array, and application/octet-stream for any other payload."},
		{Name: "expiration", Type: sinks.TypeDuration, Min: "0s", Max: "1000h", Help: "How long a message may wait in a queue before the broker drops or dead-letters it. Without it, no limit."},
		{Name: "priority", Type: sinks.TypeBool, Default: "false", Help: "Sets AMQP's priority to the message's, cut to 0 to 255."},
		{Name: "connections", Type: sinks.TypeInt, Default: fmt.Sprint(DefaultConnections), Min: "1", Max: "16", Help: "How many connections are kept. A key always goes through the same one."},
		{Name: "window", Type: sinks.TypeInt, Default: fmt.Sprint(DefaultWindow), Min: "1", Max: "1000", Help: "How many messages may be unconfirmed on a channel; one of a key."},
		{Name: "connect_timeout", Type: sinks.TypeDuration, Default: DefaultConnectTimeout.String(), Min: "100ms", Max: "5m", Help: "How long one host may take to answer, up to the end of the login."},
		{Name: "heartbeat", Type: sinks.TypeDuration, Default: DefaultHeartbeat.String(), Min: "2s", Max: "10m", Help: "How often both sides show that they live, in whole seconds."},
		{Name: "declare_exchange", Type: sinks.TypeString, Choices: exchangeTypes, Help: "Creates the exchange, durable and of this type, if it isn't there."},
		{Name: "declare_queue", Type: sinks.TypeString, Check: checkShortValue, Help: "Creates a durable queue of this name, if it isn't there, and binds it to the exchange."},
		{Name: "declare_queue_type", Type: sinks.TypeString, Default: "quorum", Choices: queueTypes, Help: "The type of the queue to create."},
		{Name: "declare_binding_key", Type: sinks.TypeString, Check: checkShortValue, Help: "The routing key that the queue is bound with. With a topic exchange, # takes everything."},
	}
}

func checkHostsValue(value any) error { return checkHosts(value.([]string)) }

func checkShortValue(value any) error { return checkShort(value.(string)) }

func checkTemplate(value any) error {
	_, err := parseTemplate(value.(string))
	return err
}

func fromSettings(s sinks.Settings) (sinks.Sink, error) {
	trust, err := tlsFrom(s)
	if err != nil {
		return nil, err
	}
	return New(Options{
		Hosts: s.List("hosts"), VirtualHost: s.Text("virtual_host"),
		Username: s.Text("username"), Password: s.Secret("password"),
		TLS: trust, External: s.Bool("login_by_certificate"),
		Exchange: s.Text("exchange"), RoutingKey: s.Text("routing_key"),
		Unroutable: !s.Bool("mandatory"), Transient: !s.Bool("persistent"),
		ContentType: s.Text("content_type"), Expiration: s.Duration("expiration"), Priority: s.Bool("priority"),
		Connections: s.Int("connections"), Window: s.Int("window"),
		ConnectTimeout: s.Duration("connect_timeout"), Heartbeat: s.Duration("heartbeat"),
		Declare: topologyFrom(s), CloudEvents: cloudevents.FromSettings(s),
	})
}

func topologyFrom(s sinks.Settings) *Topology {
	t := Topology{
		ExchangeType: s.Text("declare_exchange"), Queue: s.Text("declare_queue"),
		QueueType: s.Text("declare_queue_type"), BindingKey: s.Text("declare_binding_key"),
	}
	if t.ExchangeType == "" && t.Queue == "" && t.BindingKey == "" {
		return nil
	}
	return &t
}

// tlsFrom returns the configuration that the settings ask for; nil without TLS.
func tlsFrom(s sinks.Settings) (*tls.Config, error) {
	authority, certificate, key := s.Text("ca_file"), s.Text("certificate_file"), s.Text("key_file")
	switch {
	case !s.Bool("tls") && authority+certificate+key != "":
		return nil, errors.New("ca_file, certificate_file and key_file are for TLS: set tls, or write amqps in the URL")
	case !s.Bool("tls"):
		return nil, nil
	case (certificate == "") != (key == ""):
		return nil, errors.New("certificate_file and key_file belong together: one of them is missing")
	}
	config := &tls.Config{}
	if err := addRoots(config, authority); err != nil {
		return nil, err
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("read certificate_file and key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func addRoots(config *tls.Config, path string) error {
	if path == "" {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read ca_file: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("read ca_file: %s has no certificate in PEM form", path)
	}
	return nil
}

// fromURL reads amqp://user:password@host:port,host/vhost?setting=value.
func fromURL(u *url.URL) (map[string]any, error) {
	settings, err := fromQuery(u.RawQuery)
	if err != nil {
		return nil, err
	}
	if u.Host == "" || u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("it must be like amqp://user:password@host:5672/vhost?exchange=name, with %23 for a # and %2F for a / in a name")
	}
	settings["hosts"], settings["tls"] = strings.Split(u.Host, ","), u.Scheme == "amqps"
	if name := strings.TrimPrefix(u.Path, "/"); name != "" {
		settings["virtual_host"] = name
	}
	if password, ok := u.User.Password(); ok && password != "" {
		settings["password"] = password
	}
	if name := u.User.Username(); name != "" {
		settings["username"] = name
	}
	return settings, nil
}

// notInQuery are settings that stand elsewhere in a URL.
var notInQuery = map[string]bool{"hosts": true, "tls": true, "virtual_host": true, "username": true, "password": true}

func fromQuery(query string) (map[string]any, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("its query is malformed: special characters must be percent-encoded")
	}
	settings := map[string]any{}
	for name, texts := range values {
		if notInQuery[name] {
			return nil, fmt.Errorf("%s can't be set in the query", name)
		}
		if len(texts) > 1 {
			return nil, fmt.Errorf("%s is set more than once", name)
		}
		settings[name] = texts[0]
	}
	return settings, nil
}
