package plugins

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// The numbers of the fields of a SendResponse.
const (
	responseOutcome = 1

	outcomeResult, outcomeReason, outcomeDetail = 1, 2, 3
	outcomeReceipt, outcomeRetryAfter           = 4, 5
)

// isDelivered is what most outcomes are, encoded.
const isDelivered = "\x08\x02"

// appendOutcomes encodes a SendResponse.
func appendOutcomes(b []byte, outcomes []sinks.Outcome) []byte {
	b = slices.Grow(b, len(outcomes)*(2+len(isDelivered)))
	var scratch []byte
	for i := range outcomes {
		b = append(b, responseOutcome<<3|byte(isBytes))
		if outcomes[i] == (sinks.Outcome{Result: sinks.Delivered}) {
			b = append(append(b, byte(len(isDelivered))), isDelivered...)
			continue
		}
		scratch = appendOutcome(scratch[:0], outcomeToWire(outcomes[i]))
		b = protowire.AppendBytes(b, scratch)
	}
	return b
}

func appendOutcome(b []byte, w *pluginv1.Outcome) []byte {
	b = appendNumber(b, outcomeResult, int64(w.GetResult()))
	b = appendNumber(b, outcomeReason, int64(w.GetReason()))
	b = appendText(b, outcomeDetail, w.GetDetail())
	b = appendText(b, outcomeReceipt, w.GetReceipt())
	return appendNumber(b, outcomeRetryAfter, w.GetRetryAfterMs())
}

// decodeOutcomes decodes a SendResponse, of which so many outcomes count, and
// appends them.
func decodeOutcomes(outcomes []sinks.Outcome, b []byte, most int) ([]sinks.Outcome, error) {
	var w pluginv1.Outcome
	f := fields{rest: b}
	for count := 0; f.next(); {
		switch {
		case !f.is(responseOutcome, isBytes) || count == most:
			continue
		case string(f.bytes) == isDelivered:
			outcomes = append(outcomes, sinks.Ok(""))
		default:
			if err := decodeOutcome(&w, f.bytes); err != nil {
				return outcomes, err
			}
			outcomes = append(outcomes, outcomeFromWire(&w))
		}
		count++
	}
	return outcomes, f.err
}

func decodeOutcome(w *pluginv1.Outcome, b []byte) error {
	w.Reset()
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(outcomeResult, isNumber):
			w.Result = pluginv1.Result(f.value)
		case f.is(outcomeReason, isNumber):
			w.Reason = pluginv1.Reason(f.value)
		case f.is(outcomeDetail, isBytes):
			w.Detail = string(f.bytes)
		case f.is(outcomeReceipt, isBytes):
			w.Receipt = string(f.bytes)
		case f.is(outcomeRetryAfter, isNumber):
			w.RetryAfterMs = int64(f.value)
		}
	}
	return f.err
}
