package plugins

import (
	"cmp"

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

// appendOutcomes encodes a SendResponse.
func appendOutcomes(b []byte, outcomes []sinks.Outcome) []byte {
	var scratch []byte
	for _, o := range outcomes {
		scratch = appendOutcome(scratch[:0], outcomeToWire(o))
		b = protowire.AppendBytes(protowire.AppendTag(b, responseOutcome, protowire.BytesType), scratch)
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

// decodeOutcomes decodes a SendResponse, of which so many outcomes count.
func decodeOutcomes(b []byte, most int) (outcomes []sinks.Outcome, err error) {
	outcomes = make([]sinks.Outcome, 0, most)
	var w pluginv1.Outcome
	problem := eachField(b, func(number protowire.Number, _ uint64, bytes []byte) {
		if bytes != nil && number == responseOutcome && len(outcomes) < most && err == nil {
			err = decodeOutcome(&w, bytes)
			outcomes = append(outcomes, outcomeFromWire(&w))
		}
	})
	return outcomes, cmp.Or(err, problem)
}

func decodeOutcome(w *pluginv1.Outcome, b []byte) error {
	w.Reset()
	return eachField(b, func(number protowire.Number, value uint64, bytes []byte) {
		switch {
		case bytes == nil && number == outcomeResult:
			w.Result = pluginv1.Result(value)
		case bytes == nil && number == outcomeReason:
			w.Reason = pluginv1.Reason(value)
		case bytes != nil && number == outcomeDetail:
			w.Detail = string(bytes)
		case bytes != nil && number == outcomeReceipt:
			w.Receipt = string(bytes)
		case bytes == nil && number == outcomeRetryAfter:
			w.RetryAfterMs = int64(value)
		}
	})
}
