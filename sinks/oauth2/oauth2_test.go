package oauth2_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks/oauth2"
)

// authority issues numbered tokens.
type authority struct {
	mu       sync.Mutex
	asked    int
	requests []string
	lifetime string // the value of expires_in
	fails    bool
	takes    time.Duration
}

func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked++
	n, lifetime, fails, takes := a.asked, a.lifetime, a.fails, a.takes
	id, secret, _ := r.BasicAuth()
	_ = r.ParseForm()
	a.requests = append(a.requests, fmt.Sprintf("%s:%s %s", id, secret, r.PostForm.Encode()))
	a.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return
	}
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, `{"access_token":"token-%d","expires_in":%s}`, n, lifetime)
}

// inMemory returns a transport to a server with this handler, which needs no network. So it works in a bubble of package synctest.
func inMemory(t *testing.T, handler http.Handler) *http.Transport {
	t.Helper()
	connections := make(chan net.Conn)
	server := &http.Server{Handler: handler}
	listener := &pipes{connections, make(chan struct{}), sync.Once{}}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, served := net.Pipe()
		select {
		case connections <- served:
			return client, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

// pipes is a listener of connections that are pipes.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

var client = oauth2.Options{TokenURL: "http://id.example/token", ClientID: "shop+", ClientSecret: "s3cret&"}

// A token is replaced a minute before it expires, or after half of its lifetime. If that fails, the token is used until it
// expires.
func TestTokensAreReplacedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	for lifetime, renewedAfter := range map[string]time.Duration{"3600": 59 * time.Minute, `"3600"`: 59 * time.Minute, "60": 30 * time.Second, "null": 4 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			a := &authority{lifetime: lifetime}
			source := oauth2.NewSource(client, inMemory(t, a))
			want := func(token string) {
				t.Helper()
				if got, err := source.Token(t.Context()); err != nil || got.Secret.Reveal() != token {
					t.Errorf("expires_in %s: got %s, %v, want %s", lifetime, got.Secret.Reveal(), err, token)
				}
			}
			want("token-1")
			time.Sleep(renewedAfter - time.Millisecond)
			want("token-1")
			time.Sleep(2 * time.Millisecond)
			want("token-2")
			a.fails = true
			time.Sleep(renewedAfter + time.Millisecond)
			want("token-2")
			want("token-2")
			if a.asked != 3 {
				t.Errorf("%d requests, although the next request must wait after a failure", a.asked)
			}
			time.Sleep(6 * time.Second)
			want("token-2")
			time.Sleep(time.Minute)
			if got, err := source.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "oauth2_token_url: the token url answers 503") {
				t.Errorf("after the token has expired: %v, %v", got, err)
			}
			a.fails = false
			want(fmt.Sprintf("token-%d", a.asked+1))
			source.Close()
		})
	}
}

// While the server hangs, the current token is used, and only one caller waits, for three seconds.
func TestCallersDontWaitWhileATokenIsValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &authority{lifetime: "3600"}
		source := oauth2.NewSource(client, inMemory(t, a))
		if _, err := source.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.takes = time.Hour
		time.Sleep(59*time.Minute + time.Second)
		var waits sync.Map
		var callers sync.WaitGroup
		for i := range 10 {
			callers.Go(func() {
				began := time.Now()
				if got, err := source.Token(t.Context()); err != nil || got.Secret.Reveal() != "token-1" {
					t.Errorf("got %v, %v", got, err)
				}
				waits.Store(i, time.Since(began))
			})
		}
		callers.Wait()
		total := time.Duration(0)
		waits.Range(func(_, waited any) bool { total += waited.(time.Duration); return true })
		if total != 3*time.Second {
			t.Errorf("the callers waited for %v in total", total)
		}
		source.Close()
	})
}

// A refused token is replaced once, however many callers report it.
func TestForgottenTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &authority{lifetime: "3600"}
		source := oauth2.NewSource(client, inMemory(t, a))
		first, err := source.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		source.Forget(first)
		second, err := source.Token(t.Context())
		source.Forget(first)
		third, again := source.Token(t.Context())
		if err != nil || again != nil || second == first || third != second || a.asked != 2 {
			t.Errorf("%v, %v, %v, %v, %d requests", first, second, err, again, a.asked)
		}
		source.Close()
	})
}

func TestRequests(t *testing.T) {
	t.Parallel()
	a := &authority{lifetime: "3600"}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	for _, options := range []oauth2.Options{
		{ClientID: "shop+", ClientSecret: "s3cret&"},
		{ClientID: "shop+", ClientSecret: "s3cret&", Scopes: []string{"a", "b"}, Audience: "https://api", SecretInBody: true},
	} {
		options.TokenURL = server.URL
		source := oauth2.NewSource(options, &http.Transport{})
		if _, err := source.Token(t.Context()); err != nil {
			t.Error(err)
		}
		source.Close()
	}
	want := "shop%2B:s3cret%26 grant_type=client_credentials\n" +
		": audience=https%3A%2F%2Fapi&client_id=shop%2B&client_secret=s3cret%26&grant_type=client_credentials&scope=a+b"
	if got := strings.Join(a.requests, "\n"); got != want {
		t.Errorf("the requests are\n%s\nwant\n%s", got, want)
	}
}
