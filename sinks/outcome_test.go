package sinks_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

func TestWaitByAge(t *testing.T) {
	t.Parallel()
	for age, most := range map[time.Duration]time.Duration{
		-time.Hour:       time.Second, // another host's clock
		0:                time.Second,
		4 * time.Second:  time.Second,
		40 * time.Second: 10 * time.Second,
		4 * time.Minute:  time.Minute,
		time.Hour:        time.Minute,
	} {
		synctest.Test(t, func(t *testing.T) {
			waits := map[time.Duration]bool{}
			for range 100 {
				wait := sinks.WaitByAge(time.Now().Add(-age))
				if wait > most || wait <= most*3/4 {
					t.Errorf("a message that is %v old waits %v, want more than %v and at most %v", age, wait, most*3/4, most)
				}
				waits[wait] = true
			}
			if len(waits) < 50 {
				t.Errorf("messages that are %v old have only %d different waits", age, len(waits))
			}
		})
	}
}
