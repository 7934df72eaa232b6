package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
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

	// ParkUnknownTopics rejects messages whose topic isn't there. By default the
	// sink is unavailable until it is.
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
	Password sinks.Secret

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
	problems := []error{checkBrokers(o.Brokers), about("topic", wrong), about("login", o.checkLogin())}
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

func about(subject string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the %s %w", subject, err)
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
