package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// meaning describes the effect of an error on the messages of a request.
type meaning struct {
	result sinks.Result
	reason sinks.Reason
	local  bool // only this queue or topic is affected
	single bool // one message of the request may be the cause
}

var (
	noLogin    = meaning{result: sinks.Unavailable, reason: sinks.ReasonAuth}
	noRight    = meaning{result: sinks.Unavailable, reason: sinks.ReasonAuth, local: true}
	missing    = meaning{result: sinks.Unavailable, reason: sinks.ReasonConfig, local: true}
	throttled  = meaning{result: sinks.Unavailable, reason: sinks.ReasonThrottled}
	down       = meaning{result: sinks.Unavailable, reason: sinks.ReasonConnection}
	oversized  = meaning{result: sinks.Reject, reason: sinks.ReasonTooLarge, single: true}
	malformed  = meaning{result: sinks.Reject, reason: sinks.ReasonInvalid, single: true}
	refused    = meaning{result: sinks.Reject, reason: sinks.ReasonRefused, single: true}
	unfinished = meaning{result: sinks.Retry, reason: sinks.ReasonServerError}
)

// meanings has the error codes of SQS and SNS, and the codes that all AWS services share. The codes are in lower case,
// without the prefix "AWS.SimpleQueueService.", the dot after "KMS" and the suffix "Exception".
var meanings = map[string]meaning{
	"queuedoesnotexist":    missing,
	"nonexistentqueue":     missing,
	"queuedeletedrecently": missing,
	"notfound":             missing,
	"resourcenotfound":     missing,
	"invalidaddress":       missing,
	"endpointdisabled":     missing,
	"kmsdisabled":          missing,
	"kmsinvalidstate":      missing,
	"kmsinvalidkeyusage":   missing,
	"kmsnotfound":          missing,
	"kmsoptinrequired":     missing,

	"accessdenied":       noRight,
	"authorizationerror": noRight,
	"kmsaccessdenied":    noRight,

	"invalidclienttokenid":       noLogin,
	"unrecognizedclient":         noLogin,
	"invalidaccesskeyid":         noLogin,
	"invalidsecurity":            noLogin,
	"signaturedoesnotmatch":      noLogin,
	"invalidsignature":           noLogin,
	"incompletesignature":        noLogin,
	"missingauthenticationtoken": noLogin,
	"notauthorized":              noLogin,
	"expiredtoken":               noLogin,
	"requestexpired":             noLogin,
	"tokenrefreshrequired":       noLogin,
	"optinrequired":              noLogin,
	"invalidaccount":             noLogin,

	"throttled":            throttled,
	"throttling":           throttled,
	"requestthrottled":     throttled,
	"requestlimitexceeded": throttled,
	"toomanyrequests":      throttled,
	"slowdown":             throttled,
	"overlimit":            throttled,
	"kmsthrottled":         throttled,
	"kmsthrottling":        throttled,

	"serviceunavailable": down,

	"batchrequesttoolong": oversized,

	"invalidmessagecontents": malformed,
	"invalidattributevalue":  malformed,
	"invalidattributename":   malformed,
	"invalidparameter":       malformed,
	"invalidparametervalue":  malformed,
	"missingparameter":       malformed,
	"validation":             malformed,
	"validationerror":        malformed,

	"internalerror":   unfinished,
	"internalfailure": unfinished,
}

// meant returns the meaning of an error code. If the code means an invalid message and the error's text is about the
// message's size, the meaning is oversized. If the code is unknown, byClient decides whether the message is the
// cause.
func meant(code, text string, byClient bool) meaning {
	code = strings.TrimPrefix(strings.ToLower(code), "aws.simplequeueservice.")
	code = strings.Replace(code, "kms.", "kms", 1)
	m, known := meanings[strings.TrimSuffix(code, "exception")]
	switch text = strings.ToLower(text); {
	case m == malformed && (strings.Contains(text, "too long") || strings.Contains(text, "toolong") || strings.Contains(text, "must be shorter than")):
		return oversized
	case known:
		return m
	case byClient:
		return refused
	}
	return unfinished
}

// failed returns the meaning and the text of an error of a request.
func failed(ctx context.Context, err error) (meaning, string) {
	text := present(err.Error())
	var answer *awshttp.ResponseError
	var refusal smithy.APIError
	var unsent *unsentError
	var login *loginError
	switch {
	case ctx.Err() != nil && errors.As(err, &unsent):
		return meaning{result: sinks.Unsent, reason: sinks.ReasonCancelled}, ""
	case errors.As(err, &login):
		return noLogin, text
	case errors.As(err, &unsent):
		return down, text
	case ctx.Err() != nil:
		return meaning{result: sinks.Retry, reason: sinks.ReasonTimeout}, text
	case errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusServiceUnavailable:
		return down, text
	case errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusTooManyRequests:
		return throttled, text
	case errors.As(err, &refusal):
		byClient := errors.As(err, &answer) && answer.HTTPStatusCode() < http.StatusInternalServerError
		return meant(refusal.ErrorCode(), refusal.ErrorMessage(), byClient), present(refusal.ErrorCode() + ": " + refusal.ErrorMessage())
	}
	return meaning{result: sinks.Retry, reason: sinks.ReasonUnknown}, text
}

// present shortens a text of the service or the SDK to one printable line for an outcome. The text contains no secret,
// because requests carry a signature and not the secret key.
func present(text string) string { return settings.Redactor{}.Present(text, 500) }

// outcome returns the outcome of a message. If messages choose the queue or topic, and only this message's queue or topic
// is affected, the message is postponed.
func (s *sink) outcome(m *sinks.Message, what meaning, detail string) sinks.Outcome {
	if what.local && s.to.Places() > 0 {
		reason := what.reason
		if reason == sinks.ReasonConfig {
			reason = sinks.ReasonUnroutable
		}
		return sinks.Postpone(reason, detail, sinks.WaitByAge(m.CreatedAt))
	}
	return sinks.Fail(what.result, what.reason, detail)
}
