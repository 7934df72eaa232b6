package e2e

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// rotations returns how often a scene renews its secrets.
func rotations() int {
	if *long || *everywhere {
		return 10
	}
	return 4
}

// rotating is a relay under load, whose secrets are renewed.
type rotating struct {
	*scene
	relay   *process
	port    int
	written *atomic.Int32
	stop    func()
}

// underLoad starts a relay and a program that writes messages all the time. The settings are those of the source and of its only
// sink. Each message has one attempt.
func (s *scene) underLoad(source, sink, admin string) *rotating {
	s.t.Helper()
	r := &rotating{scene: s, port: testdb.FreePort(s.t)}
	r.relay = s.byFile(fmt.Sprintf("sources: {shop: {%s}}\nsinks: {to: {%s, max_attempts: 1}}\nadmin: {listen: \"127.0.0.1:%d\"%s}\n", source, sink, r.port, admin))
	stopped := make(chan struct{})
	var ended chan struct{}
	r.written, ended = s.writeUntil(stopped)
	r.stop = sync.OnceFunc(func() { close(stopped); <-ended })
	s.t.Cleanup(r.stop)
	r.delivers()
	return r
}

// delivers waits until thirty messages are delivered that are written from now on.
func (r *rotating) delivers() {
	r.t.Helper()
	want := int64(r.written.Load() + 30)
	eventually(r.t, "messages are delivered", func() bool { return r.status().Counts[storage.StateDone] >= want })
}

// renewsLeases waits until the relay has sent two heartbeats. Between them it has renewed its leases, so that they don't end during
// the next change of a password, in which the database refuses the relay for some seconds.
func (r *rotating) renewsLeases() {
	r.t.Helper()
	last := func() time.Time {
		relays := r.status().Relays
		if len(relays) != 1 {
			r.t.Fatalf("the relays are %+v, want one", relays)
		}
		return relays[0].LastHeartbeat
	}
	for range 2 {
		before := last()
		eventually(r.t, "the relay sends a heartbeat", func() bool { return last().After(before) })
	}
}

// renewals waits until the relay has renewed the sink's secrets this number of times.
func (r *rotating) renewals(want int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("the secrets are renewed %d times", want), func() bool {
		return strings.Count(r.relay.log.String(), "secrets or certificates were renewed") >= want
	})
}

// refusals waits until the destination has refused the relay's new secrets this number of times.
func (r *rotating) refusals(want int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("new secrets are refused %d times", want), func() bool {
		return strings.Count(r.relay.log.String(), "the previous ones stay in use") >= want
	})
}

var outcome = regexp.MustCompile(`(?m)^rowrelay_outcomes_total\{reason="([^"]*)",result="([^"]*)",[^}]*\} ([0-9e+.]+)$`)

// judge stops the load, and checks that every message was delivered at its first attempt.
func (r *rotating) judge() {
	r.t.Helper()
	r.stop()
	r.wantAll(int(r.written.Load()))
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", r.port))
	check(r.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(r.t, err)
	found := outcome.FindAllStringSubmatch(string(text), -1)
	for _, o := range found {
		if o[2] != "delivered" && o[3] != "0" {
			r.t.Errorf("%s outcomes are %s (%s)", o[3], o[2], o[1])
		}
	}
	if len(found) == 0 || strings.Count(r.relay.log.String(), "relaying") != 1 {
		r.t.Errorf("there are no outcomes, or the relay was restarted")
	}
	if r.t.Failed() {
		r.t.Logf("the relay's log:\n%s", r.relay.log)
	}
}

// either returns one of the words, or with -everywhere or -long both.
func either(i int, words ...string) []string {
	if *long || *everywhere {
		return words
	}
	return words[i%2 : i%2+1]
}

// The password of the relay's database user is changed repeatedly, and the user's connections are ended each time.
func TestRotatedPasswordsOfDatabases(t *testing.T) {
	t.Parallel()
	for i, target := range drawn("postgres15/pgx", "mysql/gosql", "mariadb1011/gosql") {
		for _, by := range either(i, "file", "command") {
			t.Run(target+" "+by, func(t *testing.T) {
				t.Parallel()
				s, e := newScene(t, target), newEndpoint(t)
				user, m := s.newUser("word-0"), newMount(t, map[string]string{"word": "word-0"})
				password := fmt.Sprintf("password_file: %q", m.path("word"))
				if by == "command" {
					password = fmt.Sprintf("password_command: [cat, %q]", m.path("word"))
				}
				r := s.underLoad(fmt.Sprintf("database: %q, %s", user.url(""), password), fmt.Sprintf("type: http, url: %q", e.URL+"/relay"), "")
				for i := range rotations() {
					next := map[string]string{"word": fmt.Sprint("word-", i+1)}
					if i%2 == 0 {
						m.swap(next)
					}
					user.setPassword(next["word"])
					user.hangUp()
					m.swap(next)
					r.delivers()
					r.renewsLeases()
				}
				r.judge()
			})
		}
	}
}

// The password of the relay's user is changed repeatedly on the broker. The relay's file is changed first: until the broker
// accepts the new password, the relay uses the previous one.
func TestRotatedPasswordsOfBrokers(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(t *testing.T) (settings string, setPassword func(string)){
		"rabbitmq": func(t *testing.T) (string, func(string)) {
			address := theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ")
			user, queue := newRabbitUser(t, address, "word-0"), newRabbitQueue(t, address, "classic")
			return fmt.Sprintf("type: rabbitmq, hosts: [%q], username: %q, routing_key: %q", user.host, user.name, queue.name), user.setPassword
		},
		"kafka":            scramUser("idempotent: false"),
		"idempotent kafka": scramUser("idempotent: true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings, setPassword := set(t)
			m := newMount(t, map[string]string{"word": "word-0"})
			r := newScene(t, "sqlite/modernc").load(settings + fmt.Sprintf(", password_file: %q", m.path("word")))
			for i := range rotations() {
				next := fmt.Sprint("word-", i+1)
				m.swap(map[string]string{"word": next})
				r.refusals(i + 1)
				r.delivers()
				setPassword(next)
				r.renewals(i + 1)
				r.delivers()
			}
			r.judge()
		})
	}
}

// load is underLoad with the scene's own database.
func (s *scene) load(sink string) *rotating {
	s.t.Helper()
	return s.underLoad(fmt.Sprintf("database: %q", s.URL), sink, "")
}

func scramUser(settings string) func(t *testing.T) (string, func(string)) {
	return func(t *testing.T) (string, func(string)) {
		at := theMachine.query(t, "ROWRELAY_TEST_KAFKA_LOGINS", "secure")
		topic, user := newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1), fmt.Sprint("rotated-", time.Now().UnixNano())
		topic.setPassword(user, "word-0")
		return fmt.Sprintf("type: kafka, brokers: [%q], topic: %q, sasl: scram-sha-512, username: %q, ca_file: %q, %s",
			at.Get("secure"), topic.name, user, filepath.Join(at.Get("folder"), "ca.pem"), settings), func(password string) { topic.setPassword(user, password) }
	}
}

// unsigned returns a token that the broker accepts.
func unsigned(lifetime time.Duration) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	now := time.Now()
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":"rowrelay","iat":%d,"exp":%.3f}`, now.Add(-time.Hour).Unix(), float64(now.Add(lifetime).UnixMilli())/1000)) + "."
}

// issueToken is a program that prints a token like the function unsigned, with a lifetime of ten seconds.
const issueToken = `claims=$(printf '{"sub":"rowrelay","iat":%d,"exp":%d}' "$(date +%s)" "$(($(date +%s) + 10))" | base64 | tr -d '=\n' | tr '+/' '-_')
echo "eyJhbGciOiJub25lIn0.$claims."
`

// The relay logs in to Kafka with tokens that expire after ten seconds. The relay gets them from a file, a command or a server.
func TestTokensForKafkaThatExpire(t *testing.T) {
	t.Parallel()
	const lifetime = 10 * time.Second // the relay stops using a connection two seconds before its token expires
	for _, by := range []string{"file", "command", "server, idempotent"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			at := theMachine.query(t, "ROWRELAY_TEST_KAFKA_LOGINS", "oauthbearer")
			topic := newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1)
			settings, s := fmt.Sprintf("type: kafka, brokers: [%q], topic: %q, sasl: oauthbearer", at.Get("oauthbearer"), topic.name), newScene(t, "sqlite/modernc")
			var r *rotating
			switch by {
			case "file":
				m := newMount(t, map[string]string{"token": unsigned(lifetime)})
				r = s.load(fmt.Sprintf("%s, token_file: %q", settings, m.path("token")))
				began := time.Now()
				for i := 1; time.Since(began) < time.Duration(rotations()+1)*lifetime/2; i++ {
					m.swap(map[string]string{"token": unsigned(lifetime)})
					r.renewals(i)
					r.delivers()
				}
			case "command":
				program := filepath.Join(t.TempDir(), "issue")
				check(t, os.WriteFile(program, []byte(issueToken), 0o600))
				r = s.load(fmt.Sprintf("%s, token_command: {command: [sh, %q], cache: 4s}", settings, program))
				r.renewals(rotations())
			default:
				var issued atomic.Int32
				issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					issued.Add(1)
					fmt.Fprintf(w, `{"access_token":%q,"expires_in":"%v"}`, unsigned(lifetime), lifetime.Seconds())
				}))
				t.Cleanup(issuer.Close)
				r = s.load(fmt.Sprintf("%s, idempotent: true, oauth2_token_url: %q, oauth2_client_id: relay, oauth2_client_secret: s3cret", settings, issuer.URL))
				eventually(t, "tokens are issued", func() bool { return int(issued.Load()) > rotations() })
			}
			r.delivers()
			r.judge()
		})
	}
}

// The endpoint accepts a new token repeatedly, and refuses the previous one: either some time later, or immediately.
func TestRotatedTokensOfAnEndpoint(t *testing.T) {
	t.Parallel()
	for name, overlap := range map[string]bool{"overlap": true, "no overlap": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var valid sync.Map
			valid.Store("Bearer token-0", true)
			e := newEndpoint(t)
			e.answering(func(r *http.Request) int {
				if _, accepted := valid.Load(r.Header.Get("Authorization")); accepted {
					return http.StatusOK
				}
				return http.StatusUnauthorized
			})
			m := newMount(t, map[string]string{"token": "token-0"})
			r := newScene(t, "sqlite/modernc").load(fmt.Sprintf("type: http, url: %q, bearer_token_file: %q", e.URL+"/relay", m.path("token")))
			for i := range rotations() {
				next := fmt.Sprint("token-", i+1)
				valid.Store("Bearer "+next, true)
				m.swap(map[string]string{"token": next})
				if overlap {
					r.renewals(i + 1)
				}
				valid.Delete(fmt.Sprint("Bearer token-", i))
				r.renewals(i + 1)
				r.delivers()
			}
			r.judge()
		})
	}
}

// An OAuth 2.0 server revokes each token after some time, although the tokens don't expire, and changes the client's secret.
func TestRevokedTokensOfAnEndpoint(t *testing.T) {
	t.Parallel()
	var issued, secret atomic.Int32
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, given, _ := r.BasicAuth(); given != fmt.Sprint("secret-", secret.Load()) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":"3600"}`, issued.Load())
	}))
	t.Cleanup(issuer.Close)
	e := newEndpoint(t)
	e.answering(func(r *http.Request) int {
		if r.Header.Get("Authorization") == fmt.Sprint("Bearer token-", issued.Load()) {
			return http.StatusOK
		}
		return http.StatusUnauthorized
	})
	m := newMount(t, map[string]string{"secret": "secret-0"})
	r := newScene(t, "sqlite/modernc").load(fmt.Sprintf("type: http, url: %q, oauth2_token_url: %q, oauth2_client_id: relay, oauth2_client_secret_file: %q", e.URL+"/relay", issuer.URL, m.path("secret")))
	for i := range rotations() {
		m.swap(map[string]string{"secret": fmt.Sprint("secret-", i+1)})
		r.refusals(i + 1)
		secret.Add(1)
		issued.Add(1)
		r.delivers()
	}
	r.judge()
}

// issue returns a certificate for 127.0.0.1 that an authority has signed, and its files.
func issue(t *testing.T, authority tls.Certificate) (certificate, key string) {
	t.Helper()
	made, _ := selfSigned(t)
	template, err := x509.ParseCertificate(made.Certificate[0])
	check(t, err)
	parent, err := x509.ParseCertificate(authority.Certificate[0])
	check(t, err)
	template.IsCA, template.ExtKeyUsage = false, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	private := made.PrivateKey.(*ecdsa.PrivateKey)
	der, err := x509.CreateCertificate(nil, template, parent, private.Public(), authority.PrivateKey)
	check(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	check(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

// The endpoint changes to a certificate of another authority repeatedly, and the relay gets a new client's certificate each time.
// Each request makes a new connection. The relay's files are changed first.
func TestRotatedCertificatesOfAnEndpoint(t *testing.T) {
	t.Parallel()
	clients, _ := selfSigned(t)
	first, ca := selfSigned(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&first)
	trusted := x509.NewCertPool()
	authority, err := x509.ParseCertificate(clients.Certificate[0])
	check(t, err)
	trusted.AddCert(authority)
	var serials sync.Map
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		serials.Store(r.TLS.PeerCertificates[0].SerialNumber.String(), true)
	}))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert}, nil
	}}
	server.Config.SetKeepAlivesEnabled(false)
	server.StartTLS()
	t.Cleanup(server.Close)
	pair, key := issue(t, clients)
	m := newMount(t, map[string]string{"ca.pem": ca, "relay.pem": pair, "relay.key": key})
	u, err := url.Parse(server.URL)
	check(t, err)
	r := newScene(t, "sqlite/modernc").load(fmt.Sprintf("type: http, url: %q, ca_file: %q, cert_file: %q, key_file: %q", u, m.path("ca.pem"), m.path("relay.pem"), m.path("relay.key")))
	for i := range rotations() {
		next, ca := selfSigned(t)
		pair, key := issue(t, clients)
		m.swap(map[string]string{"ca.pem": ca, "relay.pem": pair, "relay.key": key})
		r.refusals(i + 1)
		shown.Store(&next)
		r.renewals(i + 1)
		r.delivers()
	}
	r.judge()
	seen := 0
	serials.Range(func(any, any) bool { seen++; return true })
	if seen <= rotations() {
		t.Errorf("the endpoint has seen %d certificates", seen)
	}
}

// The admin server accepts each new token at its first use, and refuses the previous one.
func TestRotatedTokensOfTheAdminServer(t *testing.T) {
	t.Parallel()
	token := func(i int) string { return fmt.Sprint("reader-reader-reader-", i) }
	s, e, m := newScene(t, "sqlite/modernc"), newEndpoint(t), newMount(t, map[string]string{"reader": token(0)})
	port := testdb.FreePort(t)
	s.byFile(fmt.Sprintf("sources: {shop: {database: %q}}\nsinks: {hook: {type: http, url: %q}}\nadmin: {listen: \"127.0.0.1:%d\", reader_token_file: %q}\n", s.URL, e.URL, port, m.path("reader")))
	get := func(token string) int {
		request, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/status", port), nil)
		check(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	eventually(t, "the admin server answers", func() bool { return get(token(0)) == http.StatusOK })
	for i := range rotations() {
		m.swap(map[string]string{"reader": token(i + 1)})
		if status := get(token(i + 1)); status != http.StatusOK {
			t.Errorf("a new token: %d", status)
		}
		if status := get(token(i)); status != http.StatusUnauthorized {
			t.Errorf("the previous token: %d", status)
		}
	}
}
