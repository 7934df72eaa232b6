package admin

import (
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

// role is what a client may do.
type role int

const (
	nobody   role = iota // may ask whether the process lives and is ready, and log in
	reader               // may see everything
	operator             // may change things
)

func (r role) String() string { return [...]string{"nobody", "reader", "operator"}[r] }

// A cookie stands for a token that was typed into the page. It holds its role, its end, a number of its own and what
// only who knows the token can have made of these; so any process with the same tokens knows it,
// and a new token ends it. Browsers send it to all ports of a host: its name tells the daemons with other tokens apart.
const cookieLasts = 12 * time.Hour

// Bounds of wrong tokens: a check of one that is wrong takes so long, and so many are checked at the same time.
const (
	wrongTakes   = time.Second
	mostChecked  = 10
	checkWaiting = 5 * time.Second
)

// guard knows clients by their tokens.
type guard struct {
	latest     func() (reader, operator string)
	cookieName string
	logger     *slog.Logger
	state      *State
	refused    func()
	checks     chan struct{} // has an element for each token that is being checked

	mu         sync.Mutex
	told       time.Time // when refused logins were last logged
	suppressed int
}

func newGuard(options Options, state *State) *guard {
	g := &guard{latest: options.Tokens, logger: options.Logger, state: state, refused: options.LoginRefused, checks: make(chan struct{}, mostChecked)}
	if g.latest == nil {
		g.latest = func() (reader, operator string) { return options.ReaderToken, options.OperatorToken }
	}
	mac := hmac.New(sha256.New, []byte(options.ReaderToken+"\n"+options.OperatorToken))
	mac.Write([]byte("cookie"))
	g.cookieName = "rowrelay_admin_" + hex.EncodeToString(mac.Sum(nil)[:4])
	return g
}

// tokens are those that are set.
func (g *guard) tokens() map[role]string {
	all := map[role]string{}
	forReaders, forOperators := g.latest()
	for r, token := range map[role]string{reader: forReaders, operator: forOperators} {
		if token != "" {
			all[r] = token
		}
	}
	return all
}

// roleOf is what the request may do: by its token, by its cookie, or as everybody may.
func (g *guard) roleOf(request *http.Request) role {
	free := g.free()
	if token, is := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer "); is {
		return max(free, g.byToken(token))
	}
	if cookie, err := request.Cookie(g.cookieName); err == nil {
		return max(free, g.byCookie(cookie.Value))
	}
	return free
}

// byToken compares hashes, in a time that tells nothing.
func (g *guard) byToken(given string) (found role) {
	hash := sha256.Sum256([]byte(given))
	for r, token := range g.tokens() {
		own := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(hash[:], own[:]) == 1 {
			found = max(found, r)
		}
	}
	return found
}

// refuse tells of a wrong token, and takes a while.
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

// slowly runs a check of a token that may be wrong, and refuses the request if it is. It says whether it did. Few are checked at the
// same time, so that guessing takes long.
func (g *guard) slowly(w http.ResponseWriter, request *http.Request, wrong func() bool) (refused bool) {
	timeout := time.NewTimer(checkWaiting)
	defer timeout.Stop()
	select {
	case g.checks <- struct{}{}:
		defer func() { <-g.checks }()
	case <-timeout.C:
		w.Header().Set("Retry-After", askAgain)
		writeProblem(w, http.StatusTooManyRequests, "too many wrong tokens arrive: try again")
		return true
	}
	if !wrong() {
		return false
	}
	g.refuse(request)
	w.Header().Set("WWW-Authenticate", `Bearer realm="rowrelay"`)
	writeProblem(w, http.StatusUnauthorized, "this token is no reader's and no operator's")
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

// login trades a token for a cookie.
func (g *guard) login(w http.ResponseWriter, request *http.Request) {
	var asked struct {
		Token string `json:"token"`
	}
	if !readJSON(w, request, &asked) {
		return
	}
	r := nobody
	if g.slowly(w, request, func() bool { r = g.byToken(asked.Token); return r == nobody }) {
		return
	}
	ends := time.Now().Add(cookieLasts)
	g.setCookie(w, request, cookieValue(r, g.tokens()[r], ends.Unix(), rand.Text()), int(cookieLasts.Seconds()))
	writeJSON(w, http.StatusOK, map[string]string{"role": r.String()})
}

// logout ends a login: also a copy of its cookie is worth nothing then.
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

// overTLS says whether the browser's own connection has TLS, as far as the first proxy tells.
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

// logRefused tells of refused logins, at most once in ten seconds.
func (g *guard) logRefused(request *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.told) < 10*time.Second {
		g.suppressed++
		return
	}
	g.logger.Warn("admin: a login was refused", "from", request.RemoteAddr, "suppressed", g.suppressed)
	g.told, g.suppressed = time.Now(), 0
}

// free is what a request without a token may do.
func (g *guard) free() role {
	if g.tokens()[reader] != "" {
		return nobody
	}
	return reader
}

// wrongToken refuses a request that brings a wrong token, and says whether it did.
func (g *guard) wrongToken(w http.ResponseWriter, request *http.Request) (refused bool) {
	token, is := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	return is && token != "" && len(g.tokens()) > 0 && g.slowly(w, request, func() bool { return g.byToken(token) == nobody })
}

// need lets only those through who may do so much.
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
			writeProblem(w, http.StatusUnauthorized, "a token is needed: Authorization: Bearer …")
		default:
			writeProblem(w, http.StatusForbidden, "this takes the operator's token")
		}
	})
}

// loopback says whether an address, host:port or host, is this machine's alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}
