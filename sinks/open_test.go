package sinks_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
)

func TestUnopened(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want sinks.Outcome
	}{
		{errors.New("refused"), sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "refused")},
		{fmt.Errorf("open it: %w", &sinks.OpenError{Reason: sinks.ReasonAuth, Detail: "no such user"}), sinks.Fail(sinks.Unavailable, sinks.ReasonAuth, "open it: no such user")},
	} {
		if got := sinks.Unopened(test.err); got != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, got, test.want)
		}
	}
}
