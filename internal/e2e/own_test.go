package e2e

import (
	"cmp"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/proof"
	"github.com/rowrelay/rowrelay/internal/testdb"
)

// own is a database server of one test, which may kill the server. The server ends with the test,
// even if the test process is killed. Its data survive the death of the server, but not a crash of
// the machine.
type own struct {
	t       *testing.T
	kind    string // the kind of the database, as in package testdb
	words   []string
	folder  string
	port    int
	secret  string
	options []string
	env     []string      // variables in addition to the test's
	process *exec.Cmd     // the latest process
	exited  chan struct{} // closed when the latest process has ended
}

// newOwn returns a server that isn't started yet. The name is one of those in deploy/servers, and
// the given options are added to the usual ones.
func newOwn(t *testing.T, name, kind string, options ...string) *own {
	t.Helper()
	s := blank(t, kind, wordsOf(t, name), preparedSecret, options)
	prepared.Lock()
	defer prepared.Unlock()
	if data := prepared.data[name]; data != "" {
		s.takes(data)
		return s
	}
	s.init()
	folder, err := os.MkdirTemp("", "rowrelay-prepared-")
	check(t, err)
	s.owns(folder)
	s.run("cp", "-a", s.data(), folder)
	prepared.data[name] = filepath.Join(folder, "data")
	return s
}

// prepared has initial data for each name of a server. Each server with this name starts with a
// copy, because creating the data takes MySQL several seconds of CPU.
var prepared = struct {
	sync.Mutex
	data map[string]string
}{data: map[string]string{}}

// preparedSecret is the password of all servers, because some prepared data contain it.
var preparedSecret = rand.Text()

func removePrepared() {
	for _, data := range prepared.data {
		os.RemoveAll(filepath.Dir(data))
	}
}

// init creates the server's data.
func (s *own) init() {
	s.t.Helper()
	switch s.kind {
	case testdb.Postgres:
		s.write("password", s.secret)
		s.run(s.beside("initdb"), "--pgdata="+s.data(), "--username=rowrelay", "--pwfile="+s.path("password"), "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
	case testdb.MariaDB:
		s.run("mkdir", s.data())
		s.feed(s.mariadbTables(), s.words[0], append(append(s.words[1:], s.common()...), "--bootstrap")...)
	case testdb.MySQL:
		s.run(s.words[0], append(append(s.words[1:], s.common()...), "--initialize-insecure")...)
	}
}

// takes puts a copy of prepared data into the server's folder.
func (s *own) takes(data string) {
	s.t.Helper()
	s.run("cp", "-a", data, s.data())
	_ = os.Remove(filepath.Join(s.data(), "auto.cnf")) // has the server's unique id, which a copy must not share
}

// mariadbTables returns the statements for the system tables of a server's version, as deploy/servers creates them. The place and the names
// of their files depend on the version and on who made the package.
func (s *own) mariadbTables() string {
	s.t.Helper()
	var paths string
	for _, names := range []string{"mysql/mysql", "mariadb/mariadb", "mariadb"} {
		paths = filepath.Join(filepath.Dir(s.words[len(s.words)-1]), "../share", names)
		if _, err := os.Stat(paths + "_system_tables.sql"); err == nil {
			break
		}
	}
	all := "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL, @skip_auth_anonymous = 1;\n"
	for _, name := range []string{"system_tables", "performance_tables", "system_tables_data"} {
		text, err := os.ReadFile(paths + "_" + name + ".sql")
		check(s.t, err)
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "@current_hostname") {
				all += line
			}
		}
	}
	return all
}

// blank returns a server without data.
func blank(t *testing.T, kind string, words []string, secret string, options []string) *own {
	t.Helper()
	folder, err := os.MkdirTemp("", "rowrelay-own-") // other users can't access t.TempDir
	check(t, err)
	s := &own{t: t, kind: kind, words: words, folder: folder, secret: secret, port: testdb.FreePort(t), options: options}
	t.Cleanup(func() {
		s.kill()
		for range 100 { // the child processes of a killed server end a little later
			if os.RemoveAll(folder) == nil {
				return
			}
			<-time.After(50 * time.Millisecond)
		}
		t.Errorf("%s can't be removed", folder)
	})
	s.owns(folder)
	if kind != testdb.Postgres {
		s.write("users.sql", fmt.Sprintf("CREATE USER IF NOT EXISTS root@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO root@'%%' WITH GRANT OPTION;\n"+
			"DROP USER IF EXISTS root@localhost, root@127.0.0.1, root@'::1';\n", secret))
	}
	return s
}

// copied returns a server of the same kind with a copy of the data.
func (s *own) copied(options ...string) *own {
	s.t.Helper()
	other := blank(s.t, s.kind, s.words, s.secret, options)
	other.takes(s.data())
	return other
}

// wordsOf returns the command that starts a server. If another server stands in for the named one, because make proof-versions runs the scenes on
// another version, the variable with the suffix _IS names that other server.
func wordsOf(t *testing.T, name string) []string {
	t.Helper()
	variable := "ROWRELAY_TEST_" + strings.ToUpper(name)
	if os.Getenv(variable) == "" {
		missing(t, variable)
	}
	if os.Getenv("ROWRELAY_TEST_CONFORMANCE") != "" {
		t.Skip("make conformance tests a server that runs elsewhere, and starts none")
	}
	name = cmp.Or(os.Getenv(variable+"_IS"), name)
	out, err := exec.Command("../../deploy/servers/servers", "words", name).Output()
	check(t, err)
	return strings.Fields(string(out))
}

// unprivileged returns the user that runs servers, because some servers refuse to run as root. nil
// means the test's own user.
func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		who, err = user.Lookup("nobody")
	}
	check(t, err)
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	check(t, err)
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	check(t, err)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *own) path(name string) string   { return filepath.Join(s.folder, name) }
func (s *own) data() string              { return s.path("data") }
func (s *own) beside(name string) string { return filepath.Join(filepath.Dir(s.words[0]), name) }

// write creates a file that only the server's user may read.
func (s *own) write(name, text string) {
	s.t.Helper()
	check(s.t, os.WriteFile(s.path(name), []byte(text), 0o600))
	s.owns(s.path(name))
}

// owns gives a file to the server's user.
func (s *own) owns(path string) {
	s.t.Helper()
	if who := unprivileged(s.t); who != nil {
		check(s.t, os.Chown(path, int(who.Uid), int(who.Gid)))
	}
}

// run runs a program as the server's user, and waits for it.
func (s *own) run(program string, arguments ...string) {
	s.t.Helper()
	s.feed("", program, arguments...)
}

// feed is like run for a program that reads from its standard input.
func (s *own) feed(input, program string, arguments ...string) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), program, arguments...)
	command.Dir, command.Env, command.Stdin = s.folder, append(os.Environ(), "PGPASSWORD="+s.secret), strings.NewReader(input)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged(s.t)}
	if out, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
}

// common returns the options of MySQL and MariaDB programs.
func (s *own) common() []string {
	all := []string{"--no-defaults", "--datadir=" + s.data(), "--tmpdir=" + s.folder, "--socket=" + s.path("socket")}
	if s.kind == testdb.MySQL {
		all = append(all, "--basedir="+filepath.Dir(filepath.Dir(s.words[len(s.words)-1])), "--mysqlx=OFF", "--secure-file-priv=")
	}
	return all
}

// arguments returns the server's options, which follow its command.
func (s *own) arguments() []string {
	port := strconv.Itoa(s.port)
	if s.kind == testdb.Postgres {
		return append([]string{"-D", s.data(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + port, "-c", "unix_socket_directories=",
			"-c", "max_connections=200", "-c", "fsync=off", "-c", "full_page_writes=off"}, s.options...)
	}
	return append(append(s.common(), "--bind-address=127.0.0.1", "--port="+port, "--skip-name-resolve", "--init-file="+s.path("users.sql"),
		"--pid-file="+s.path("pid"), "--log-error="+s.path("log.err"), "--default-time-zone=+05:45", "--character-set-server=utf8mb4",
		"--innodb-buffer-pool-size=256M", "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"), s.options...)
}

// start starts the server, and waits until it accepts clients.
func (s *own) start() {
	s.t.Helper()
	if !s.starts() {
		s.t.Fatalf("the server has ended:\n%s", s.said())
	}
}

// starts starts the server, and waits until it accepts clients or has ended. It reports whether it accepts clients.
func (s *own) starts() (accepts bool) {
	s.t.Helper()
	s.process, s.exited = s.launch(s.end(), s.words[0], append(s.words[1:], s.arguments()...)...)
	db := s.open(s.address(), "", "")
	eventually(s.t, "the server accepts clients", func() bool {
		accepts = isOpen(s.exited) && db.PingContext(s.t.Context()) == nil
		return accepts || !isOpen(s.exited)
	})
	return accepts
}

// launch starts a program in the server's folder, as the server's user. If the test process ends, the
// program gets the signal. The channel is closed when the program has ended.
func (s *own) launch(end syscall.Signal, program string, arguments ...string) (process *exec.Cmd, exited chan struct{}) {
	s.t.Helper()
	log, err := os.OpenFile(s.path("output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(s.t, err)
	defer log.Close()
	process, exited = exec.Command(program, arguments...), make(chan struct{})
	process.Dir, process.Stdout, process.Stderr = s.folder, log, log
	process.Env = append(os.Environ(), s.env...)
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: unprivileged(s.t), Pdeathsig: end}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // if this thread ended, the program that it started would be killed
		err := process.Start()
		started <- err
		if err == nil {
			_ = process.Wait()
			close(exited)
		}
	}()
	check(s.t, <-started)
	return process, exited
}

// end returns the signal that ends the server immediately.
func (s *own) end() syscall.Signal {
	if s.kind == testdb.Postgres {
		return syscall.SIGQUIT
	}
	return syscall.SIGKILL
}

// kill ends the server as a crash would.
func (s *own) kill() {
	fault(s.t, proof.DatabaseKilled, "")
	s.signal(syscall.SIGKILL)
}

// signal sends a signal that ends the server, and waits until the server has ended.
func (s *own) signal(signal syscall.Signal) {
	if s.process != nil && s.process.Process != nil {
		_ = s.process.Process.Signal(signal)
		<-s.exited
	}
}

// said returns the end of the server's output.
func (s *own) said() string {
	var all tail
	for _, name := range []string{"output", "log.err"} {
		if file, err := os.Open(s.path(name)); err == nil {
			_, _ = io.Copy(&all, file)
			_ = file.Close()
		}
	}
	return all.String()
}

func (s *own) address() string { return fmt.Sprint("127.0.0.1:", s.port) }

// url returns the URL of one of the server's databases, or of its default database if the name is
// empty. The address may belong to a proxy.
func (s *own) url(at, database string) string {
	if s.kind == testdb.Postgres {
		return fmt.Sprintf("postgres://rowrelay:%s@%s/%s?sslmode=disable", s.secret, at, cmp.Or(database, "postgres"))
	}
	return fmt.Sprintf("%s://root:%s@%s/%s", s.kind, s.secret, at, database)
}

// dsn returns the driver and data source name for sql.Open, with settings for each session.
func (s *own) dsn(at, database, settings string) (driver, dsn string) {
	if s.kind == testdb.Postgres {
		return "pgx", s.url(at, database) + "&jit=off&options=" + strings.ReplaceAll(url.QueryEscape(settings), "+", "%20")
	}
	return "mysql", fmt.Sprintf("root:%s@tcp(%s)/%s?interpolateParams=true&parseTime=true&clientFoundRows=true&time_zone=%%27%%2B00%%3A00%%27", s.secret, at, database)
}

func (s *own) open(at, database, settings string) *sql.DB {
	s.t.Helper()
	db, err := sql.Open(s.dsn(at, database, settings))
	check(s.t, err)
	s.t.Cleanup(func() { _ = db.Close() })
	return db
}

// scene creates a database on the server, with an empty outbox and a business table. The argument at
// is the address at which clients reach the server. The argument settings is for the writers' sessions.
func (s *own) scene(at, name, settings string) *scene {
	s.t.Helper()
	s.exec("CREATE DATABASE " + name)
	driver, dsn := s.dsn(at, name, settings)
	made := setUp(s.t, testdb.Database{Name: name, Kind: s.kind, Driver: driver, DSN: dsn, URL: s.url(at, name), DB: s.open(at, name, settings)})
	made.topology = "a server of its own"
	return made
}

// exec runs statements one by one as an administrator.
func (s *own) exec(statements ...string) {
	s.t.Helper()
	db := s.open(s.address(), "", "")
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%s: %v", statement, err)
		}
	}
}
