package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rowrelay/rowrelay/sinks"
)

// word returns the first word of a server's error, such as OOM. It returns "" if err is not a server's error.
func word(err error) string {
	var answered redis.Error
	if !errors.As(err, &answered) || errors.Is(err, redis.Nil) {
		return ""
	}
	first, _, _ := strings.Cut(answered.Error(), " ")
	return first
}

// reasonToOpen returns the reason why the sink can't be used.
func reasonToOpen(err error) sinks.Reason {
	var certificate *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &certificate) || errors.As(err, &header) || errors.As(err, &unknown) {
		return sinks.ReasonConfig
	}
	if reason, known := outages[word(err)]; known {
		return reason
	}
	if word(err) == "ERR" {
		return sinks.ReasonConfig // for example a database that doesn't exist
	}
	return sinks.ReasonConnection
}

// outages has the reasons of errors that affect the whole server, by the first word of
// the error.
var outages = map[string]sinks.Reason{
	"OOM":         sinks.ReasonThrottled,  // no memory
	"MISCONF":     sinks.ReasonThrottled,  // the server can't write its snapshots or its log
	"NOREPLICAS":  sinks.ReasonThrottled,  // min-replicas-to-write
	"BUSY":        sinks.ReasonThrottled,  // a script runs too long
	"READONLY":    sinks.ReasonConnection, // a replica, after a failover
	"LOADING":     sinks.ReasonConnection,
	"MASTERDOWN":  sinks.ReasonConnection,
	"CLUSTERDOWN": sinks.ReasonConnection,
	"NOAUTH":      sinks.ReasonAuth,
	"WRONGPASS":   sinks.ReasonAuth,
	"MOVED":       sinks.ReasonConfig, // a node of a cluster, but cluster isn't set
	"ASK":         sinks.ReasonConfig,
}

// outcome returns the outcome of a message. If err is nil, the server has added the message's entry.
func (s *sink) outcome(ctx context.Context, m *sinks.Message, e entry, err error) sinks.Outcome {
	if err == nil {
		return sinks.Ok(e.stream + " " + e.id)
	}
	o := s.failed(ctx, m, err)
	o.Detail = s.redactor.Present(err.Error(), maxDetail)
	return o
}

func (s *sink) failed(ctx context.Context, m *sinks.Message, err error) sinks.Outcome {
	first := word(err)
	switch reason, outage := outages[first]; {
	case errors.As(err, new(unreached)):
		if s.server.cluster { // other nodes may work
			return sinks.Postpone(sinks.ReasonConnection, "", sinks.WaitByAge(m.CreatedAt))
		}
		return sinks.Fail(sinks.Unavailable, reasonToOpen(err), "")
	case errors.As(err, new(unreplicated)):
		return sinks.Fail(sinks.Unavailable, sinks.ReasonThrottled, "")
	case s.server.cluster && (first == "MOVED" || first == "ASK" || first == "TRYAGAIN"): // the slot moves to another node
		s.link.cluster.ReloadState(ctx)
		return sinks.Postpone(sinks.ReasonBusy, "", sinks.WaitByAge(m.CreatedAt))
	case outage:
		return sinks.Fail(sinks.Unavailable, reason, "")
	case first == "NOPERM" && s.stream.Places() == 0:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, "")
	case first == "WRONGTYPE" && s.stream.Places() == 0:
		return sinks.Fail(sinks.Unavailable, sinks.ReasonConfig, "")
	case first == "NOPERM", first == "WRONGTYPE", first == "CROSSSLOT":
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, "")
	case first != "":
		return sinks.Fail(sinks.Retry, sinks.ReasonServerError, "")
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "")
	}
	return sinks.Fail(sinks.Retry, sinks.ReasonUnknown, "")
}
