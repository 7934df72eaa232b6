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

// mechanisms are the ways to log in by SASL, by the names of the settings.
var mechanisms = map[string]func(user, password string) sasl.Mechanism{
	"plain": func(user, password string) sasl.Mechanism { return plain.Mechanism{Username: user, Password: password} },
	"scram-sha-256": func(user, password string) sasl.Mechanism {
		return newScram("SCRAM-SHA-256", scram.SHA256, user, password)
	},
	"scram-sha-512": func(user, password string) sasl.Mechanism {
		return newScram("SCRAM-SHA-512", scram.SHA512, user, password)
	},
}

// scramLogin stands in the place of kafka-go's sasl/scram, which normalises the
// password (SASLprep): Kafka takes it as it is, so that one with a soft hyphen, or
// with a letter that has two forms, would be another.
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

// tooManyRounds are ten million or more, which a broker asks for: they would keep
// us busy for many seconds, and no context ends that.
var tooManyRounds = regexp.MustCompile(`,i=[0-9]{8}`)

func (s scramSession) Next(_ context.Context, said []byte) (done bool, say []byte, err error) {
	if tooManyRounds.Match(said) {
		return false, nil, errors.New("the broker asks for too many rounds of SCRAM")
	}
	answer, err := s.Step(string(said))
	return s.Done(), []byte(answer), err
}

// loginError is a login that was refused.
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

// authenticate takes one step of a login. A broker may give a session a time, at
// whose end it closes the connection: we leave a little before.
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
