package plugins

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/rowrelay/rowrelay/plugins/pluginv1"
	"github.com/rowrelay/rowrelay/sinks"
)

// How much of an outcome's text the relay keeps, in bytes.
const (
	maxDetail  = 1000
	maxReceipt = 255
)

var results = map[sinks.Result]pluginv1.Result{
	sinks.Retry: pluginv1.Result_RETRY, sinks.Delivered: pluginv1.Result_DELIVERED, sinks.Reject: pluginv1.Result_REJECT,
	sinks.Unavailable: pluginv1.Result_UNAVAILABLE, sinks.Unsent: pluginv1.Result_UNSENT,
}

// meaning is what a value of the wire says here.
type meaning struct {
	reason sinks.Reason
	with   sinks.Result // the result that it goes with
	later  bool         // it goes with a message that is postponed, too
}

var reasons = map[pluginv1.Reason]meaning{
	pluginv1.Reason_REASON_UNSPECIFIED: {reason: sinks.ReasonNone, with: sinks.Delivered},
	pluginv1.Reason_UNKNOWN:            {reason: sinks.ReasonUnknown, with: sinks.Retry},
	pluginv1.Reason_TIMEOUT:            {reason: sinks.ReasonTimeout, with: sinks.Retry},
	pluginv1.Reason_SERVER_ERROR:       {reason: sinks.ReasonServerError, with: sinks.Retry},
	pluginv1.Reason_HANDLER_ERROR:      {reason: sinks.ReasonHandlerError, with: sinks.Retry},
	pluginv1.Reason_PANIC:              {reason: sinks.ReasonPanic, with: sinks.Retry},
	pluginv1.Reason_BUSY:               {reason: sinks.ReasonBusy, with: sinks.Retry, later: true},
	pluginv1.Reason_TOO_LARGE:          {reason: sinks.ReasonTooLarge, with: sinks.Reject},
	pluginv1.Reason_INVALID:            {reason: sinks.ReasonInvalid, with: sinks.Reject},
	pluginv1.Reason_REFUSED:            {reason: sinks.ReasonRefused, with: sinks.Reject},
	pluginv1.Reason_UNROUTABLE:         {reason: sinks.ReasonUnroutable, with: sinks.Reject},
	pluginv1.Reason_CONNECTION:         {reason: sinks.ReasonConnection, with: sinks.Unavailable, later: true},
	pluginv1.Reason_THROTTLED:          {reason: sinks.ReasonThrottled, with: sinks.Unavailable, later: true},
	pluginv1.Reason_AUTH:               {reason: sinks.ReasonAuth, with: sinks.Unavailable, later: true},
	pluginv1.Reason_CONFIG:             {reason: sinks.ReasonConfig, with: sinks.Unavailable},
	pluginv1.Reason_CANCELLED:          {reason: sinks.ReasonCancelled, with: sinks.Unsent},
	pluginv1.Reason_NEIGHBOUR:          {reason: sinks.ReasonNeighbour, with: sinks.Unsent},
}

// usual are the reasons of results that come with none, or with one that isn't
// theirs: metrics rely on it that a reason belongs to its result.
var usual = map[sinks.Result]sinks.Reason{
	sinks.Delivered: sinks.ReasonNone, sinks.Retry: sinks.ReasonUnknown, sinks.Reject: sinks.ReasonRefused,
	sinks.Unavailable: sinks.ReasonConnection, sinks.Unsent: sinks.ReasonNeighbour,
}

func reasonToWire(reason sinks.Reason) pluginv1.Reason {
	for wire, known := range reasons {
		if known.reason == reason {
			return wire
		}
	}
	return pluginv1.Reason_REASON_UNSPECIFIED
}

func outcomeToWire(o sinks.Outcome) *pluginv1.Outcome {
	if o.Result == sinks.Delivered {
		return &pluginv1.Outcome{Result: pluginv1.Result_DELIVERED, Receipt: shorten(o.Receipt, maxReceipt)}
	}
	return &pluginv1.Outcome{
		Result: results[o.Result], Reason: reasonToWire(o.Reason), RetryAfterMs: millis(o.RetryAfter),
		Detail: shorten(o.Detail, maxDetail), Receipt: shorten(o.Receipt, maxReceipt),
	}
}

// outcomeFromWire makes a sound outcome of whatever a plug-in says.
func outcomeFromWire(w *pluginv1.Outcome) sinks.Outcome {
	if w.GetResult() == pluginv1.Result_DELIVERED {
		return sinks.Ok(shorten(w.GetReceipt(), maxReceipt))
	}
	o := sinks.Outcome{Detail: shorten(w.GetDetail(), maxDetail)}
	for result, wire := range results {
		if wire == w.GetResult() {
			o.Result = result // a result that is not known here is a retry
		}
	}
	after := fromMillis(w.GetRetryAfterMs())
	known, ok := reasons[w.GetReason()]
	postponed := o.Result == sinks.Unsent && known.later && after > 0
	o.Reason = usual[o.Result]
	if ok && (known.with == o.Result || postponed) {
		o.Reason = known.reason
	}
	if o.Result == sinks.Retry || o.Result == sinks.Unavailable || postponed {
		o.RetryAfter = after
	}
	return o
}

var orders = []sinks.Order{sinks.OrderNone, sinks.OrderPrefix, sinks.OrderAtomic} // by the wire's number

func orderToWire(order sinks.Order) pluginv1.Order {
	return pluginv1.Order(max(slices.Index(orders, order), 0))
}

func orderFromWire(order pluginv1.Order) sinks.Order {
	if order < 0 || int(order) >= len(orders) {
		return sinks.OrderNone
	}
	return orders[order]
}

// shorten keeps so many bytes of a text, and makes UTF-8 of it, which is all
// that the wire carries.
func shorten(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
