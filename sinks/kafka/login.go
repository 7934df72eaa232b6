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
)

// mechanisms are the constructors of the SASL mechanisms, by their names in the settings.
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
// (SASLprep). Kafka does not normalise it. So with kafka-go's package, the login
// fails for a password that normalisation changes, such as one with a soft hyphen.
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

// tooManyRounds matches an iteration count of ten million or more in the broker's
// SCRAM message. Such a count would take many seconds to compute, and a context
// can't interrupt the computation.
var tooManyRounds = regexp.MustCompile(`,i=[0-9]{8}`)

func (s scramSession) Next(_ context.Context, said []byte) (done bool, say []byte, err error) {
	if tooManyRounds.Match(said) {
		return false, nil, errors.New("the broker asks for too many SCRAM iterations")
	}
	answer, err := s.Step(string(said))
	return s.Done(), []byte(answer), err
}

// loginError is the error of a refused login.
type loginError struct{ err error }

func (e *loginError) Error() string { return "log in: " + e.err.Error() }
func (e *loginError) Unwrap() error { return e.err }

func (c *conn) logIn(ctx context.Context, how sasl.Mechanism) error {
	answer, err := c.protocol.RoundTrip(&saslhandshake.Request{Mechanism: how.Name()})
	if err != nil {
		return fmt.Errorf("log in (does the broker expect a login here?): %w", err)
	}
	if code := answer.(*saslhandshake.Response).ErrorCode; code != 0 {
		return &loginError{fmt.Errorf("%s: %w", how.Name(), kafkago.Error(code))}
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
		return &loginError{err}
	}
	return nil
}

// authenticate sends one message of the login and returns the broker's answer. If
// the broker limits the session's lifetime, the sink stops using the connection after
// 80 % of that time, before the broker closes it.
func (c *conn) authenticate(text []byte) ([]byte, error) {
	answer, err := c.protocol.RoundTrip(&saslauthenticate.Request{AuthBytes: text})
	if err != nil {
		return nil, fmt.Errorf("log in: %w", err)
	}
	result := answer.(*saslauthenticate.Response)
	if result.ErrorCode != 0 {
		return nil, &loginError{fmt.Errorf("%w: %s", kafkago.Error(result.ErrorCode), result.ErrorMessage)}
	}
	if life := time.Duration(result.SessionLifetimeMs) * time.Millisecond; life > 0 {
		c.retireAt = time.Now().Add(life * 8 / 10)
	}
	return result.AuthBytes, nil
}
