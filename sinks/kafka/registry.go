package kafka

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// schemaAge is how long the sink uses a schema's id before it asks the registry for a newer version.
const schemaAge = 5 * time.Minute

// The formats of schemas in the registry's answers. If an answer names no format, the schema is an Avro schema.
const (
	formatAvro     = "AVRO"
	formatJSON     = "JSON"
	formatProtobuf = "PROTOBUF"
)

// schema is the latest version of a subject.
type schema struct {
	id     uint32
	format string // "" if it is unknown
}

// registry looks up schemas and caches them. It may be used concurrently.
type registry struct {
	base   string
	single bool          // all messages have the same subject
	turn   chan struct{} // semaphore: one request at a time

	mu       sync.Mutex
	login    registryLogin
	subjects map[string]*lookup
	failure  *lookup // the last request, if it failed and requests for other subjects would fail too; otherwise nil
	found    bool    // a schema was found
}

// registryLogin has the login and the HTTP client for requests.
type registryLogin struct {
	username string
	password settings.Secret
	client   *http.Client // has the certificates
	redactor settings.Redactor
}

// lookup is the result of a request. It is immutable.
type lookup struct {
	schema
	why   *schemaError // the error if the request returned no schema; otherwise nil
	until time.Time    // when to ask again
	tries int          // consecutive requests that returned no schema
}

// schemaError reports that a schema can't be looked up. The message is not the cause.
type schemaError struct{ outcome sinks.Outcome }

func (e *schemaError) Error() string { return e.outcome.Detail }

func newRegistry(o Options) *registry {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true} // requests are rare
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
		transport.TLSClientConfig.ServerName = "" // the configured server name belongs to the brokers
	}
	topic, _ := parseTopic(o.Topic)
	named, _ := settings.ParseTemplate(o.Schema.Subject) // Options.check has parsed both already
	return &registry{
		base: strings.TrimSuffix(o.Schema.Registry, "/"),
		login: registryLogin{
			username: o.Schema.Username, password: o.Schema.Password,
			client:   &http.Client{Transport: transport, Timeout: o.RequestTimeout},
			redactor: settings.NewRedactor(o.Schema.Password),
		},
		single: named.Places() == 0 && (o.Schema.Subject != "" || topic.Places() == 0),
		turn:   make(chan struct{}, 1), subjects: map[string]*lookup{},
	}
}

// renew takes over the login and certificates of another registry, and ends the pauses after failed requests.
func (r *registry) renew(with *registry) {
	login := with.current()
	r.mu.Lock()
	r.login = login
	r.mu.Unlock()
	r.retry()
}

func (r *registry) current() registryLogin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.login
}

// retry ends the pauses after failed requests.
func (r *registry) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = nil
	maps.DeleteFunc(r.subjects, func(_ string, l *lookup) bool { return l.why != nil })
}

// get returns the schema of a subject. Its errors are schemaErrors.
func (r *registry) get(ctx context.Context, subject string) (schema, error) {
	known := r.remembered(subject)
	if known == nil {
		if !enter(ctx, r.turn) {
			return schema{}, &schemaError{sinks.Cancelled()}
		}
		defer func() { <-r.turn }()
		if known = r.remembered(subject); known == nil {
			known = r.ask(ctx, subject)
		}
	}
	if known.why != nil {
		return schema{}, known.why
	}
	return known.schema, nil
}

// remembered returns the cached result for a subject, or nil if a new request is necessary. While the registry doesn't
// answer, a schema may be older than schemaAge.
func (r *registry) remembered(subject string) *lookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, now := r.subjects[subject], time.Now()
	switch {
	case l != nil && now.Before(l.until):
		return l
	case r.failure == nil || now.After(r.failure.until):
		return nil
	case l != nil && l.why == nil:
		return l
	}
	return r.failure
}

// ask requests the latest version of a subject and caches the result.
func (r *registry) ask(ctx context.Context, subject string) *lookup {
	latest, failed := r.request(ctx, subject)
	if ctx.Err() != nil {
		return &lookup{why: &schemaError{sinks.Cancelled()}}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, before := time.Now(), r.subjects[subject]
	maps.DeleteFunc(r.subjects, func(_ string, l *lookup) bool { return now.Sub(l.until) > forgetAfter })
	l := &lookup{schema: latest, until: now.Add(schemaAge)}
	if failed != nil {
		last := r.failure
		if failed.ofSubject {
			last = before
		}
		if last != nil {
			l.tries = last.tries
		}
		l.tries++
		l.until = now.Add(pauseAfter(l.tries))
		l.why = &schemaError{r.outcome(failed, subject)}
	}
	if failed != nil && !failed.ofSubject {
		if r.failure = l; before != nil && before.why == nil {
			return before
		}
		return l
	}
	r.subjects[subject], r.failure, r.found = l, nil, r.found || failed == nil
	return l
}

// forgetAfter is how long the sink keeps a schema that no message needs.
const forgetAfter = time.Hour

// outcome returns the outcome of messages whose schema can't be looked up. The sink is unavailable if all messages have
// the same subject, or if the registry has not returned any schema yet. Otherwise the messages are postponed.
func (r *registry) outcome(failed *lookupError, subject string) sinks.Outcome {
	reason, detail := failed.reason, "look up the schema of "+subject+": "+r.login.redactor.Present(failed.text, 300)
	switch {
	case r.single, !failed.ofSubject && !r.found:
		return sinks.Fail(sinks.Unavailable, reason, detail)
	case reason == sinks.ReasonConfig:
		reason = sinks.ReasonUnroutable
	}
	return sinks.Postpone(reason, detail, firstPause)
}

// lookupError describes why a request returned no schema.
type lookupError struct {
	reason    sinks.Reason
	text      string
	ofSubject bool // requests for other subjects may succeed
}

// request asks the registry for the latest version of a subject.
func (r *registry) request(ctx context.Context, subject string) (schema, *lookupError) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/subjects/"+url.PathEscape(subject)+"/versions/latest", nil)
	if err != nil {
		return schema{}, &lookupError{reason: sinks.ReasonConfig, text: err.Error()}
	}
	request.Header.Set("Accept", "application/vnd.schemaregistry.v1+json, application/json")
	login := r.current()
	if login.username != "" {
		request.SetBasicAuth(login.username, login.password.Reveal())
	}
	response, err := login.client.Do(request)
	if err != nil {
		return schema{}, &lookupError{reason: sinks.ReasonConnection, text: err.Error()}
	}
	defer response.Body.Close()
	return readSchema(response)
}

// largestAnswer is the maximum size of an answer, which contains the schema.
const largestAnswer = 16 << 20

func readSchema(response *http.Response) (schema, *lookupError) {
	var answer struct {
		ID      uint32 `json:"id"`
		Format  string `json:"schemaType"`
		Message string `json:"message"`
	}
	err := json.NewDecoder(io.LimitReader(response.Body, largestAnswer)).Decode(&answer)
	format, said := cmp.Or(answer.Format, formatAvro), fmt.Sprintf("the registry answers %d %s", response.StatusCode, answer.Message)
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized:
		return schema{}, &lookupError{reason: sinks.ReasonAuth, text: said}
	case status == http.StatusForbidden:
		return schema{}, &lookupError{reason: sinks.ReasonAuth, text: said, ofSubject: true}
	case status == http.StatusTooManyRequests:
		return schema{}, &lookupError{reason: sinks.ReasonThrottled, text: said}
	case status >= http.StatusInternalServerError:
		return schema{}, &lookupError{reason: sinks.ReasonConnection, text: said}
	case status != http.StatusOK:
		return schema{}, &lookupError{reason: sinks.ReasonConfig, text: said, ofSubject: true}
	case err != nil || answer.ID == 0:
		return schema{}, &lookupError{reason: sinks.ReasonConfig, text: "the answer has no id: is this the URL of Confluent's REST API?"}
	case format == formatAvro:
		return schema{}, &lookupError{reason: sinks.ReasonConfig, text: "it is an Avro schema, and Avro data can be read only with the schema with which it was written: " +
			"instead of schema_registry set schema_id, for example to {header:schema-id}", ofSubject: true}
	case format != formatJSON && format != formatProtobuf:
		return schema{}, &lookupError{reason: sinks.ReasonConfig, text: "its format is unknown: " + format, ofSubject: true}
	}
	return schema{answer.ID, format}, nil
}
