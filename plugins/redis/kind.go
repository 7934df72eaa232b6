package main

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func kind() sinks.Kind {
	return sinks.Kind{
		Name:    "redis",
		Summary: "Adds each message to a Redis stream.",
		Fields: append([]settings.Field{
			{Name: "addresses", Type: settings.TypeString, Default: "localhost:6379", Check: settings.Check(checkAddresses), Help: "The server, as host:port. With cluster, list some nodes of the cluster, and with master_name the sentinels, separated by commas."},
			{Name: "cluster", Type: settings.TypeBool, Help: "Whether the servers are a Redis Cluster."},
			{Name: "master_name", Type: settings.TypeString, Help: "The name under which the sentinels know the master. The plug-in asks the sentinels for the master's address."},
			{Name: "username", Type: settings.TypeString, Help: "The user name. By default Redis's user named default."},
			{Name: "password", Type: settings.TypeSecret, Help: "The user's password."},
			{Name: "sentinel_password", Type: settings.TypeSecret, Help: "The sentinels' password."},
			{Name: "database", Type: settings.TypeInt, Default: "0", Min: "0", Help: "The number of the database."},
			{Name: "tls", Type: settings.TypeBool, Help: "Connects over TLS, also to the sentinels."},
			{Name: "stream", Type: settings.TypeString, Default: "{topic}", Check: settings.Parses(settings.ParseTemplate), Help: "The stream's key. It may contain {topic}, {key}, {id} and {header:NAME}, which each message fills."},
			{Name: "max_length", Type: settings.TypeInt, Default: "0", Min: "0", Help: "Adding an entry trims its stream to about this number of entries (MAXLEN ~). 0 disables trimming."},
			{Name: "max_age", Type: settings.TypeDuration, Default: "0s", Min: "0s", Help: "Adding an entry removes entries of its stream that are older than this, approximately (MINID ~). 0 disables the removal."},
			{Name: "duplicate_window", Type: settings.TypeDuration, Default: "0s", Min: "0s", Max: "30d", Help: "How long the server remembers the id of each message, so that a repeated message isn't added again. 0 disables this. Redis stores one more key for each remembered message."},
			{Name: "wait_replicas", Type: settings.TypeInt, Default: "0", Min: "0", Max: "10", Help: "The number of replicas that must have received a message before it counts as delivered (WAIT)."},
			{Name: "window", Type: settings.TypeInt, Default: "256", Min: "1", Max: "4096", Help: "The maximum number of messages that are sent together; at most one per key."},
			{Name: "connect_timeout", Type: settings.TypeDuration, Default: "5s", Min: "100ms", Max: "5m", Help: "How long connecting may take, including the login."},
		}, settings.TLSFields()...),
		New: newSink,
	}
}

func newSink(s settings.Values) (sinks.Sink, error) {
	stream, err := settings.ParseTemplate(s.Text("stream"))
	if err != nil {
		return nil, err
	}
	made := &sink{
		stream: stream, maxLength: int64(s.Int("max_length")), maxAge: s.Duration("max_age"), remember: s.Duration("duplicate_window"),
		replicas: s.Int("wait_replicas"), window: s.Int("window"),
		server: server{
			addresses: split(s.Text("addresses")), cluster: s.Bool("cluster"), master: s.Text("master_name"), database: s.Int("database"),
			username: s.Text("username"), password: s.Secret("password").Reveal(), sentinelPassword: s.Secret("sentinel_password").Reveal(),
			timeout: s.Duration("connect_timeout"),
		},
		redactor: settings.NewRedactor(s.Secret("password"), s.Secret("sentinel_password")),
	}
	certificates, err := s.TLS()
	switch {
	case err != nil:
		return nil, err
	case certificates != nil && !s.Bool("tls"):
		return nil, errors.New("certificates are set, but tls is false")
	case s.Bool("tls") && certificates == nil:
		certificates = &tls.Config{}
	}
	made.server.tls = certificates
	return made, errors.Join(made.check(), made.server.check())
}

func (s *sink) check() error {
	if s.maxLength > 0 && s.maxAge > 0 {
		return errors.New("max_length and max_age are both set: a stream can be trimmed by only one of them")
	}
	return nil
}

func (s server) check() error {
	switch {
	case s.cluster && s.master != "":
		return errors.New("cluster and master_name are both set: a cluster has no sentinels")
	case s.cluster && s.database != 0:
		return errors.New("a cluster has only database 0")
	case !s.cluster && s.master == "" && len(s.addresses) > 1:
		return errors.New("several addresses need cluster or master_name")
	case s.master == "" && s.sentinelPassword != "":
		return errors.New("sentinel_password needs master_name")
	case s.username != "" && s.password == "":
		return errors.New("a username needs a password")
	}
	return nil
}

func split(list string) (parts []string) {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func checkAddresses(list string) error {
	addresses := split(list)
	if len(addresses) == 0 {
		return errors.New("is empty")
	}
	for _, address := range addresses {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" || strings.ContainsAny(host, "@/") {
			return errors.New("must be addresses such as host:6379, separated by commas; the login has settings of its own")
		}
	}
	return nil
}
