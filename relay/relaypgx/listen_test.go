package relaypgx_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
)

// listening is a running call of Listen.
type listening struct {
	woken  chan struct{}
	result chan error
	stop   context.CancelFunc
}

func listen(t *testing.T, connection string, options relaypgx.ListenerOptions) listening {
	t.Helper()
	listener, err := relaypgx.NewListener(connection, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := listening{woken: make(chan struct{}, 100), result: make(chan error, 1), stop: cancel}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.result <- listener.Listen(ctx, func() { l.woken <- struct{}{} })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return l
}

func (l listening) wantWake(t *testing.T, why string) {
	t.Helper()
	select {
	case <-l.woken:
	case err := <-l.result:
		t.Fatalf("%s: Listen ended with %v", why, err)
	case <-time.After(5 * time.Minute):
		t.Fatalf("%s: Listen has not called wake", why)
	}
}

// onServers runs a test on each server, in a database that has the outbox table.
func onServers(t *testing.T, check func(*testing.T, testdb.Database)) {
	t.Parallel()
	for _, target := range testdb.Targets() {
		if target.Kind != testdb.Postgres || target.Driver != "pgx" {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := target.Open(t)
			exec(t, db, "CREATE SCHEMA other")
			exec(t, db, "CREATE TABLE outbox (topic text); CREATE TABLE other.outbox (topic text)")
			check(t, db)
		})
	}
}

func exec(t *testing.T, db testdb.Database, statement string) {
	t.Helper()
	if _, err := db.DB.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func notify(t *testing.T, db testdb.Database, table string) {
	t.Helper()
	parsed, err := dialect.ParseTable(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range dialect.Postgres().Notify(parsed) {
		exec(t, db, query.SQL)
	}
}

func TestListen(t *testing.T) {
	onServers(t, func(t *testing.T, db testdb.Database) {
		l := listen(t, db.URL, relaypgx.ListenerOptions{Ping: 50 * time.Millisecond})
		l.wantWake(t, "at its start")
		notify(t, db, "outbox")
		l.wantWake(t, "after a writer's notification")
		notify(t, db, "other.outbox") // for another table, so it must not wake this listener
		exec(t, db, "NOTIFY rowrelay_outbox")
		l.wantWake(t, "after a plain notification")
		if more := len(l.woken); more != 0 {
			t.Errorf("Listen called wake %d more times, want none", more)
		}
		l.stop()
		if err := <-l.result; err != nil {
			t.Errorf("Listen ended with %v, want nil", err)
		}
	})
}

// Pings keep a quiet connection open. If the connection is lost, Listen returns an error.
func TestLostConnection(t *testing.T) {
	onServers(t, func(t *testing.T, db testdb.Database) {
		l := listen(t, db.URL, relaypgx.ListenerOptions{Ping: 10 * time.Millisecond})
		l.wantWake(t, "at its start")
		exec(t, db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		if err := <-l.result; err == nil || !strings.Contains(err.Error(), "listen on rowrelay_outbox") {
			t.Errorf("Listen ended with %v, want an error about the lost connection", err)
		}
	})
}

func TestMissingTable(t *testing.T) {
	onServers(t, func(t *testing.T, db testdb.Database) {
		l := listen(t, db.URL, relaypgx.ListenerOptions{Table: "nowhere"})
		if err := <-l.result; err == nil || !strings.Contains(err.Error(), "nowhere") {
			t.Errorf("Listen ended with %v, want an error about the missing table", err)
		}
	})
}

// If the connection goes through a proxy that forwards no notifications, such as a pooler in
// transaction mode, Listen returns ErrDeaf.
func TestDeafConnection(t *testing.T) {
	onServers(t, func(t *testing.T, db testdb.Database) {
		l := listen(t, deaf(t, db.URL), relaypgx.ListenerOptions{Patience: 10 * time.Second})
		if err := <-l.result; !errors.Is(err, relaypgx.ErrDeaf) {
			t.Errorf("Listen ended with %v, want %v", err, relaypgx.ErrDeaf)
		}
		if len(l.woken) != 0 {
			t.Error("Listen called wake although no notifications arrive")
		}
	})
}

// If a server accepts the connection but sends nothing, Listen returns an error when Patience has passed.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	l := listen(t, "postgres://user:secret@"+silent.Addr().String()+"/db?sslmode=disable", relaypgx.ListenerOptions{Patience: 50 * time.Millisecond})
	err = <-l.result
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("Listen ended with %v, want an error without the password", err)
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	if _, err := relaypgx.NewListener("postgres://localhost/db", relaypgx.ListenerOptions{Table: "no;table"}); err == nil {
		t.Error("a table name with a semicolon is accepted")
	}
	if _, err := relaypgx.NewListener("postgres://user:secret@localhost:port/db", relaypgx.ListenerOptions{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed address: %v, want an error without the password", err)
	}
}

// deaf returns the address of a proxy that drops notifications.
func deaf(t *testing.T, address string) string {
	t.Helper()
	server, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	real := server.Host
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	serve := func(client net.Conn) {
		defer func() { _ = client.Close() }()
		upstream, err := net.Dial("tcp", real)
		if err != nil {
			return
		}
		defer func() { _ = upstream.Close() }()
		forward := make(chan struct{})
		go func() {
			defer close(forward)
			_, _ = io.Copy(upstream, client)
			_ = upstream.Close()
		}()
		withoutNotifications(client, upstream)
		_ = client.Close()
		<-forward
	}
	running.Go(func() {
		for {
			client, err := proxy.Accept()
			if err != nil {
				return
			}
			running.Go(func() { serve(client) })
		}
	})
	t.Cleanup(func() { _ = proxy.Close(); running.Wait() })
	server.Host = proxy.Addr().String()
	return server.String()
}

// withoutNotifications copies a server's messages except notifications. A message consists of a letter, a length and a body.
func withoutNotifications(client io.Writer, server io.Reader) {
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if head[0] == 'A' {
			continue
		}
		if _, err := client.Write(append(head, body...)); err != nil {
			return
		}
	}
}
