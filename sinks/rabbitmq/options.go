package rabbitmq

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func (o Options) withDefaults() Options {
	o.VirtualHost = cmp.Or(o.VirtualHost, "/")
	o.RoutingKey = cmp.Or(o.RoutingKey, DefaultRoutingKey)
	o.Connections = cmp.Or(o.Connections, DefaultConnections)
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	if o.Username == "" && o.Password == "" && !o.External {
		o.Username, o.Password = "guest", "guest"
	}
	return o
}

// check returns the parsed templates, or an error that lists every problem.
func (o Options) check() (exchange, routingKey settings.Template, err error) {
	exchange, err = settings.ParseTemplate(o.Exchange)
	problems := []error{settings.PrefixError("exchange", err)}
	routingKey, err = settings.ParseTemplate(o.RoutingKey)
	problems = append(problems, settings.PrefixError("routing key", err), settings.PrefixError("list of hosts", checkHosts(o.Hosts)), settings.PrefixError("content type", checkShort(o.ContentType)))
	problems = append(problems, o.checkNumbers(), o.checkLogin(), o.Declare.check(o, exchange))
	return exchange, routingKey, errors.Join(problems...)
}

func (o Options) checkNumbers() error {
	switch {
	case o.Connections < 1 || o.Connections > 16:
		return errors.New("the number of connections must be 1 to 16")
	case o.Window < 1 || o.Window > 1000:
		return errors.New("the window must be 1 to 1000")
	case o.ConnectTimeout < 0:
		return errors.New("the time to connect must not be negative")
	case o.Heartbeat < 2*time.Second:
		return errors.New("the heartbeat must be at least two seconds")
	case o.Expiration < 0 || o.Expiration%time.Millisecond != 0:
		return errors.New("the expiration must be a whole number of milliseconds")
	}
	return nil
}

func (o Options) checkLogin() error {
	switch {
	case o.External && (o.Username != "" || o.Password != ""):
		return errors.New("a login by certificate has no user name or password")
	case o.External && (o.TLS == nil || len(o.TLS.Certificates) == 0 && o.TLS.GetClientCertificate == nil):
		return errors.New("a login by certificate needs TLS with a client certificate")
	}
	return nil
}

// checkHosts checks the list of hosts. Its errors complete the sentence "the list of hosts …".
func checkHosts(hosts []string) error {
	if len(hosts) == 0 {
		return errors.New("is empty")
	}
	for _, host := range hosts {
		if _, err := address(host, "5672"); err != nil {
			return err
		}
	}
	return nil
}

// address adds the port to a host that has none.
func address(host, port string) (string, error) {
	name, given := host, port
	if strings.Contains(strings.TrimPrefix(host, "["), ":") {
		var err error
		if name, given, err = net.SplitHostPort(host); err != nil {
			return "", fmt.Errorf("has %q, which is not host or host:port", host)
		}
	}
	number, err := strconv.ParseUint(given, 10, 16)
	if name == "" || err != nil || number == 0 {
		return "", fmt.Errorf("has %q, which is not host or host:port", host)
	}
	return net.JoinHostPort(name, given), nil
}

// addresses returns the hosts with their ports.
func (o Options) addresses() []string {
	port := "5672"
	if o.TLS != nil {
		port = "5671"
	}
	list := make([]string, len(o.Hosts))
	for i, host := range o.Hosts {
		list[i], _ = address(host, port) // checkHosts has checked the host
	}
	return list
}

// mostShort is the maximum length in bytes of AMQP's short strings: names, routing
// keys and most properties.
const mostShort = 255

// checkShort returns an error if a text is too long for a short string.
func checkShort(text string) error {
	if len(text) > mostShort {
		return fmt.Errorf("has %d bytes, but AMQP allows at most %d", len(text), mostShort)
	}
	return nil
}

// Kind returns the description of the sink for a registry. Its name is "rabbitmq",
// and its URLs look like amqp://user:password@host:5672,other/vhost?exchange=orders.
// The query may contain every setting that has no other place in the URL.
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "rabbitmq",
		Summary: "Publishes each message to RabbitMQ, over AMQP 0-9-1.",
		Schemes: []string{"amqp", "amqps"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields:  slices.Concat(fields(), settings.TLSFields(), cloudevents.Fields()),
	}
}

func fields() []settings.Field {
	return []settings.Field{
		{Name: "hosts", Type: settings.TypeList, Required: true, Check: settings.Check(checkHosts), Help: "The nodes of one cluster, as host or host:port. The default port is 5672, or 5671 with TLS."},
		{Name: "virtual_host", Type: settings.TypeString, Default: "/", Help: "The virtual host."},
		{Name: "username", Type: settings.TypeString, Help: "The user name. Without a user name and a password, the sink logs in as guest."},
		{Name: "password", Type: settings.TypeSecret, Help: "The user's password."},
		{Name: "tls", Type: settings.TypeBool, Default: "false", Help: "Connects over TLS."},
		{Name: "login_by_certificate", Type: settings.TypeBool, Default: "false", Help: "Logs in with the client's certificate instead of a password (SASL EXTERNAL)."},
		{Name: "exchange", Type: settings.TypeString, Check: settings.Parses(settings.ParseTemplate), Help: "The exchange to publish to; empty means the default exchange. It may contain {topic}, {key}, {id} and {header:NAME}, which the message's values replace."},
		{Name: "routing_key", Type: settings.TypeString, Default: DefaultRoutingKey, Check: settings.Parses(settings.ParseTemplate), Help: "The routing key. It may contain the same placeholders as exchange."},
		{Name: "mandatory", Type: settings.TypeBool, Default: "true", Help: "Parks messages that no queue receives. If false, they count as delivered."},
		{Name: "persistent", Type: settings.TypeBool, Default: "true", Help: "Publishes messages as persistent, so that the broker writes them to disk."},
		{Name: "content_type", Type: settings.TypeString, Check: settings.Check(checkShort), Help: "The content type of messages without a Content-Type header. By default application/json for a JSON object or array, otherwise application/octet-stream."},
		{Name: "expiration", Type: settings.TypeDuration, Min: "0s", Max: "1000h", Help: "How long a message may wait in a queue before the broker drops or dead-letters it. Without this setting there is no limit."},
		{Name: "priority", Type: settings.TypeBool, Default: "false", Help: "Sets the AMQP priority to the message's priority, limited to the range 0 to 255."},
		{Name: "connections", Type: settings.TypeInt, Default: fmt.Sprint(DefaultConnections), Min: "1", Max: "16", Help: "The number of connections. All messages of a key go through the same connection."},
		{Name: "window", Type: settings.TypeInt, Default: fmt.Sprint(DefaultWindow), Min: "1", Max: "1000", Help: "The maximum number of unconfirmed messages on a channel; at most one per key."},
		{Name: "connect_timeout", Type: settings.TypeDuration, Default: DefaultConnectTimeout.String(), Min: "100ms", Max: "5m", Help: "How long connecting to one host may take, including the login."},
		{Name: "heartbeat", Type: settings.TypeDuration, Default: DefaultHeartbeat.String(), Min: "2s", Max: "10m", Help: "The interval of the heartbeats that both sides send, in whole seconds."},
		{Name: "declare_exchange", Type: settings.TypeString, Choices: exchangeTypes, Help: "Creates the exchange, durable and of this type, if it does not exist."},
		{Name: "declare_queue", Type: settings.TypeString, Check: settings.Check(checkShort), Help: "Creates a durable queue of this name if it does not exist, and binds it to the exchange."},
		{Name: "declare_queue_type", Type: settings.TypeString, Default: "quorum", Choices: queueTypes, Help: "The type of the queue to create."},
		{Name: "declare_binding_key", Type: settings.TypeString, Check: settings.Check(checkShort), Help: "The routing key of the queue's binding, required unless the exchange is the default, a fanout or a headers exchange. With a topic exchange, # matches all routing keys."},
	}
}

func fromSettings(s settings.Values) (sinks.Sink, error) {
	if !s.Bool("tls") && s.Text("ca_file")+s.Text("cert_file")+s.Text("key_file") != "" {
		return nil, errors.New("ca_file, cert_file and key_file need TLS: set tls, or write amqps in the URL")
	}
	config, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if s.Bool("tls") {
		config = cmp.Or(config, &tls.Config{})
	}
	return New(Options{
		Hosts: s.List("hosts"), VirtualHost: s.Text("virtual_host"),
		Username: s.Text("username"), Password: s.Secret("password"),
		TLS: config, External: s.Bool("login_by_certificate"),
		Exchange: s.Text("exchange"), RoutingKey: s.Text("routing_key"),
		Unroutable: !s.Bool("mandatory"), Transient: !s.Bool("persistent"),
		ContentType: s.Text("content_type"), Expiration: s.Duration("expiration"), Priority: s.Bool("priority"),
		Connections: s.Int("connections"), Window: s.Int("window"),
		ConnectTimeout: s.Duration("connect_timeout"), Heartbeat: s.Duration("heartbeat"),
		Declare: topologyFrom(s), CloudEvents: cloudevents.FromSettings(s),
	})
}

func topologyFrom(s settings.Values) *Topology {
	t := Topology{
		ExchangeType: s.Text("declare_exchange"), Queue: s.Text("declare_queue"),
		QueueType: s.Text("declare_queue_type"), BindingKey: s.Text("declare_binding_key"),
	}
	if t.ExchangeType == "" && t.Queue == "" && t.BindingKey == "" {
		return nil
	}
	return &t
}

// fromURL returns the settings in amqp://user:password@host:port,host/vhost?setting=value.
func fromURL(u *url.URL) (map[string]any, error) {
	if u.Host == "" || u.Opaque != "" || u.Fragment != "" {
		return nil, errors.New("it must have the form amqp://user:password@host:5672/vhost?exchange=name, with %23 for a # and %2F for a / in a name")
	}
	settings, err := settings.FromURL(u, "hosts", "tls", "virtual_host", "username", "password")
	if err != nil {
		return nil, err
	}
	settings["hosts"], settings["tls"] = strings.Split(u.Host, ","), u.Scheme == "amqps"
	if name := strings.TrimPrefix(u.Path, "/"); name != "" {
		settings["virtual_host"] = name
	}
	return settings, nil
}
