package admin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// role is the permission of a client.
type role int

const (
	nobody   role = iota // may request /healthz and /readyz, and log in
	reader               // may see everything
	operator             // may also change things
)

func (r role) String() string { return [...]string{"nobody", "reader", "operator"}[r] }

// cookieLasts is how long a login is valid. A login on the page exchanges a token for a cookie. The cookie has the role, the
// expiry, a random number, and an HMAC of these values with the token as its key. So every process with the same tokens accepts the
// cookie, and no process accepts it after the token has been changed. The cookie's name depends on the daemon's tokens. Otherwise daemons
// on one host would overwrite each other's cookies, because browsers send a cookie to all ports of a host.
const cookieLasts = 12 * time.Hour

// Bounds that make guessing tokens slow: the response to a wrong token takes wrongTakes; at most mostChecked tokens are checked
// concurrently; other requests wait for at most checkWaiting.
const (
	wrongTakes   = time.Second
	mostChecked  = 10
	checkWaiting = 5 * time.Second
)

// guard determines the roles of clients.
type guard struct {
	latest     func(ctx context.Context, refused bool) (reader, operator string)
	cookieName string
	logger     *slog.Logger
	state      *State
	refused    func()
	checks     chan struct{} // has an element for each token that is being checked

	mu         sync.Mutex
	logged     time.Time // when a refused login was last logged
	suppressed int       // number of refused logins since then that were not logged
}

func newGuard(options Options, state *State) *guard {
	g := &guard{latest: options.Tokens, logger: options.Logger, state: state, refused: options.LoginRefused, checks: make(chan struct{}, mostChecked)}
	if g.latest == nil {
		g.latest = func(context.Context, bool) (reader, operator string) {
			return options.ReaderToken, options.OperatorToken
		}
	}
	mac := hmac.New(sha256.New, []byte(options.ReaderToken+"\n"+options.OperatorToken))
	mac.Write([]byte("cookie"))
	g.cookieName = "rowrelay_admin_" + hex.EncodeToString(mac.Sum(nil)[:4])
	return g
}

// tokens returns the tokens that are set.
func (g *guard) tokens() map[role]string { return g.read(context.Background(), false) }

func (g *guard) read(ctx context.Context, refused bool) map[role]string {
	all := map[role]string{}
	forReaders, forOperators := g.latest(ctx, refused)
	for r, token := range map[role]string{reader: forReaders, operator: forOperators} {
		if token != "" {
			all[r] = token
		}
	}
	return all
}

// roleOf returns the role of a request's client, according to the request's token or cookie.
func (g *guard) roleOf(request *http.Request) role {
	free := g.free()
	if token, is := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer "); is {
		return max(free, byToken(g.tokens(), token))
	}
	if cookie, err := request.Cookie(g.cookieName); err == nil {
		return max(free, g.byCookie(cookie.Value))
	}
	return free
}

// byToken returns the role of a token. It compares hashes in constant time.
func byToken(tokens map[role]string, given string) (found role) {
	hash := sha256.Sum256([]byte(given))
	for r, token := range tokens {
		own := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(hash[:], own[:]) == 1 {
			found = max(found, r)
		}
	}
	return found
}

// byLatestToken returns the role of a token. If no known token matches, it reads the tokens again, since they may have
// changed.
func (g *guard) byLatestToken(ctx context.Context, given string) role {
	if found := byToken(g.tokens(), given); found > nobody {
		return found
	}
	return byToken(g.read(ctx, true), given)
}

// refuse counts and logs a wrong token, and then waits for the duration wrongTakes.
func (g *guard) refuse(request *http.Request) {
	if g.refused != nil {
		g.refused()
	}
	g.logRefused(request)
	select {
	case <-time.After(wrongTakes):
	case <-request.Context().Done():
	}
}

// slowly calls the function `wrong` to check a token. It refuses the request, after a delay, if the token is wrong or if too many
// checks are in progress. It reports whether it has refused the request.
func (g *guard) slowly(w http.ResponseWriter, request *http.Request, wrong func() bool) (refused bool) {
	timeout := time.NewTimer(checkWaiting)
	defer timeout.Stop()
	select {
	case g.checks <- struct{}{}:
		defer func() { <-g.checks }()
	case <-timeout.C:
		w.Header().Set("Retry-After", askAgain)
		writeProblem(w, http.StatusTooManyRequests, "too many wrong tokens: try again")
		return true
	}
	if !wrong() {
		return false
	}
	g.refuse(request)
	w.Header().Set("WWW-Authenticate", `Bearer realm="rowrelay"`)
	writeProblem(w, http.StatusUnauthorized, "the token is wrong")
	return true
}

func (g *guard) byCookie(value string) role {
	for r, token := range g.tokens() {
		fields := strings.Split(value, ".")
		if len(fields) != 4 || fields[0] != r.String() {
			continue
		}
		ends, err := strconv.ParseInt(fields[1], 10, 64)
		if err == nil && time.Now().Unix() < ends && hmac.Equal([]byte(value), []byte(cookieValue(r, token, ends, fields[2]))) && !g.state.isRevoked(value) {
			return r
		}
	}
	return nobody
}

func cookieValue(r role, token string, ends int64, number string) string {
	signed := fmt.Sprintf("%s.%d.%s", r, ends, number)
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(signed))
	return signed + "." + hex.EncodeToString(mac.Sum(nil))
}

// login exchanges a token for a cookie.
func (g *guard) login(w http.ResponseWriter, request *http.Request) {
	var asked struct {
		Token string `json:"token"`
	}
	if !readJSON(w, request, &asked) {
		return
	}
	r := nobody
	if g.slowly(w, request, func() bool { r = g.byLatestToken(request.Context(), asked.Token); return r == nobody }) {
		return
	}
	ends := time.Now().Add(cookieLasts)
	g.setCookie(w, request, cookieValue(r, g.tokens()[r], ends.Unix(), rand.Text()), int(cookieLasts.Seconds()))
	writeJSON(w, http.StatusOK, map[string]string{"role": r.String()})
}

// logout ends a login. It revokes the cookie, so that this process accepts no copy of the cookie.
func (g *guard) logout(w http.ResponseWriter, request *http.Request) {
	if cookie, err := request.Cookie(g.cookieName); err == nil && g.byCookie(cookie.Value) > nobody {
		g.state.revoke(cookie.Value, time.Now().Add(cookieLasts))
	}
	g.setCookie(w, request, "", -1)
	writeJSON(w, http.StatusOK, map[string]string{"role": g.roleOf(&http.Request{}).String()})
}

func (g *guard) setCookie(w http.ResponseWriter, request *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: g.cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: overTLS(request), SameSite: http.SameSiteStrictMode})
}

// overTLS reports whether the browser's connection uses TLS, according to the connection itself or to the headers of the first
// proxy.
func overTLS(request *http.Request) bool {
	first, _, _ := strings.Cut(request.Header.Get("X-Forwarded-Proto"), ",")
	if request.TLS != nil || strings.EqualFold(strings.TrimSpace(first), "https") {
		return true
	}
	first, _, _ = strings.Cut(request.Header.Get("Forwarded"), ",") // RFC 7239
	for pair := range strings.SplitSeq(first, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "proto") {
			return strings.EqualFold(strings.Trim(value, `"`), "https")
		}
	}
	return false
}

// logRefused logs a refused login, at most once every ten seconds.
func (g *guard) logRefused(request *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.logged) < 10*time.Second {
		g.suppressed++
		return
	}
	g.logger.Warn("admin: a login was refused", "from", request.RemoteAddr, "suppressed", g.suppressed)
	g.logged, g.suppressed = time.Now(), 0
}

// free returns the role of a request without a token.
func (g *guard) free() role {
	if g.tokens()[reader] != "" {
		return nobody
	}
	return reader
}

// wrongToken refuses a request with a wrong token. It reports whether it has refused the request.
func (g *guard) wrongToken(w http.ResponseWriter, request *http.Request) (refused bool) {
	token, is := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	return is && token != "" && len(g.tokens()) > 0 && g.slowly(w, request, func() bool { return g.byLatestToken(request.Context(), token) == nobody })
}

// need returns a handler that calls the handler `next` only for requests with at least this role.
func (g *guard) need(least role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if g.free() < least && g.wrongToken(w, request) {
			return
		}
		has := g.roleOf(request)
		switch {
		case has >= least:
			next.ServeHTTP(w, request)
		case least == operator && g.tokens()[operator] == "":
			writeProblem(w, http.StatusForbidden, "this server is read-only: it has no operator_token")
		case has == nobody:
			w.Header().Set("WWW-Authenticate", `Bearer realm="rowrelay"`)
			writeProblem(w, http.StatusUnauthorized, "a token is required: send Authorization: Bearer …")
		default:
			writeProblem(w, http.StatusForbidden, "the operator's token is required")
		}
	})
}

// loopback reports whether an address can be reached from this machine only. The address is a host, with or without a port.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}
