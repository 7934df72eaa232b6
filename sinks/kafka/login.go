package kafka

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/xdg-go/scram"

	"github.com/rowrelay/rowrelay/sinks/oauth2"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// login has the SASL mechanism and the credentials for one connection.
type login struct {
	sasl.Mechanism
	hides   settings.Redactor // removes the login's secret from errors
	expires time.Time         // the latest time at which the broker ends the session; zero: unknown
	refused func()            // called if the broker refuses this login but may accept another login; may be nil
}

// loginsOf returns the function that returns the current login. The function is nil if the sink doesn't log in. The argument
// source is nil if the sink doesn't use OAuth 2.0.
func loginsOf(o Options, source *oauth2.Source) func(context.Context) (login, error) {
	if build := mechanisms[o.SASL]; build != nil {
		always := login{Mechanism: build(o.Username, o.Password.Reveal()), hides: settings.NewRedactor(o.Password)}
		return func(context.Context) (login, error) { return always, nil }
	}
	switch {
	case o.SASL != oauthBearer:
		return nil
	case source != nil:
		return func(ctx context.Context) (login, error) {
			token, err := source.Token(ctx)
			if err != nil {
				return login{}, err
			}
			l, err := bearerLogin(token.Secret, o.SASLExtensions)
			l.expires, l.refused = token.Expires, func() { source.Forget(token) }
			return l, err
		}
	}
	return func(ctx context.Context) (login, error) {
		token, err := o.Token(ctx)
		if err != nil {
			return login{}, fmt.Errorf("get a token: %w", err)
		}
		return bearerLogin(token, o.SASLExtensions)
	}
}

// mechanisms are the constructors of the SASL mechanisms with a user name and a password, by their names in the settings.
var mechanisms = map[string]func(user, password string) sasl.Mechanism{
	"plain": func(user, password string) sasl.Mechanism { return plain.Mechanism{Username: user, Password: password} },
	"scram-sha-256": func(user, password string) sasl.Mechanism {
		return newScram("SCRAM-SHA-256", scram.SHA256, user, password)
	},
	"scram-sha-512": func(user, password string) sasl.Mechanism {
		return newScram("SCRAM-SHA-512", scram.SHA512, user, password)
	},
}

// scramLogin replaces kafka-go's sasl/scram, which normalises the password
// (SASLprep). Brokers do not normalise passwords. Therefore kafka-go can't log in with
// a password that normalisation changes, such as one with a soft hyphen.
type scramLogin struct {
	name   string
	client *scram.Client
}

func newScram(name string, hash scram.HashGeneratorFcn, user, password string) sasl.Mechanism {
	client, _ := hash.NewClientUnprepped(user, password, "") // never fails: nothing is normalised
	return scramLogin{name, client}
}

func (l scramLogin) Name() string { return l.name }

func (l scramLogin) Start(context.Context) (sasl.StateMachine, []byte, error) {
	conversation := l.client.NewConversation()
	first, err := conversation.Step("")
	return scramSession{conversation}, []byte(first), err
}

type scramSession struct{ *scram.ClientConversation }

// tooManyRounds matches an iteration count of ten million or more in the broker's SCRAM
// message. Computing that many iterations would take many seconds, and a context can't
// interrupt the computation.
var tooManyRounds = regexp.MustCompile(`,i=[0-9]{8}`)

func (s scramSession) Next(_ context.Context, said []byte) (done bool, say []byte, err error) {
	if tooManyRounds.Match(said) {
		return false, nil, errors.New("the broker asks for too many SCRAM iterations")
	}
	answer, err := s.Step(string(said))
	return s.Done(), []byte(answer), err
}

// loginError is the error of a refused login.
type loginError struct {
	err   error
	hides settings.Redactor
	again bool // the broker may accept another login
}

func (e *loginError) Error() string { return "log in: " + e.hides.Redact(e.err.Error()) }
func (e *loginError) Unwrap() error { return e.err }

// logIn logs in. It returns a loginError if it can't get the current login, or if the
// broker refuses the login.
func (c *conn) logIn(ctx context.Context, current func(context.Context) (login, error)) error {
	how, err := current(ctx)
	if err != nil {
		return &loginError{err: err}
	}
	err = c.logInWith(ctx, how)
	if refused := (*loginError)(nil); errors.As(err, &refused) {
		refused.hides = how.hides
		if how.refused != nil {
			how.refused()
			refused.again = true
		}
	}
	if left := time.Until(how.expires); !how.expires.IsZero() {
		c.retireIn(left)
	}
	return err
}

func (c *conn) logInWith(ctx context.Context, how sasl.Mechanism) error {
	answer, err := c.protocol.RoundTrip(&saslhandshake.Request{Mechanism: how.Name()})
	if err != nil {
		return fmt.Errorf("log in (does the broker expect a login here?): %w", err)
	}
	if code := answer.(*saslhandshake.Response).ErrorCode; code != 0 {
		return &loginError{err: fmt.Errorf("%s: %w", how.Name(), kafkago.Error(code))}
	}
	session, say, err := how.Start(ctx)
	for done := false; !done && err == nil; {
		var said []byte
		if said, err = c.authenticate(say); err != nil {
			return err
		}
		done, say, err = session.Next(ctx, said)
	}
	if err != nil {
		return &loginError{err: err}
	}
	return nil
}

// retireIn makes the sink stop using the connection after 80 % of the session's lifetime, before the broker closes the
// connection.
func (c *conn) retireIn(lifetime time.Duration) {
	at := time.Now().Add(lifetime * 8 / 10)
	if c.retireAt.IsZero() || at.Before(c.retireAt) {
		c.retireAt = at
	}
}

// authenticate sends one message of the login and returns the broker's answer, which may limit the session's lifetime.
func (c *conn) authenticate(text []byte) ([]byte, error) {
	answer, err := c.protocol.RoundTrip(&saslauthenticate.Request{AuthBytes: text})
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	result := answer.(*saslauthenticate.Response)
	if result.ErrorCode != 0 {
		return nil, &loginError{err: fmt.Errorf("%w: %s", kafkago.Error(result.ErrorCode), result.ErrorMessage)}
	}
	if lifetime := time.Duration(result.SessionLifetimeMs) * time.Millisecond; lifetime > 0 {
		c.retireIn(lifetime)
	}
	return result.AuthBytes, nil
}
