package httpsink_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/cloudevents"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// signed is a request that a receiver got.
type signed struct {
	header http.Header
	body   []byte
}

func sendSigned(t *testing.T, options httpsink.Options) (signed, sinks.Message) {
	t.Helper()
	received := make(chan signed, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- signed{r.Header, body}
	}))
	defer server.Close()
	options.URL = server.URL
	sink, err := httpsink.New(options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sink.Close(t.Context()) }()
	m := sinks.Message{Attempt: 1, Message: outbox.Message{ID: outbox.NewID(), Topic: "t", Payload: []byte(`{"n":"ö"}`)}}
	if got := sink.Send(t.Context(), []sinks.Message{m})[0]; got.Result != sinks.Delivered {
		t.Fatalf("got %+v", got)
	}
	return <-received, m
}

func receiver(t *testing.T, secret string) *standardwebhooks.Webhook {
	t.Helper()
	r, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A receiver with the official library accepts the requests, also while secrets are
// being rotated, and refuses altered or old ones.
func TestOfficialLibraryVerifiesSignatures(t *testing.T) {
	t.Parallel()
	for _, events := range []cloudevents.Options{{}, {Mode: cloudevents.Structured, Source: "/shop"}} {
		request, m := sendSigned(t, httpsink.Options{SigningSecret: newSecret + "  " + oldSecret, CloudEvents: events})
		if request.header.Get("Webhook-Id") != m.ID {
			t.Errorf("the Webhook-Id is %q", request.header.Get("Webhook-Id"))
		}
		for _, secret := range []string{oldSecret, newSecret} {
			if err := receiver(t, secret).Verify(request.body, request.header); err != nil {
				t.Errorf("%s: %v", events.Mode, err)
			}
		}
		for _, test := range []struct {
			name   string
			secret string
			alter  func(header http.Header, body []byte) []byte
			want   error
		}{
			{"another secret", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24)), func(_ http.Header, body []byte) []byte { return body }, standardwebhooks.ErrNoMatchingSignature},
			{"an altered body", newSecret, func(_ http.Header, body []byte) []byte { return append([]byte(" "), body...) }, standardwebhooks.ErrNoMatchingSignature},
			{"another id", newSecret, func(h http.Header, body []byte) []byte { h.Set("Webhook-Id", outbox.NewID()); return body }, standardwebhooks.ErrNoMatchingSignature},
			{"another time", newSecret, func(h http.Header, body []byte) []byte { shift(h, -time.Second); return body }, standardwebhooks.ErrNoMatchingSignature},
			{"too old", newSecret, func(h http.Header, body []byte) []byte { shift(h, -10*time.Minute); return body }, standardwebhooks.ErrMessageTooOld},
			{"no signature", newSecret, func(h http.Header, body []byte) []byte { h.Del("Webhook-Signature"); return body }, standardwebhooks.ErrRequiredHeaders},
		} {
			header := request.header.Clone()
			if err := receiver(t, test.secret).Verify(test.alter(header, request.body), header); !errors.Is(err, test.want) {
				t.Errorf("%s, %s: %v, want %v", events.Mode, test.name, err, test.want)
			}
		}
	}
}

// shift changes the timestamp of a request.
func shift(header http.Header, by time.Duration) {
	seconds, _ := strconv.ParseInt(header.Get("Webhook-Timestamp"), 10, 64)
	header.Set("Webhook-Timestamp", strconv.FormatInt(seconds+int64(by/time.Second), 10))
}

func TestSignatureByAPrivateKey(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{"whole": private, "seed": private.Seed()} {
		request, m := sendSigned(t, httpsink.Options{SigningSecret: settings.Secret("whsk_" + base64.StdEncoding.EncodeToString(key))})
		encoded, ok := strings.CutPrefix(request.header.Get("Webhook-Signature"), "v1a,")
		signature, err := base64.StdEncoding.DecodeString(encoded)
		content := m.ID + "." + request.header.Get("Webhook-Timestamp") + "." + string(request.body)
		if !ok || err != nil || !ed25519.Verify(public, []byte(content), signature) {
			t.Errorf("%s: the signature %q is wrong", name, encoded)
		}
		seconds, _ := strconv.ParseInt(request.header.Get("Webhook-Timestamp"), 10, 64)
		if age := time.Since(time.Unix(seconds, 0)); age < -time.Second || age > time.Minute {
			t.Errorf("%s: signed %v ago", name, age)
		}
	}
}

func TestInvalidSigningSecrets(t *testing.T) {
	t.Parallel()
	other := make([]byte, ed25519.PrivateKeySize)
	for _, secret := range []string{
		"secret", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!", "whsk_c2hvcnQ=", "whpk_" + strings.Repeat("A", 44), oldSecret + " x",
		"whsk_" + base64.StdEncoding.EncodeToString(other), "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)),
	} {
		_, err := httpsink.New(httpsink.Options{URL: "http://127.0.0.1/", SigningSecret: settings.Secret(secret)})
		if err == nil || !strings.Contains(err.Error(), "the signing secret") {
			t.Errorf("%q gave %v", secret, err)
		} else if encoded := secret[strings.Index(secret, "_")+1:]; len(encoded) > 6 && strings.Contains(err.Error(), encoded) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}
