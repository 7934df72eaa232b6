package kafka

import (
	"cmp"
	"context"
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

// Defaults of [Options].
const (
	DefaultTopic           = "{topic}"
	DefaultMaxMessageBytes = 1 << 20
	DefaultConcurrency     = 8
	DefaultRequestTimeout  = 10 * time.Second
	DefaultLeaderTimeout   = 3 * time.Second
	DefaultClientID        = "rowrelay"
)

// Options say where records go and how they are written. Only Brokers is
// required.
type Options struct {
	// Brokers are the addresses, as host:port, that the cluster is found by;
	// without a port it is 9092.
	Brokers []string

	// Topic is the topic to write to. {topic}, {key}, {id} and {header:NAME} stand
	// for what the message has. Defaults to [DefaultTopic].
	Topic string

	// PartitionHeader names the header whose number says which partition a
	// message goes to. It is not sent. Messages without it, and all messages
	// where this is empty, go by their key, as with Java's own producer.
	PartitionHeader string

	// CreatedTime gives records the time at which their message was written.
	// By default it is the time of sending.
	CreatedTime bool

	// Compression is none, the default, or gzip, snappy, lz4 or zstd.
	Compression string

	// MaxMessageBytes is the topics' max.message.bytes: a record that is larger
	// is rejected, and record batches are kept below it. Defaults to
	// [DefaultMaxMessageBytes].
	MaxMessageBytes int

	// Concurrency is how many record batches are under way at once, at most; one a
	// partition. Defaults to [DefaultConcurrency].
	Concurrency int

	// RequestTimeout is how long one request may take. Brokers are told to wait
	// half of it for their replicas. Defaults to [DefaultRequestTimeout].
	RequestTimeout time.Duration

	// LeaderTimeout is how long a Send waits for partitions that have no leader,
	// or whose leader can't be reached. Defaults to [DefaultLeaderTimeout].
	LeaderTimeout time.Duration

	// ParkUnknownTopics rejects messages whose topic isn't there, or can't be created. By default
	// they wait until it is.
	ParkUnknownTopics bool

	// CreateTopics creates topics that are not there, with so many partitions
	// and replicas; 0 leaves the number to the broker.
	CreateTopics                     bool
	CreatePartitions, CreateReplicas int

	// ClientID is what brokers know the sink by in their logs and quotas.
	// Defaults to [DefaultClientID].
	ClientID string

	// TLS makes connections with TLS, and configures it. Nil makes them without.
	TLS *tls.Config

	// SASL is the way to log in: plain, scram-sha-256 or scram-sha-512. Empty
	// logs in not at all.
	SASL     string
	Username string
	Password settings.Secret

	// CloudEvents makes the records CloudEvents; off by default.
	CloudEvents cloudevents.Options

	// Dial makes the connections. Defaults to that of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (o Options) withDefaults() Options {
	o.Topic = cmp.Or(o.Topic, DefaultTopic)
	o.Compression = cmp.Or(o.Compression, "none")
	o.MaxMessageBytes = cmp.Or(o.MaxMessageBytes, DefaultMaxMessageBytes)
	o.Concurrency = cmp.Or(o.Concurrency, DefaultConcurrency)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, DefaultRequestTimeout)
	o.LeaderTimeout = cmp.Or(o.LeaderTimeout, DefaultLeaderTimeout)
	o.ClientID = cmp.Or(o.ClientID, DefaultClientID)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	o.Brokers = slices.Clone(o.Brokers)
	for i, broker := range o.Brokers {
		o.Brokers[i] = withPort(broker)
	}
	return o
}

func withPort(broker string) string {
	if _, _, err := net.SplitHostPort(broker); err != nil && !strings.HasSuffix(broker, ":") {
		return net.JoinHostPort(strings.Trim(broker, "[]"), "9092")
	}
	return broker
}

func (o Options) check() error {
	_, wrong := parseTopic(o.Topic)
	_, compresses := compressions[o.Compression]
	problems := []error{checkBrokers(o.Brokers), settings.PrefixError("topic", wrong), settings.PrefixError("login", o.checkLogin())}
	if !compresses {
		problems = append(problems, fmt.Errorf("the compression %q must be one of none, gzip, snappy, lz4, zstd", o.Compression))
	}
	if o.MaxMessageBytes < 0 || o.Concurrency < 0 || o.RequestTimeout < 0 || o.LeaderTimeout < 0 || o.CreatePartitions < 0 || o.CreateReplicas < 0 {
		problems = append(problems, errors.New("sizes, numbers and time-outs must not be negative"))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("make a kafka sink: %w", err)
	}
	return nil
}

func checkBrokers(brokers []string) error {
	if len(brokers) == 0 {
		return errors.New("the brokers are missing: give at least one as host:port")
	}
	for i, broker := range brokers {
		host, port, err := net.SplitHostPort(broker)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || host == "" || strings.ContainsAny(host, "/@?") {
			return fmt.Errorf("broker %d must be like host:9092", i+1)
		}
	}
	return nil
}

func (o Options) checkLogin() error {
	_, known := mechanisms[o.SASL]
	switch {
	case o.SASL == "" && (o.Username != "" || o.Password != ""):
		return errors.New("has a user name or password, but no sasl: set it to plain, scram-sha-256 or scram-sha-512")
	case o.SASL == "":
		return nil
	case !known:
		return fmt.Errorf("has the sasl %q: it must be plain, scram-sha-256 or scram-sha-512", o.SASL)
	case o.Username == "" || o.Password == "":
		return errors.New("needs a user name and a password")
	}
	return nil
}

// Kind describes the sink for a registry: the kind "kafka", and URLs such as
// kafka://host:9092,host2:9092/topic?compression=zstd.
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "kafka",
		Summary: "Writes each message as a record to an Apache Kafka topic.",
		Schemes: []string{"kafka"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields:  slices.Concat(fields, settings.TLSFields(), cloudevents.Fields()),
	}
}

var fields = []settings.Field{
	{Name: "brokers", Type: settings.TypeList, Required: true, Check: settings.Check(checkList), Help: "The addresses that the cluster is found by, as host:port."},
	{Name: "topic", Type: settings.TypeString, Default: DefaultTopic, Check: settings.Parses(parseTopic), Help: "The topic to write to. {topic}, {key}, {id} and {header:NAME} stand for what the message has."},
	{Name: "partition_header", Type: settings.TypeString, Help: "The header whose number says which partition a message goes to. It is not sent. Messages without it go by their key."},
	{Name: "timestamp", Type: settings.TypeString, Default: "sent", Choices: []string{"sent", "created"}, Help: "The records' time: that of sending, or that at which the message was written. A topic may delete a replayed record at once if its time is older than the retention."},
	{Name: "compression", Type: settings.TypeString, Default: "none", Choices: []string{"none", "gzip", "snappy", "lz4", "zstd"}, Help: "How record batches are compressed."},
	{Name: "idempotent", Type: settings.TypeBool, Help: "No record twice in its topic, also where a relay dies: what is sent is written down first. Needs Kafka 2.8, a relay that claims by lanes, and the right to read the topics."},
	{Name: "max_message_bytes", Type: settings.TypeSize, Default: "1MiB", Min: "1KiB", Max: "1GiB", Help: "The topics' max.message.bytes. A record that is larger, compressed and with about 100 bytes around it, is parked; record batches are kept below it."},
	{Name: "concurrency", Type: settings.TypeInt, Default: fmt.Sprint(DefaultConcurrency), Min: "1", Max: "1000", Help: "How many record batches are under way at once, at most; one a partition."},
	{Name: "request_timeout", Type: settings.TypeDuration, Default: DefaultRequestTimeout.String(), Min: "100ms", Max: "10m", Help: "How long one request may take. Brokers wait half of it for their replicas. Keep it below the time-out of the sink's batches."},
	{Name: "leader_timeout", Type: settings.TypeDuration, Default: DefaultLeaderTimeout.String(), Min: "10ms", Max: "10m", Help: "How long a batch waits for partitions without a leader before the sink is called unavailable."},
	{Name: "unknown_topic", Type: settings.TypeString, Default: "wait", Choices: []string{"wait", "park"}, Help: "What a topic that isn't there does: its messages wait until it is there, or are parked. Also where it can't be created."},
	{Name: "create_topics", Type: settings.TypeBool, Help: "Create topics that are not there."},
	{Name: "create_partitions", Type: settings.TypeInt, Min: "0", Max: "100000", Help: "The partitions of created topics; 0 leaves it to the broker."},
	{Name: "create_replicas", Type: settings.TypeInt, Min: "0", Max: "100", Help: "The replicas of created topics; 0 leaves it to the broker."},
	{Name: "client_id", Type: settings.TypeString, Default: DefaultClientID, Help: "What brokers know the sink by in their logs and quotas."},
	{Name: "tls", Type: settings.TypeBool, Help: "Connect with TLS. On where server_name, ca_file, cert_file or key_file is there."},
	{Name: "server_name", Type: settings.TypeString, Help: "The name that brokers' certificates must have. By default that of their address."},
	{Name: "sasl", Type: settings.TypeString, Choices: []string{"plain", "scram-sha-256", "scram-sha-512"}, Help: "How to log in. Empty: not at all."},
	{Name: "username", Type: settings.TypeString, Help: "The user name to log in with."},
	{Name: "password", Type: settings.TypeSecret, Help: "The password to log in with."},
}

func checkList(addresses []string) error {
	brokers := Options{Brokers: addresses}.withDefaults().Brokers
	if err := checkBrokers(brokers); err != nil {
		return fmt.Errorf("must be addresses such as host:9092: %w", err)
	}
	return nil
}

func fromSettings(s settings.Values) (sinks.Sink, error) {
	config, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if name := s.Text("server_name"); config != nil || s.Bool("tls") || name != "" {
		config = cmp.Or(config, &tls.Config{})
		config.ServerName = name
	}
	options := Options{
		Brokers:           s.List("brokers"),
		Topic:             s.Text("topic"),
		PartitionHeader:   s.Text("partition_header"),
		CreatedTime:       s.Text("timestamp") == "created",
		Compression:       s.Text("compression"),
		MaxMessageBytes:   int(s.Size("max_message_bytes")),
		Concurrency:       s.Int("concurrency"),
		RequestTimeout:    s.Duration("request_timeout"),
		LeaderTimeout:     s.Duration("leader_timeout"),
		ParkUnknownTopics: s.Text("unknown_topic") == "park",
		CreateTopics:      s.Bool("create_topics"),
		CreatePartitions:  s.Int("create_partitions"),
		CreateReplicas:    s.Int("create_replicas"),
		ClientID:          s.Text("client_id"),
		CloudEvents:       cloudevents.FromSettings(s),
		TLS:               config,
		SASL:              s.Text("sasl"),
		Username:          s.Text("username"),
		Password:          s.Secret("password"),
	}
	if s.Bool("idempotent") {
		return NewIdempotent(options)
	}
	return New(options)
}

// fromURL reads brokers, topic and login from the URL's parts, and any other
// setting from its query. The login is by PLAIN unless the query says otherwise.
func fromURL(u *url.URL) (map[string]any, error) {
	settings, err := settings.FromURL(u, "brokers", "topic", "username", "password")
	if err != nil {
		return nil, err
	}
	if u.Host == "" {
		return nil, errors.New("the host is missing: write kafka://username:password@host:9092,host2:9092/topic")
	}
	settings["brokers"] = strings.Split(u.Host, ",")
	if topic := strings.TrimPrefix(u.Path, "/"); topic != "" {
		settings["topic"] = topic
	}
	if u.User != nil && settings["sasl"] == nil {
		settings["sasl"] = "plain"
	}
	return settings, nil
}
