package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/relay"
)

// messageJSON is a message as JSON, without what it carries.
type messageJSON struct {
	ID          int64       `json:"id"`
	MessageID   string      `json:"message_id"`
	State       relay.State `json:"state"`
	Topic       string      `json:"topic"`
	Key         string      `json:"key,omitempty"`
	Lane        int         `json:"lane"`
	Priority    int16       `json:"priority"`
	Attempts    int         `json:"attempts"`
	Crashes     int         `json:"crashes"`
	CreatedAt   time.Time   `json:"created_at"`
	AvailableAt *time.Time  `json:"available_at,omitempty"`
	FinishedAt  *time.Time  `json:"finished_at,omitempty"`
	ClaimedBy   string      `json:"claimed_by,omitempty"`
	Receipt     string      `json:"receipt,omitempty"`
	LastError   string      `json:"last_error,omitempty"`
}

func newMessageJSON(info relay.Info) messageJSON {
	return messageJSON{
		ID: info.ID, MessageID: info.Message.ID, State: info.State, Topic: info.Message.Topic, Key: info.Message.Key,
		Lane: info.Lane, Priority: info.Message.Priority, Attempts: info.Attempts, Crashes: info.Crashes,
		CreatedAt: info.CreatedAt.UTC(), AvailableAt: orNil(info.Message.AvailableAt), FinishedAt: orNil(info.FinishedAt),
		ClaimedBy: info.ClaimedBy, Receipt: info.Receipt, LastError: info.LastError,
	}
}

// fullMessageJSON has what it carries as well. A payload that isn't UTF-8 is in
// payload_base64; one that is NULL is null in payload.
type fullMessageJSON struct {
	messageJSON
	Headers       map[string]string `json:"headers"`
	BadHeaders    string            `json:"bad_headers,omitempty"`
	Payload       *string           `json:"payload"`
	PayloadBase64 []byte            `json:"payload_base64,omitempty"`
}

func newFullMessageJSON(info relay.Info) fullMessageJSON {
	full := fullMessageJSON{messageJSON: newMessageJSON(info), Headers: info.Message.Headers, BadHeaders: info.BadHeaders}
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

// printMessage shows a message to people.
func (m *messages) printMessage(info relay.Info) error {
	rows := [][]string{
		{"id", fmt.Sprint(info.ID)}, {"message id", info.Message.ID}, {"state", string(info.State)},
		{"topic", info.Message.Topic}, {"key", info.Message.Key}, {"lane", fmt.Sprint(info.Lane)},
		{"priority", fmt.Sprint(info.Message.Priority)}, {"attempts", fmt.Sprint(info.Attempts)}, {"crashes", fmt.Sprint(info.Crashes)},
		{"created", shownTime(info.CreatedAt)}, {"available", shownTime(info.Message.AvailableAt)}, {"finished", shownTime(info.FinishedAt)},
		{"claimed by", info.ClaimedBy}, {"receipt", info.Receipt}, {"last error", cell(info.LastError, 1000)}, {"bad headers", info.BadHeaders},
	}
	for _, name := range sortedKeys(info.Message.Headers) {
		rows = append(rows, []string{"header " + cell(name, 60), cell(info.Message.Headers[name], 1000)})
	}
	rows = slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
	if err := m.printTable(rows); err != nil {
		return err
	}
	return m.print("\n" + printable(shownPayload(info.Message.Payload)) + "\n")
}

func sortedKeys(values map[string]string) (keys []string) {
	for key := range values {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, strings.Compare)
	return keys
}
