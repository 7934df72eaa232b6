package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// mount is a folder of secrets as Kubernetes mounts it: the path of each file leads through one symbolic link, which is replaced
// when the secrets are renewed.
type mount struct {
	t      *testing.T
	folder string
	swaps  int
}

func newMount(t *testing.T, files map[string]string) *mount {
	t.Helper()
	m := &mount{t: t, folder: t.TempDir()}
	m.swap(files)
	for name := range files {
		check(t, os.Symlink(filepath.Join("..data", name), m.path(name)))
	}
	return m
}

func (m *mount) path(name string) string { return filepath.Join(m.folder, name) }

func (m *mount) swap(files map[string]string) {
	m.t.Helper()
	m.swaps++
	data := fmt.Sprint("..", m.swaps)
	check(m.t, os.Mkdir(m.path(data), 0o700))
	for name, text := range files {
		check(m.t, os.WriteFile(filepath.Join(m.path(data), name), []byte(text), 0o600))
	}
	check(m.t, os.Symlink(data, m.path("..new")))
	check(m.t, os.Rename(m.path("..new"), m.path("..data")))
}

// byFile runs a relay with a configuration file.
func (s *scene) byFile(configuration string) *process {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "rowrelay.yaml")
	check(s.t, os.WriteFile(file, []byte(configuration), 0o600))
	return s.start("relay", "run", "--config", file)
}

// says waits until the relay has logged a text.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	eventually(t, "the relay logs "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// wantAll waits until no message is left to deliver, and checks that the wanted number of messages was delivered and none was
// parked.
func (s *scene) wantAll(want int) {
	s.t.Helper()
	s.settled()
	if counts := s.status().Counts; counts[storage.StateDone] != int64(want) || counts[storage.StateError] != 0 {
		s.t.Errorf("the rows are %v, want %d delivered and none parked", counts, want)
	}
}

// The endpoint switches to another token and another certificate, and the relay's files are renewed some time later. All messages
// arrive, although each has only one attempt.
func TestRenewedFilesOfAnEndpoint(t *testing.T) {
	t.Parallel()
	s := newScene(t, "sqlite/modernc")
	var valid atomic.Value
	var refused atomic.Int32
	valid.Store("Bearer one")
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid.Load() {
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	server := httptest.NewTLSServer(handler)
	t.Cleanup(func() { server.Close() })
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	m := newMount(t, map[string]string{"token": "one\n", "ca.pem": ca, "reader": "reader-reader-one", "operator": "operator-operator"})
	port := testdb.FreePort(t)
	p := s.byFile(fmt.Sprintf(`
sources: {shop: {database: %q}}
sinks: {hook: {type: http, url: %q, bearer_token_file: %q, ca_file: %q, max_attempts: 1}}
admin: {listen: "127.0.0.1:%d", reader_token_file: %q, operator_token_file: %q}
`, s.URL, server.URL, m.path("token"), m.path("ca.pem"), port, m.path("reader"), m.path("operator")))
	s.writeOrders(100, 1)
	s.wantAll(100)

	valid.Store("Bearer two")
	s.writeOrders(100, 1000)
	eventually(t, "the endpoint refuses the token", func() bool { return refused.Load() > 1 })
	m.swap(map[string]string{"token": "two\n", "ca.pem": ca, "reader": "reader-reader-two", "operator": "operator-operator"})
	s.wantAll(200)

	for token, want := range map[string]int{"reader-reader-one": 401, "reader-reader-two": 200} {
		eventually(t, fmt.Sprintf("the admin server answers %d to %s", want, token), func() bool {
			request, err := http.NewRequest("GET", fmt.Sprintf("http://127.0.0.1:%d/status", port), nil)
			check(t, err)
			request.Header.Set("Authorization", "Bearer "+token)
			response, err := http.DefaultClient.Do(request)
			check(t, err)
			_ = response.Body.Close()
			return response.StatusCode == want
		})
	}
	if strings.Count(p.log.String(), "relaying") != 1 {
		t.Errorf("the relay was started again")
	}

	m.swap(map[string]string{"token": "two", "ca.pem": "not yet written", "reader": "reader-reader-two", "operator": "operator-operator"})
	written := 0
	eventually(t, "the relay logs that it can't use the certificates", func() bool {
		s.writeOrders(1, 2000+written)
		written++
		return strings.Contains(p.log.String(), "the previous secrets stay in use")
	})
	s.wantAll(200 + written)
}

// renewedSink has a sink's settings, and the right password.
type renewedSink struct{ settings, right string }

// The broker refuses the relay's first password. Then the password file is renewed.
func TestRenewedPasswordOfABroker(t *testing.T) {
	t.Parallel()
	for name, sink := range map[string]func(t *testing.T) renewedSink{
		"rabbitmq": func(t *testing.T) renewedSink {
			address := theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ")
			u, err := url.Parse(address)
			check(t, err)
			queue := newRabbitQueue(t, address, "classic")
			password, _ := u.User.Password()
			return renewedSink{fmt.Sprintf("type: rabbitmq, hosts: [%q], username: %q, routing_key: %q", u.Host, u.User.Username(), queue.name), password}
		},
		"kafka, plain":                    kafkaLogin("sasl: plain"),
		"kafka, scram-sha-512":            kafkaLogin("sasl: scram-sha-512"),
		"idempotent kafka, scram-sha-256": kafkaLogin("sasl: scram-sha-256, idempotent: true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, to := newScene(t, "sqlite/modernc"), sink(t)
			m := newMount(t, map[string]string{"password": "wrong"})
			p := s.byFile(fmt.Sprintf("sources: {shop: {database: %q}}\nsinks: {broker: {%s, password_file: %q, max_attempts: 1}}\n", s.URL, to.settings, m.path("password")))
			s.writeOrders(100, 1)
			p.says(t, "reason=auth")
			m.swap(map[string]string{"password": to.right + "\n"})
			s.wantAll(100)
		})
	}
}

func kafkaLogin(settings string) func(t *testing.T) renewedSink {
	return func(t *testing.T) renewedSink {
		at := theMachine.query(t, "ROWRELAY_TEST_KAFKA_LOGINS", "password")
		topic := newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1)
		return renewedSink{fmt.Sprintf("type: kafka, brokers: [%q], topic: %q, username: rowrelay, %s", at.Get("login"), topic.name, settings), at.Get("password")}
	}
}

// TestRenewedPasswordOfAnOpenKafka changes the password of the relay's user while the relay is connected. The broker ends each
// login after three seconds, and refuses the next login until the relay's file is renewed. With an idempotent sink each message
// is in the topic once, and no attempt is charged.
func TestRenewedPasswordOfAnOpenKafka(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"plain": "idempotent: false", "idempotent": "idempotent: true, max_attempts: 1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := theMachine.query(t, "ROWRELAY_TEST_KAFKA_LOGINS", "password")
			s, topic, user := newScene(t, "sqlite/modernc"), newKafkaTopic(t, theMachine.asked(t, "ROWRELAY_TEST_KAFKA"), 1), "renewed-"+rand.Text()
			topic.setPassword(user, "one")
			m := newMount(t, map[string]string{"password": "one"})
			p := s.byFile(fmt.Sprintf("sources: {shop: {database: %q}}\nsinks: {broker: {type: kafka, brokers: [%q], topic: %q, sasl: scram-sha-512, username: %q, password_file: %q, %s}}\n",
				s.URL, at.Get("brief"), topic.name, user, m.path("password"), settings))
			s.writeOrders(100, 1)
			s.wantAll(100)
			topic.setPassword(user, "two")
			written := 100
			eventually(t, "the broker refuses the old password", func() bool { // the relay may still deliver with its present login
				written++
				check(t, s.order(t.Context(), 1000, written, true))
				return strings.Contains(p.log.String(), "reason=auth") && strings.Contains(p.log.String(), "SCRAM-SHA-512")
			})
			m.swap(map[string]string{"password": "two\n"})
			s.wantAll(written)
			v := judge(t, topic.received())
			if name == "plain" { // a response is lost if the login ends before the response arrives
				v.duplicates = nil
			}
			if v.distinct != written || len(v.duplicates) > 0 || strings.Count(p.log.String(), "relaying") != 1 {
				t.Errorf("%d messages arrived, want %d, %d of them twice, or the relay was restarted:\n%s", v.distinct, written, len(v.duplicates), p.log)
			}
		})
	}
}

// While the relay is connected, its user's password is changed on the broker, and the connection is closed. The relay's file is
// renewed some time later. No message is lost, and no attempt is charged.
func TestRenewedPasswordOfAnOpenBroker(t *testing.T) {
	t.Parallel()
	address := theMachine.asked(t, "ROWRELAY_TEST_RABBITMQ")
	user := newRabbitUser(t, address, "one")
	s, queue := newScene(t, "sqlite/modernc"), newRabbitQueue(t, address, "classic")
	m := newMount(t, map[string]string{"password": "one"})
	p := s.byFile(fmt.Sprintf("sources: {shop: {database: %q}}\nsinks: {broker: {type: rabbitmq, hosts: [%q], username: %q, routing_key: %q, password_file: %q, max_attempts: 1}}\n",
		s.URL, user.host, user.name, queue.name, m.path("password")))
	s.writeOrders(100, 1)
	s.wantAll(100)
	user.setPassword("two")
	eventually(t, "the broker has closed the relay's connection", func() bool { return user.hangUp() > 0 })
	s.writeOrders(100, 1000)
	p.says(t, "reason=auth")
	m.swap(map[string]string{"password": "two\n"})
	s.wantAll(200)
	came := map[string]bool{}
	for _, each := range queue.received() {
		came[each.id] = true
	}
	if len(came) != 200 || strings.Count(p.log.String(), "relaying") != 1 {
		t.Errorf("%d messages arrived, want 200, or the relay was restarted:\n%s", len(came), p.log)
	}
}

// rabbitUser is a user of one test, who may publish.
type rabbitUser struct {
	t          *testing.T
	name, host string
	management url.URL // with the administrator's login
}

// newRabbitUser creates a user on the broker with this address.
func newRabbitUser(t *testing.T, address, password string) *rabbitUser {
	t.Helper()
	u, err := url.Parse(address)
	check(t, err)
	port, err := strconv.Atoi(u.Port())
	check(t, err)
	user := &rabbitUser{t: t, name: "renewed-" + rand.Text()[:12], host: u.Host, management: url.URL{Scheme: "http", User: u.User, Host: fmt.Sprintf("%s:%d", u.Hostname(), port+1)}}
	user.setPassword(password)
	t.Cleanup(func() { user.manage("DELETE", "/api/users/"+user.name, nil, nil) })
	user.manage("PUT", "/api/permissions/%2F/"+user.name, map[string]any{"configure": "", "write": ".*", "read": ".*"}, nil)
	return user
}

func (u *rabbitUser) setPassword(password string) {
	u.t.Helper()
	u.manage("PUT", "/api/users/"+u.name, map[string]any{"password": password, "tags": ""}, nil)
}

// hangUp ends the user's connections, and returns their number.
func (u *rabbitUser) hangUp() (closed int) {
	u.t.Helper()
	var connections []struct{ Name, User string }
	u.manage("GET", "/api/connections", nil, &connections)
	for _, c := range connections {
		if c.User == u.name {
			u.manage("DELETE", "/api/connections/"+url.PathEscape(c.Name), nil, nil)
			closed++
		}
	}
	return closed
}

func (u *rabbitUser) manage(method, path string, body, result any) {
	u.t.Helper()
	text, err := json.Marshal(body)
	check(u.t, err)
	request, err := http.NewRequest(method, "http://"+u.management.Host+path, bytes.NewReader(text))
	check(u.t, err)
	password, _ := u.management.User.Password()
	request.SetBasicAuth(u.management.User.Username(), password)
	response, err := http.DefaultClient.Do(request)
	check(u.t, err)
	defer response.Body.Close()
	if response.StatusCode > 299 && response.StatusCode != http.StatusNotFound { // the connection may have ended already
		u.t.Fatalf("%s %s: %s", method, path, response.Status)
	}
	if result != nil {
		check(u.t, json.NewDecoder(response.Body).Decode(result))
	}
}

// The password of the relay's database user is changed, and all the user's connections are ended. The relay's file is renewed
// some time later.
func TestRenewedPasswordOfADatabase(t *testing.T) {
	t.Parallel()
	for _, target := range drawn("postgres15/pgx", "mysql/gosql", "mariadb1011/gosql") {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s, e := newScene(t, target), newEndpoint(t)
			user := s.newUser("one")
			m := newMount(t, map[string]string{"url": user.url("one") + "\n"})
			p := s.byFile(fmt.Sprintf("sources: {shop: {database_file: %q}}\nsinks: {hook: {type: http, url: %q}}\n", m.path("url"), e.URL+"/relay"))
			s.writeOrders(100, 1)
			s.wantAll(100)
			user.setPassword("two")
			user.hangUp()
			s.writeOrders(100, 1000)
			p.says(t, "a database call failed")
			m.swap(map[string]string{"url": user.url("two") + "\n"})
			s.wantAll(200)
			if strings.Count(p.log.String(), "relaying") != 1 {
				t.Errorf("the relay was started again")
			}
		})
	}
}

// databaseUser is a user of a scene's server, with all rights.
type databaseUser struct {
	*scene
	name string
}

// newUser creates a user.
func (s *scene) newUser(password string) databaseUser {
	s.t.Helper()
	u := databaseUser{s, "renewed_" + strings.ToLower(rand.Text()[:12])}
	if s.Kind == testdb.Postgres {
		u.execute("CREATE ROLE "+u.name+" SUPERUSER LOGIN PASSWORD '"+password+"'", "ALTER ROLE "+u.name+" SET timezone = 'UTC'")
		s.t.Cleanup(func() { u.hangUp(); u.execute("DROP OWNED BY "+u.name, "DROP ROLE "+u.name) })
	} else {
		u.execute("CREATE USER "+u.name+"@'%' IDENTIFIED BY '"+password+"'", "GRANT ALL ON *.* TO "+u.name+"@'%'")
		s.t.Cleanup(func() { u.execute("DROP USER " + u.name + "@'%'") })
	}
	return u
}

func (u databaseUser) execute(statements ...string) {
	u.t.Helper()
	for _, statement := range statements {
		if _, err := u.DB.ExecContext(context.Background(), statement); err != nil {
			u.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (u databaseUser) setPassword(password string) {
	u.t.Helper()
	if u.Kind == testdb.Postgres {
		u.execute("ALTER ROLE " + u.name + " PASSWORD '" + password + "'")
	} else {
		u.execute("ALTER USER " + u.name + "@'%' IDENTIFIED BY '" + password + "'")
	}
}

// url returns the database's URL with the user and a password.
func (u databaseUser) url(password string) string {
	u.t.Helper()
	parsed, err := url.Parse(u.URL)
	check(u.t, err)
	if parsed.User = url.User(u.name); password != "" {
		parsed.User = url.UserPassword(u.name, password)
	}
	return parsed.String()
}

// hangUp ends the user's connections.
func (u databaseUser) hangUp() {
	u.t.Helper()
	if u.Kind == testdb.Postgres {
		u.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + u.name + "'")
		return
	}
	var ids []int64
	eventually(u.t, "the server shows the user's connections", func() bool { // MySQL can't while another test's statement has an emoji (error 3854)
		rows, err := u.DB.QueryContext(context.Background(), "SELECT id FROM information_schema.processlist WHERE user = ?", u.name)
		if err != nil {
			return false
		}
		defer rows.Close()
		for ids = nil; rows.Next(); {
			var id int64
			check(u.t, rows.Scan(&id))
			ids = append(ids, id)
		}
		return rows.Err() == nil
	})
	for _, id := range ids {
		_, _ = u.DB.ExecContext(context.Background(), fmt.Sprint("KILL ", id)) // the connection may have ended already
	}
}

// When the file names another database, the daemon continues with that database, without a signal.
func TestDaemonStartsOnANewDatabaseInItsFile(t *testing.T) {
	t.Parallel()
	e, first, second := newEndpoint(t), newScene(t, "sqlite/modernc"), newScene(t, "sqlite/modernc")
	m := newMount(t, map[string]string{"url": first.URL})
	first.byFile(fmt.Sprintf("sources: {shop: {database_file: %q}}\nsinks: {hook: {type: http, url: %q}}\n", m.path("url"), e.URL+"/relay"))
	first.writeOrders(100, 1)
	first.wantAll(100)
	m.swap(map[string]string{"url": second.URL})
	second.writeOrders(100, 1)
	second.wantAll(100)
}
