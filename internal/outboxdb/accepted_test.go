package outboxdb_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

// The database stores whatever the Writer accepts, and returns it unchanged.
func TestAcceptedMessagesAreStoredUnchanged(t *testing.T) {
	onEach(t, func(t *testing.T, db database) {
		const seed = 1
		random := rand.New(rand.NewPCG(seed, 0))
		writer := newWriter(t, db.dialect, outbox.Options{})
		var accepted []outbox.Message
		for len(accepted) < 500 {
			message := randomMessage(random)
			err := writer.Write(t.Context(), nowhere{}, message)
			switch {
			case err == nil:
				accepted = append(accepted, message)
			case !errors.Is(err, outbox.ErrInvalid):
				t.Fatal(err)
			}
		}
		tx := db.begin(t)
		for rest := accepted; len(rest) > 0; {
			part := rest[:min(1+random.IntN(40), len(rest))] // the Writer uses different statements for few and for many messages
			if err := writer.Write(t.Context(), tx, part...); err != nil {
				t.Fatalf("seed %d, %+v: %v", seed, part, err)
			}
			rest = rest[len(part):]
		}
		outboxtest.Expect(t, outboxtest.Messages(t, tx, db.dialect, "outbox"), accepted...)
	})
}

// nowhere is a handle that executes nothing.
type nowhere struct{}

func (nowhere) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }

func randomMessage(random *rand.Rand) outbox.Message {
	message := outbox.Message{Topic: randomText(random), Key: randomText(random), Priority: int16(random.Uint32())}
	if random.IntN(2) == 0 {
		message.Payload = []byte(randomText(random))
	}
	for range random.IntN(3) {
		message.Headers = map[string]string{randomText(random): randomText(random), "more": randomText(random)}
	}
	if random.IntN(4) == 0 {
		message.AvailableAt = time.Unix(random.Int64N(33e9), 0)
	}
	return message
}

// randomText returns a text with characters that could break statements, arrays, JSON or UTF-8.
func randomText(random *rand.Rand) string {
	pieces := []string{"a", `"`, `'`, `\`, "{", "}", ",", "NULL", "null", " ", "\t", "\n", "\r", "?", "$1", "::", ";", "--", "/*", "%s",
		"ü", "日", "🚀", "\u2028", "\u0085", "\ufeff", "\ufffd", "\uffff", "\x7f", "\x01", "\\x00", "\\N", "\x00", "\xff", "\xed\xa0\x80"}
	text := ""
	for range random.IntN(6) {
		text += pieces[random.IntN(len(pieces))]
	}
	return text
}
