package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// oauthBearer is the name of the SASL mechanism OAUTHBEARER (RFC 7628) in the settings.
const oauthBearer = "oauthbearer"

// bearer logs in with a token. It implements sasl.Mechanism.
type bearer struct{ first []byte }

// bearerLogin returns a login that uses the token. Its error contains no part of the token.
func bearerLogin(token settings.Secret, extensions map[string]string) (login, error) {
	if err := oauth2.CheckToken(token); err != nil {
		return login{}, settings.PrefixError("token", err)
	}
	first := fmt.Appendf(nil, "n,,\x01auth=Bearer %s\x01", token.Reveal())
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		first = fmt.Appendf(first, "%s=%s\x01", name, extensions[name])
	}
	return login{Mechanism: bearer{append(first, 1)}, hides: settings.NewRedactor(token)}, nil
}

func (b bearer) Name() string { return "OAUTHBEARER" }

func (b bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	return bearerSession{}, b.first, nil
}

type bearerSession struct{}

// Next ends the login if the broker has accepted it. If the broker has answered with an error in JSON instead, Next returns the
// reply that the broker expects before it ends the login.
func (bearerSession) Next(_ context.Context, said []byte) (done bool, say []byte, err error) {
	return len(said) == 0, []byte{1}, nil
}

var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x20-\x7e\t\r\n]+$`)
)

// checkExtensions checks SASL extensions (RFC 7628, section 3.1). Its error names the extension, but doesn't
// contain the value, which may be secret.
func checkExtensions(extensions map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		switch {
		case !extensionName.MatchString(name) || name == "auth":
			return fmt.Errorf("has the extension %q: its name must consist of letters and must not be auth", name)
		case !extensionValue.MatchString(extensions[name]):
			return fmt.Errorf("has the extension %q, whose value must consist of printable ASCII characters", name)
		}
	}
	return nil
}

// tokenTransport returns the transport for requests for tokens. The transport trusts the same root certificates as the
// connections to brokers, but uses neither the brokers' server name nor the client certificate, because the server that issues
// tokens is not a broker.
func tokenTransport(o Options) *http.Transport {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: longestIdle, MaxIdleConns: 1}
	if o.TLS != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: o.TLS.RootCAs, InsecureSkipVerify: o.TLS.InsecureSkipVerify}
	}
	return transport
}
