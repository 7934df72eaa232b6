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
	"github.com/rowrelay/rowrelay/sinks/oauth2"
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

// Options configure a [Sink]. Only Brokers is required.
type Options struct {
	// Brokers are the addresses of the bootstrap brokers, as host:port. The port
	// defaults to 9092.
	Brokers []string

	// Topic is the topic to write to. It is a template: the message's values replace
	// {topic}, {key}, {id} and {header:NAME}. Defaults to [DefaultTopic].
	Topic string

	// PartitionHeader names the message header that holds the number of the
	// partition to write to. The header is not sent. For messages without this header,
	// and for all messages if PartitionHeader is empty, the message's key determines the
	// partition, as in Kafka's Java producer.
	PartitionHeader string

	// CreatedTime sets each record's timestamp to the time at which the message was
	// written to the outbox. By default the timestamp is the time of sending.
	CreatedTime bool

	// Compression is none (the default), gzip, snappy, lz4 or zstd.
	Compression string

	// MaxMessageBytes should equal the topics' max.message.bytes. The sink limits record
	// batches to this size and rejects a message whose record is larger. Defaults to
	// [DefaultMaxMessageBytes].
	MaxMessageBytes int

	// Concurrency is the maximum number of record batches in flight, with at most
	// one per partition. Defaults to [DefaultConcurrency].
	Concurrency int

	// RequestTimeout is the time-out of one request. Brokers wait for their
	// replicas for at most half of this time. Defaults to [DefaultRequestTimeout].
	RequestTimeout time.Duration

	// LeaderTimeout is how long a Send retries a partition that has no leader, or
	// whose leader can't be reached. Defaults to [DefaultLeaderTimeout].
	LeaderTimeout time.Duration

	// ParkUnknownTopics rejects messages whose topic does not exist or can't be created. By
	// default they wait until the topic exists.
	ParkUnknownTopics bool

	// CreateTopics creates topics that do not exist, with CreatePartitions
	// partitions and CreateReplicas replicas. For either number, 0 means the
	// broker's default.
	CreateTopics                     bool
	CreatePartitions, CreateReplicas int

	// ClientID is the client id that brokers use in their logs and quotas.
	// Defaults to [DefaultClientID].
	ClientID string

	// TLS is the TLS configuration of the connections. Nil connects without TLS.
	TLS *tls.Config

	// SASL is the mechanism to log in with: plain, scram-sha-256 or scram-sha-512,
	// which need Username and Password, or oauthbearer, which needs Token or OAuth2. If it
	// is empty, the sink does not log in.
	SASL     string
	Username string
	Password settings.Secret

	// Token returns the current bearer token. The sink calls it for each new connection,
	// possibly concurrently. The sink replaces a connection before its token expires; the broker
	// reports the time of expiry when the sink logs in.
	Token func(context.Context) (settings.Secret, error)

	// OAuth2 obtains the bearer tokens. If it is set, Token must be nil. TLS also applies
	// to the server that issues the tokens, except for ServerName and client certificates.
	OAuth2 oauth2.Options

	// SASLExtensions are sent with each bearer token. Some brokers require them.
	SASLExtensions map[string]string

	// CloudEvents configures records in the CloudEvents format; off by default.
	CloudEvents cloudevents.Options

	// Schema configures the bytes before a record's value that tell Confluent's deserializers the
	// schema's id. By default values have no such prefix.
	Schema SchemaOptions

	// Dial opens connections. Defaults to the DialContext method of a net.Dialer.
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
	problems := []error{checkBrokers(o.Brokers), settings.PrefixError("topic", wrong), settings.PrefixError("login", o.checkLogin()), o.Schema.check(o.CloudEvents.Mode)}
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
			return fmt.Errorf("broker %d must have the form host:9092", i+1)
		}
	}
	return nil
}

func (o Options) checkLogin() error {
	_, known := mechanisms[o.SASL]
	bearer := o.Token != nil || o.OAuth2.IsSet()
	switch {
	case o.SASL == "" && (o.Username != "" || o.Password != ""):
		return errors.New("has a user name or password, but no SASL mechanism: set sasl to plain, scram-sha-256 or scram-sha-512")
	case o.SASL != oauthBearer && (bearer || len(o.SASLExtensions) > 0):
		return errors.New("has a token, OAuth 2.0 or SASL extensions, which require the SASL mechanism oauthbearer")
	case o.SASL == "":
		return nil
	case o.SASL == oauthBearer && (o.Username != "" || o.Password != ""):
		return errors.New("has a user name or password, which the SASL mechanism oauthbearer doesn't use: remove them")
	case o.SASL == oauthBearer && (o.Token != nil) == o.OAuth2.IsSet():
		return errors.New("needs either a token or OAuth 2.0")
	case o.SASL == oauthBearer:
		return errors.Join(o.OAuth2.Check(), checkExtensions(o.SASLExtensions))
	case !known:
		return fmt.Errorf("has the SASL mechanism %q: it must be plain, scram-sha-256, scram-sha-512 or oauthbearer", o.SASL)
	case o.Username == "" || o.Password == "":
		return errors.New("needs a user name and a password")
	}
	return nil
}

// Kind returns the description of the sink for a registry. Its name is "kafka",
// and its URLs look like kafka://host:9092,host2:9092/topic?compression=zstd.
func Kind() sinks.Kind {
	return sinks.Kind{
		Name:    "kafka",
		Summary: "Writes each message as a record to an Apache Kafka topic.",
		Schemes: []string{"kafka"},
		FromURL: fromURL,
		New:     fromSettings,
		Fields:  slices.Concat(fields, oauth2.Fields(), settings.TLSFields(), cloudevents.Fields(), schemaFields),
	}
}

var fields = []settings.Field{
	{Name: "brokers", Type: settings.TypeList, Required: true, Check: settings.Check(checkList), Help: "The bootstrap brokers, as host:port. The port is 9092 by default."},
	{Name: "topic", Type: settings.TypeString, Default: DefaultTopic, Check: settings.Parses(parseTopic), Help: "The topic to write to. It may contain {topic}, {key}, {id} and {header:NAME}, which the message's values replace."},
	{Name: "partition_header", Type: settings.TypeString, Help: "The message header that holds the number of the partition to write to. It is not sent as a record header."},
	{Name: "timestamp", Type: settings.TypeString, Default: "sent", Choices: []string{"sent", "created"}, Help: "The timestamp of records: when they were sent, or when the message was created. If it is set to created, Kafka soon deletes the record of a message that is older than the topic's retention."},
	{Name: "compression", Type: settings.TypeString, Default: "none", Choices: []string{"none", "gzip", "snappy", "lz4", "zstd"}, Help: "The compression of record batches."},
	{Name: "idempotent", Type: settings.TypeBool, Help: "Prevent duplicate records in a topic, even if a relay dies. Needs Kafka 2.8 or newer, a relay that claims by lanes, and the right to read the topics."},
	{Name: "max_message_bytes", Type: settings.TypeSize, Default: "1MiB", Min: "1KiB", Max: "1GiB", Help: "The topics' max.message.bytes. The sink limits record batches to this size. It parks a message whose compressed record, with about 100 bytes of overhead, is larger."},
	{Name: "concurrency", Type: settings.TypeInt, Default: fmt.Sprint(DefaultConcurrency), Min: "1", Max: "1000", Help: "The maximum number of record batches in flight; at most one per partition."},
	{Name: "request_timeout", Type: settings.TypeDuration, Default: DefaultRequestTimeout.String(), Min: "100ms", Max: "10m", Help: "The time-out of one request. Brokers wait for their replicas for at most half of this time. Keep it below the time-out of the sink's batches."},
	{Name: "leader_timeout", Type: settings.TypeDuration, Default: DefaultLeaderTimeout.String(), Min: "10ms", Max: "10m", Help: "How long a batch waits for a partition without a leader. After that, its messages are postponed or the sink is unavailable."},
	{Name: "unknown_topic", Type: settings.TypeString, Default: "wait", Choices: []string{"wait", "park"}, Help: "What happens to messages whose topic does not exist or can't be created: they wait for the topic (wait), or they are parked (park)."},
	{Name: "create_topics", Type: settings.TypeBool, Help: "Create topics that do not exist."},
	{Name: "create_partitions", Type: settings.TypeInt, Min: "0", Max: "100000", Help: "The number of partitions of created topics; 0 uses the broker's default."},
	{Name: "create_replicas", Type: settings.TypeInt, Min: "0", Max: "100", Help: "The replication factor of created topics; 0 uses the broker's default."},
	{Name: "client_id", Type: settings.TypeString, Default: DefaultClientID, Help: "The client id that brokers use in their logs and quotas."},
	{Name: "tls", Type: settings.TypeBool, Help: "Connect with TLS. Setting server_name, ca_file, cert_file or key_file also turns TLS on."},
	{Name: "server_name", Type: settings.TypeString, Help: "The name that the brokers' certificates must have. By default it is the host of each broker's address."},
	{Name: "sasl", Type: settings.TypeString, Choices: []string{"plain", "scram-sha-256", "scram-sha-512", oauthBearer}, Help: "The SASL mechanism to log in with. If empty, the sink does not log in."},
	{Name: "username", Type: settings.TypeString, Help: "The user name to log in with."},
	{Name: "password", Type: settings.TypeSecret, Help: "The password to log in with."},
	{Name: "token", Type: settings.TypeSecret, Check: settings.Check(oauth2.CheckToken), Help: "The bearer token to log in with, for oauthbearer. The alternatives are token_file, token_command and the oauth2 settings."},
	{Name: "sasl_extensions", Type: settings.TypeMap, Check: settings.Check(checkExtensions), Help: "Extensions that are sent with each bearer token, such as logicalCluster and identityPoolId for Confluent Cloud."},
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
		Schema:            schemaFromSettings(s),
		TLS:               config,
		SASL:              s.Text("sasl"),
		Username:          s.Text("username"),
		Password:          s.Secret("password"),
		OAuth2:            oauth2.FromSettings(s),
		SASLExtensions:    s.Map("sasl_extensions"),
	}
	if token := s.Secret("token"); token != "" {
		options.Token = func(context.Context) (settings.Secret, error) { return token, nil }
	}
	if s.Bool("idempotent") {
		return NewIdempotent(options)
	}
	return New(options)
}

// fromURL reads brokers, topic and login from the URL's parts, and all other
// settings from its query. If the URL has a user, the SASL mechanism defaults to plain.
func fromURL(u *url.URL) (map[string]any, error) {
	settings, err := settings.FromURL(u, "brokers", "topic", "username", "password", "schema_registry_password")
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
