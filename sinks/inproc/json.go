package inproc

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/sinks"
)

// JSON returns a handler that decodes the payload into a T and calls the given
// function with it. A message whose payload is not JSON, or doesn't fit T, is
// parked, because another attempt would fail too. Members that T doesn't have
// are ignored. If the function is nil, JSON returns nil.
func JSON[T any](handle func(ctx context.Context, body T, m sinks.Message) error) Handler {
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, m sinks.Message) error {
		body, err := decode[T](m.Payload)
		if err != nil {
			return err
		}
		return handle(ctx, body, m)
	}
}

// JSONTx is [JSON] for a [TxHandler].
func JSONTx[T any](handle func(ctx context.Context, tx *sql.Tx, body T, m sinks.Message) error) TxHandler {
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, tx *sql.Tx, m sinks.Message) error {
		body, err := decode[T](m.Payload)
		if err != nil {
			return err
		}
		return handle(ctx, tx, body, m)
	}
}

func decode[T any](payload []byte) (T, error) {
	var body T
	if err := json.Unmarshal(payload, &body); err != nil {
		return body, judged(sinks.Reject, sinks.ReasonInvalid, fmt.Errorf("decode the payload into %T: %s", body, misfit(payload, err)))
	}
	return body, nil
}

// misfit describes why a payload can't be decoded, without showing any of the payload.
func misfit(payload []byte, err error) string {
	if payload == nil {
		return "it is NULL"
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("it is not valid JSON at byte %d", syntax.Offset)
	}
	if misfit, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(misfit.Value, " ") // the part after the space is the value
		return fmt.Sprintf("a JSON %s at byte %d doesn't fit %s of type %s", kind, misfit.Offset, placeOf(misfit), misfit.Type)
	}
	return "one of its values is not accepted"
}

func placeOf(misfit *json.UnmarshalTypeError) string {
	if misfit.Field == "" {
		return "a value"
	}
	return "the field " + misfit.Field
}
