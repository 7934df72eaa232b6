package kafka_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// bearers returns the address of the real broker's listener for tokens.
func bearers(t testing.TB) []string {
	t.Helper()
	address := logins(t).Get("oauthbearer")
	if address == "" {
		t.Skip("the broker was started without a listener for OAUTHBEARER")
	}
	return []string{address}
}

// unsigned returns a token of the user rowrelay without a signature, which the real broker accepts.
func unsigned(lifetime time.Duration) settings.Secret {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	now := time.Now()
	claims := fmt.Sprintf(`{"sub":"rowrelay","iat":%.3f,"exp":%.3f}`, float64(now.Add(-time.Hour).UnixMilli())/1000, float64(now.Add(lifetime).UnixMilli())/1000)
	return settings.Secret(part(`{"alg":"none"}`) + "." + part(claims) + ".")
}

func TestBearerTokens(t *testing.T) {
	t.Parallel()
	at, topic := bearers(t), newTopic(t, []string{broker(t)}, 1)
	for name, test := range map[string]struct {
		token      settings.Secret
		err        error
		extensions map[string]string
		want       sinks.Reason
	}{
		"valid":             {token: unsigned(time.Hour)},
		"with an extension": {token: unsigned(time.Hour), extensions: map[string]string{"logicalCluster": "lkc-1"}},
		"expired":           {token: unsigned(-time.Hour), want: sinks.ReasonAuth},
		"malformed":         {token: "t0ken", want: sinks.ReasonAuth},
		"two lines":         {token: "t0ken\nt0ken", want: sinks.ReasonAuth},
		"none":              {err: errors.New("the signer failed"), want: sinks.ReasonAuth},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink := newSink(t, kafka.Options{
				Brokers: at, SASL: "oauthbearer", SASLExtensions: test.extensions, LeaderTimeout: enough,
				Token: func(context.Context) (settings.Secret, error) { return test.token, test.err },
			})
			err := sink.Open(t.Context())
			if (err == nil) != (test.want == "") || err != nil && test.token != "" && strings.Contains(err.Error(), test.token.Reveal()) {
				t.Errorf("Open: %v", err)
			}
			o := sink.Send(t.Context(), batchOf(topic, "a"))[0]
			if (o.Result == sinks.Delivered) != (test.want == "") || o.Reason != test.want || strings.Contains(o.Detail, "t0ken") {
				t.Errorf("%s, want %s: %+v", o.Reason, test.want, o)
			}
		})
	}
}

// The sink replaces each connection before its token expires, so no message fails. The server writes the lifetime as a text, as
// many do.
func TestTokensThatExpire(t *testing.T) {
	t.Parallel()
	const lifetime, expirations = 10 * time.Second, 2
	at, topic := bearers(t), newTopic(t, []string{broker(t)}, 1)
	var issued atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		issued.Add(1)
		if r.FormValue("audience") != "kafka" || r.FormValue("client_secret") != "s3cret" {
			t.Errorf("a request for a token has %v", r.Form)
		}
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":"%v"}`, unsigned(lifetime).Reveal(), lifetime.Seconds())
	}))
	t.Cleanup(issuer.Close)
	sink := newSink(t, kafka.Options{Brokers: at, SASL: "oauthbearer", OAuth2: oauth2.Options{
		TokenURL: issuer.URL, ClientID: "relay", ClientSecret: "s3cret", Audience: "kafka", SecretInBody: true,
	}})
	for began := time.Now(); time.Since(began) < expirations*lifetime; {
		for _, o := range sink.Send(t.Context(), batchOf(topic, "a", "b")) {
			if o.Result != sinks.Delivered {
				t.Fatalf("after %v and %d tokens: %+v", time.Since(began), issued.Load(), o)
			}
		}
	}
	if n := issued.Load(); n < expirations || n > 3*expirations {
		t.Errorf("%d tokens were issued", n)
	}
}

// If the broker refuses a token that hasn't expired, because it was revoked, the sink logs in with another one.
func TestRefusedTokenIsReplaced(t *testing.T) {
	t.Parallel()
	at, topic := bearers(t), newTopic(t, []string{broker(t)}, 1)
	var issued atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		token := unsigned(time.Hour)
		if issued.Add(1) == 1 {
			token = unsigned(-time.Minute)
		}
		fmt.Fprintf(w, `{"access_token":%q,"expires_in":3600}`, token.Reveal())
	}))
	t.Cleanup(issuer.Close)
	sink := newSink(t, kafka.Options{Brokers: at, SASL: "oauthbearer", OAuth2: oauth2.Options{TokenURL: issuer.URL, ClientID: "relay", ClientSecret: "s3cret"}})
	if o := sink.Send(t.Context(), batchOf(topic, "a"))[0]; o.Result != sinks.Delivered {
		t.Errorf("%+v", o)
	}
	if n := issued.Load(); n != 2 {
		t.Errorf("%d tokens were issued", n)
	}
}

func TestWrongBearerOptions(t *testing.T) {
	t.Parallel()
	token := func(context.Context) (settings.Secret, error) { return "t0ken", nil }
	client := oauth2.Options{TokenURL: "https://id.example/token", ClientID: "relay", ClientSecret: "s3cret"}
	for name, options := range map[string]kafka.Options{
		"neither":               {SASL: "oauthbearer"},
		"both":                  {SASL: "oauthbearer", Token: token, OAuth2: client},
		"a password":            {SASL: "oauthbearer", Token: token, Password: "s3cret"},
		"another mechanism":     {SASL: "plain", Username: "u", Password: "s3cret", Token: token},
		"no mechanism":          {OAuth2: client},
		"half a client":         {SASL: "oauthbearer", OAuth2: oauth2.Options{TokenURL: "https://id.example/token", ClientSecret: "s3cret"}},
		"an extension's name":   {SASL: "oauthbearer", Token: token, SASLExtensions: map[string]string{"auth": "s3cret"}},
		"an extension's value":  {SASL: "oauthbearer", Token: token, SASLExtensions: map[string]string{"a": "s3cret\x01"}},
		"an unneeded extension": {SASLExtensions: map[string]string{"a": "s3cret"}},
	} {
		options.Brokers = []string{"localhost"}
		if _, err := kafka.New(options); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
