package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

func kind() sinks.Kind {
	return sinks.Kind{
		Name:    "nats",
		Summary: "Stores each message in a NATS JetStream stream.",
		Fields: append([]settings.Field{
			{Name: "servers", Type: settings.TypeString, Default: "nats://localhost:4222", Check: settings.Check(checkServers), Help: "The servers of one cluster, as nats://host:port or tls://host:port, separated by commas."},
			{Name: "stream", Type: settings.TypeString, Required: true, Check: settings.Check(checkStream), Help: "The stream that stores the messages."},
			{Name: "subject", Type: settings.TypeString, Default: "{topic}", Check: settings.Parses(parseSubject), Help: "The subject. It may contain {topic}, {key}, {id} and {header:NAME}, which each message fills. With {key} or {id} as a token of its own, the stream recognises duplicates even after its duplicate window."},
			{Name: "username", Type: settings.TypeString, Help: "The user name."},
			{Name: "password", Type: settings.TypeSecret, Help: "The user's password."},
			{Name: "token", Type: settings.TypeSecret, Help: "A token, for servers that authenticate clients with a token."},
			{Name: "credentials_file", Type: settings.TypeString, Help: "A .creds file with a JWT and its key. The plug-in reads it again for each connection."},
			{Name: "nkey_file", Type: settings.TypeString, Help: "A file with the seed of an nkey. The plug-in reads it again for each connection."},
			{Name: "window", Type: settings.TypeInt, Default: "256", Min: "1", Max: "4096", Help: "The maximum number of messages that the server has not yet acknowledged; at most one per key."},
			{Name: "connect_timeout", Type: settings.TypeDuration, Default: "5s", Min: "100ms", Max: "5m", Help: "How long connecting to one server may take, including the login."},
			{Name: "create_subjects", Type: settings.TypeString, Help: "If the stream doesn't exist, creates it with these subjects, such as orders.>, separated by commas. An existing stream is never changed."},
			{Name: "create_replicas", Type: settings.TypeInt, Default: "1", Min: "1", Max: "5", Help: "The number of replicas of the stream that the plug-in creates."},
			{Name: "create_duplicate_window", Type: settings.TypeDuration, Default: "2m", Min: "100ms", Max: "7d", Help: "How long the stream that the plug-in creates remembers the ids of messages."},
		}, settings.TLSFields()...),
		New: newSink,
	}
}

func newSink(s settings.Values) (sinks.Sink, error) {
	subject, err := parseSubject(s.Text("subject"))
	if err != nil {
		return nil, err
	}
	connect, err := options(s)
	if err != nil {
		return nil, err
	}
	made := &sink{
		servers: s.Text("servers"), connect: connect, timeout: s.Duration("connect_timeout"), name: s.Text("stream"),
		subject: subject, fan: sinks.NewFan(s.Int("window")), redactor: settings.NewRedactor(s.Secret("password"), s.Secret("token")),
		subjects: subjects{known: map[string]*known{}},
	}
	made.create.subjects = split(s.Text("create_subjects"))
	made.create.replicas, made.create.window = s.Int("create_replicas"), s.Duration("create_duplicate_window")
	return made, nil
}

// options returns the options of a connection: its login and its certificates.
func options(s settings.Values) (list []nats.Option, err error) {
	username, password, token := s.Text("username"), s.Secret("password").Reveal(), s.Secret("token").Reveal()
	credentials, nkey := s.Text("credentials_file"), s.Text("nkey_file")
	if logins := count(username != "", token != "", credentials != "", nkey != ""); logins > 1 {
		return nil, errors.New("several logins are set: use one of username, token, credentials_file and nkey_file")
	}
	switch {
	case username != "":
		list = append(list, nats.UserInfo(username, password))
	case password != "":
		return nil, errors.New("a password needs a username")
	case token != "":
		list = append(list, nats.Token(token))
	case credentials != "":
		if _, err := os.Stat(credentials); err != nil {
			return nil, fmt.Errorf("read credentials_file: %w", err)
		}
		list = append(list, nats.UserCredentials(credentials))
	case nkey != "":
		option, err := nats.NkeyOptionFromSeed(nkey)
		if err != nil {
			return nil, fmt.Errorf("read nkey_file: %w", err)
		}
		list = append(list, option)
	}
	certificates, err := s.TLS()
	if err != nil {
		return nil, err
	}
	if certificates != nil {
		certificates.MinVersion = tls.VersionTLS12
		list = append(list, nats.Secure(certificates))
	}
	return list, nil
}

func count(conditions ...bool) (n int) {
	for _, condition := range conditions {
		if condition {
			n++
		}
	}
	return n
}

func split(list string) (parts []string) {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func checkServers(list string) error {
	servers := split(list)
	if len(servers) == 0 {
		return errors.New("is empty")
	}
	for _, server := range servers {
		u, err := url.Parse(server)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls":
			return errors.New("must be URLs such as nats://host:4222 or tls://host:4222, separated by commas")
		case u.User != nil:
			return errors.New("must not contain a login: use username and password, or token")
		}
	}
	return nil
}

func checkStream(name string) error {
	if strings.ContainsAny(name, " \t\r\n.*>/\\") {
		return errors.New("is not the name of a stream: it must not contain spaces or any of . * > / \\")
	}
	return nil
}

// create has the properties of the stream that the sink creates. Without subjects, the sink creates
// no stream.
type create struct {
	subjects []string
	replicas int
	window   time.Duration
}
