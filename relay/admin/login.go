package admin

import (
	"crypto/hmac"
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

// A cookie stands for a token that was typed into the page. It holds its role, its end and what
// only who knows the token can have made of both; so any process with the same tokens knows it,
// and a new token ends it.
const (
	cookieName  = "rowrelay_admin"
	cookieLasts = 12 * time.Hour
)

// guard knows clients by their tokens.
type guard struct {
	tokens map[role]string // those that are set
	logger *slog.Logger

	mu     sync.Mutex
	told   time.Time // when refused logins were last logged
	unsaid int
}

func newGuard(options Options) *guard {
	g := &guard{tokens: map[role]string{}, logger: options.Logger}
	for r, token := range map[role]string{reader: options.ReaderToken, operator: options.OperatorToken} {
		if token != "" {
			g.tokens[r] = token
		}
	}
	return g
}

// roleOf is what the request may do: by its token, by its cookie, or as everybody may.
func (g *guard) roleOf(request *http.Request) role {
	free := reader // without a token for readers everybody is one
	if g.tokens[reader] != "" {
		free = nobody
	}
	if token, is := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer "); is {
		return max(free, g.byToken(token))
	}
	if cookie, err := request.Cookie(cookieName); err == nil {
		return max(free, g.byCookie(cookie.Value))
	}
	return free
}

// byToken compares hashes, in a time that tells nothing.
func (g *guard) byToken(given string) (found role) {
	hash := sha256.Sum256([]byte(given))
	for r, token := range g.tokens {
		own := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(hash[:], own[:]) == 1 {
			found = max(found, r)
		}
	}
	return found
}

func (g *guard) byCookie(value string) role {
	for r, token := range g.tokens {
		fields := strings.Split(value, ".")
		if len(fields) != 3 || fields[0] != r.String() {
			continue
		}
		ends, err := strconv.ParseInt(fields[1], 10, 64)
		if err == nil && time.Now().Unix() < ends && hmac.Equal([]byte(value), []byte(cookieValue(r, token, ends))) {
			return r
		}
	}
	return nobody
}

func cookieValue(r role, token string, ends int64) string {
	signed := fmt.Sprintf("%s.%d", r, ends)
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
	r := g.byToken(asked.Token)
	if r == nobody {
		g.logRefused(request)
		writeProblem(w, http.StatusUnauthorized, "this token is no reader's and no operator's")
		return
	}
	ends := time.Now().Add(cookieLasts)
	setCookie(w, request, cookieValue(r, g.tokens[r], ends.Unix()), int(cookieLasts.Seconds()))
	writeJSON(w, http.StatusOK, map[string]string{"role": r.String()})
}

func (g *guard) logout(w http.ResponseWriter, request *http.Request) {
	setCookie(w, request, "", -1)
	writeJSON(w, http.StatusOK, map[string]string{"role": g.roleOf(&http.Request{}).String()})
}

func setCookie(w http.ResponseWriter, request *http.Request, value string, age int) {
	secure := request.TLS != nil || request.Header.Get("X-Forwarded-Proto") == "https"
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode})
}

// logRefused tells of refused logins, at most once in ten seconds.
func (g *guard) logRefused(request *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.told) < 10*time.Second {
		g.unsaid++
		return
	}
	g.logger.Warn("admin: a login was refused", "from", request.RemoteAddr, "unsaid", g.unsaid)
	g.told, g.unsaid = time.Now(), 0
}

// need lets only those through who may do so much.
func (g *guard) need(least role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		has := g.roleOf(request)
		switch {
		case has >= least:
			next.ServeHTTP(w, request)
		case least == operator && g.tokens[operator] == "":
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
