package operate

import (
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/relay/storage"
)

// Message is the JSON form of a message, without its payload and headers.
type Message struct {
	ID          int64         `json:"id"`
	MessageID   string        `json:"message_id"`
	State       storage.State `json:"state"`
	Topic       string        `json:"topic"`
	Key         string        `json:"key,omitempty"`
	Sinks       []string      `json:"sinks,omitempty"` // empty means all sinks of its topic
	Lane        int           `json:"lane"`
	Priority    int16         `json:"priority"`
	Attempts    int           `json:"attempts"`
	Crashes     int           `json:"crashes"`
	CreatedAt   time.Time     `json:"created_at"`
	AvailableAt time.Time     `json:"available_at,omitzero"`
	ExpiresAt   time.Time     `json:"expires_at,omitzero"`
	FinishedAt  time.Time     `json:"finished_at,omitzero"`
	ClaimedBy   string        `json:"claimed_by,omitempty"`
	Receipt     string        `json:"receipt,omitempty"`
	LastError   string        `json:"last_error,omitempty"`
	HoldsKey    bool          `json:"holds_key,omitempty"` // the message is parked, and later messages of its key wait
}

// NewMessage returns the JSON form of a message.
func NewMessage(info storage.Info) Message {
	return Message{
		ID: info.ID, MessageID: info.Message.ID, State: info.State, Topic: info.Message.Topic, Key: info.Message.Key,
		Sinks: storage.SplitSinks(info.Sinks), Lane: info.Lane, Priority: info.Message.Priority, Attempts: info.Attempts, Crashes: info.Crashes,
		CreatedAt: info.CreatedAt.UTC(), AvailableAt: info.Message.AvailableAt.UTC(), ExpiresAt: info.Message.ExpiresAt.UTC(), FinishedAt: info.FinishedAt.UTC(),
		ClaimedBy: info.ClaimedBy, Receipt: info.Receipt, LastError: info.LastError, HoldsKey: info.Holds == storage.HoldsKey,
	}
}

// FullMessage is the JSON form of a message with its payload and headers. The field payload is
// null if the payload is NULL or isn't UTF-8. A payload that isn't UTF-8 is in payload_base64.
type FullMessage struct {
	Message
	Headers       map[string]string `json:"headers"`
	Malformed     string            `json:"malformed,omitempty"`
	Payload       *string           `json:"payload"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`

	// AttemptLog has the last failed attempts, the oldest first: see [storage.AttemptLog].
	AttemptLog storage.AttemptLog `json:"attempt_log,omitempty"`
}

// NewFullMessage returns the JSON form of a message with its payload and headers.
func NewFullMessage(info storage.Info) FullMessage {
	full := FullMessage{Message: NewMessage(info), Headers: info.Message.Headers, Malformed: info.Malformed, AttemptLog: info.AttemptLog}
	if full.Headers == nil {
		full.Headers = map[string]string{}
	}
	switch payload := info.Message.Payload; {
	case payload == nil:
	case utf8.Valid(payload):
		text := string(payload)
		full.Payload = &text
	default:
		full.PayloadBase64 = payload
	}
	return full
}
