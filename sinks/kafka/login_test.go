package kafka_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// logins returns the addresses of the real broker's other listeners and their
// credentials. Their names are defined in deploy/servers/lib/kafka_node.sh.
func logins(t testing.TB) url.Values {
	t.Helper()
	values, err := url.ParseQuery(server(t, "ROWRELAY_TEST_KAFKA_LOGINS"))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func trusting(t testing.TB, folder string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		t.Fatal("ca.pem has no certificate")
	}
	return &tls.Config{RootCAs: roots}
}

func presenting(t testing.TB, folder string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key"))
	if err != nil {
		t.Fatal(err)
	}
	config := trusting(t, folder)
	config.Certificates = []tls.Certificate{pair}
	return config
}

// TestLogins: correct logins deliver. Open and Send distinguish wrong logins from an
// outage, and their errors contain no secret.
func TestLogins(t *testing.T) {
	t.Parallel()
	at := logins(t)
	plainAddress := broker(t)
	topic := newTopic(t, []string{plainAddress}, 1)
	folder, right := at.Get("folder"), settings.Secret(at.Get("password"))
	ca, pair := trusting(t, folder), presenting(t, folder)
	named := ca.Clone()
	named.ServerName = "localhost"
	misnamed := ca.Clone()
	misnamed.ServerName = "example.com"
	const wrong = settings.Secret("wr0ng-s3cret")
	uncertified := sinks.ReasonAuth
	if olderThan(t, 3, 0) {
		uncertified = sinks.ReasonConnection // Kafka 2.8 on Java 17 refuses the client with an alert that Go can't decrypt
	}
	for name, test := range map[string]struct {
		listener string
		tls      *tls.Config
		sasl     string
		password settings.Secret
		want     sinks.Reason
	}{
		"plain":                            {"login", nil, "plain", right, ""},
		"scram 256":                        {"login", nil, "scram-sha-256", right, ""},
		"scram 512":                        {"login", nil, "scram-sha-512", right, ""},
		"plain, wrong":                     {"login", nil, "plain", wrong, sinks.ReasonAuth},
		"scram 256, wrong":                 {"login", nil, "scram-sha-256", wrong, sinks.ReasonAuth},
		"scram 512, wrong":                 {"login", nil, "scram-sha-512", wrong, sinks.ReasonAuth},
		"none where one is asked for":      {"login", nil, "", "", sinks.ReasonConnection},
		"tls":                              {"tls", ca, "", "", ""},
		"tls, another name":                {"tls", named, "", "", ""},
		"tls, the wrong name":              {"tls", misnamed, "", "", sinks.ReasonAuth},
		"tls, not trusted":                 {"tls", &tls.Config{}, "", "", sinks.ReasonAuth},
		"none where tls is asked for":      {"tls", nil, "", "", sinks.ReasonConnection},
		"tls where none is":                {"", ca, "", "", sinks.ReasonConnection},
		"client certificate":               {"mtls", pair, "", "", ""},
		"client certificate, missing":      {"mtls", ca, "", "", uncertified},
		"scram over tls":                   {"secure", ca, "scram-sha-512", right, ""},
		"scram over tls, wrong":            {"secure", ca, "scram-sha-512", wrong, sinks.ReasonAuth},
		"scram over tls, broker untrusted": {"secure", &tls.Config{}, "scram-sha-512", right, sinks.ReasonAuth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := kafka.Options{Brokers: []string{plainAddress}, TLS: test.tls, SASL: test.sasl, Password: test.password, LeaderTimeout: enough}
			if test.listener != "" {
				options.Brokers[0] = at.Get(test.listener)
			}
			if test.sasl != "" {
				options.Username = "rowrelay"
			}
			sink := newSink(t, options)
			err := sink.Open(t.Context())
			if (err == nil) != (test.want == "") || err != nil && strings.Contains(err.Error(), test.password.Reveal()) && test.password != "" {
				t.Errorf("Open: %v", err)
			}
			o := sink.Send(t.Context(), batchOf(topic, "a"))[0]
			if (o.Result == sinks.Delivered) != (test.want == "") || o.Reason != test.want || strings.Contains(o.Detail, "s3cret") {
				t.Errorf("%s, want %s: %+v", o.Reason, test.want, o)
			}
		})
	}
}

// TestForbiddenTopic: the user has no right to write to one of two topics.
func TestForbiddenTopic(t *testing.T) {
	t.Parallel()
	at := logins(t)
	addresses := []string{broker(t)}
	open, closed := newTopic(t, addresses, 1), newTopic(t, addresses, 1)
	forbid(t, addresses, closed)
	sink := newSink(t, kafka.Options{Brokers: []string{at.Get("login")}, SASL: "plain", Username: "guest", Password: settings.Secret(at.Get("password"))})
	batch := batchOf(open, "a", "b", "a")
	batch[1].Topic = closed
	for deadline := time.Now().Add(patience); ; { // brokers apply the rule with a delay
		outcomes := sink.Send(t.Context(), batch)
		if summary(outcomes) == "DPD" && outcomes[1].Reason == sinks.ReasonAuth {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %+v", summary(outcomes), outcomes[1])
		}
	}
}

// forbid allows only another user to write to a topic.
func forbid(t *testing.T, addresses []string, topic string) {
	t.Helper()
	rule := kmsg.NewCreateACLsRequestCreation()
	rule.ResourceType, rule.ResourceName, rule.ResourcePatternType = kmsg.ACLResourceTypeTopic, topic, kmsg.ACLResourcePatternTypeLiteral
	rule.Principal, rule.Host = "User:somebody", "*"
	rule.Operation, rule.PermissionType = kmsg.ACLOperationAll, kmsg.ACLPermissionTypeAllow
	request := kmsg.NewPtrCreateACLsRequest()
	request.Creations = append(request.Creations, rule)
	answer, err := request.RequestWith(t.Context(), client(t, addresses))
	if err == nil {
		err = kerr.ErrorForCode(answer.Results[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReconnectsBeforeTheLoginExpires: at this listener a login expires after three seconds, and the broker then
// closes the connection. The sink uses a new connection before that, so that no
// outcome is unknown.
func TestReconnectsBeforeTheLoginExpires(t *testing.T) {
	t.Parallel()
	at, addresses := logins(t), []string{broker(t)}
	topic := newTopic(t, addresses, 1)
	between := newLink()
	sink := newSink(t, kafka.Options{
		Brokers: []string{at.Get("brief")}, SASL: "scram-sha-256", Username: "rowrelay", Password: settings.Secret(at.Get("password")), Dial: between.dial,
	})
	start := time.Now()
	for between.made() < 2 && time.Since(start) < patience {
		began := time.Now()
		o := sink.Send(t.Context(), batchOf(topic, "a"))[0]
		if o.Result != sinks.Delivered && time.Since(began) < time.Second/2 { // a slower Send may have outlasted the login
			t.Fatalf("after %v: %+v", time.Since(start), o)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if took := time.Since(start); took < time.Second || between.made() < 2 {
		t.Errorf("%d logins within %v: want a second login shortly before the first one expires", between.made(), took)
	}
}
