package outbox

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limited := &limiter{interval: 10 * time.Millisecond}
		for i, wait := range []struct {
			before time.Duration
			want   bool
		}{{0, true}, {0, false}, {9 * time.Millisecond, false}, {time.Millisecond, true}, {time.Hour, true}, {0, false}} {
			time.Sleep(wait.before)
			if got := limited.allow(); got != wait.want {
				t.Errorf("call %d: %v, want %v", i, got, wait.want)
			}
		}
	})
}

func TestLimiterWithoutInterval(t *testing.T) {
	t.Parallel()
	free := &limiter{}
	for range 2 {
		if !free.allow() {
			t.Error("a limiter with an interval of 0 refuses a call")
		}
	}
	if (*limiter)(nil).allow() {
		t.Error("a nil limiter allows a call")
	}
}
