package sinks_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

// keyed returns a batch of messages with these keys. Their ids are the key and a
// number: a1, a2, b1.
func keyed(keys ...string) []sinks.Message {
	count := map[string]int{}
	batch := make([]sinks.Message, len(keys))
	for i, key := range keys {
		count[key]++
		batch[i] = sinks.Message{Message: outbox.Message{ID: fmt.Sprint(key, count[key]), Topic: "t", Key: key}}
	}
	return batch
}

// calls records the calls of a Fan's function.
type calls struct {
	mu        sync.Mutex
	ids       []string
	now, most int
	keys      map[string]int
	doubled   string // a key with two concurrent calls
}

func (c *calls) begin(m sinks.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]int{}
	}
	c.ids = append(c.ids, m.ID)
	c.now++
	c.most = max(c.most, c.now)
	c.keys[m.Key]++
	if m.Key != "" && c.keys[m.Key] > 1 {
		c.doubled = m.Key
	}
}

func (c *calls) end(m sinks.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
	c.keys[m.Key]--
}

// took returns a function for a Fan. It returns the outcome in outcomes for the id
// after half of the duration d, or Delivered after d.
func (c *calls) took(d time.Duration, outcomes map[string]sinks.Outcome) func(context.Context, sinks.Message) sinks.Outcome {
	return func(_ context.Context, m sinks.Message) sinks.Outcome {
		c.begin(m)
		defer c.end(m)
		if outcome, ok := outcomes[m.ID]; ok {
			time.Sleep(d / 2) // in synctest's fake time
			return outcome
		}
		time.Sleep(d)
		return sinks.Ok("")
	}
}

// summary returns one letter per outcome: Delivered, retrY, Reject, Unavailable,
// N for blocked, Cancelled.
func summary(outcomes []sinks.Outcome) string {
	var text strings.Builder
	for _, o := range outcomes {
		letters := map[sinks.Result]string{sinks.Delivered: "D", sinks.Retry: "Y", sinks.Reject: "R", sinks.Unavailable: "U", sinks.Unsent: "C"}
		letter := letters[o.Result]
		if o.Reason == sinks.ReasonBlocked {
			letter = "N"
		}
		text.WriteString(letter)
	}
	return text.String()
}

func TestFanOutcomes(t *testing.T) {
	t.Parallel()
	retry := sinks.Fail(sinks.Retry, sinks.ReasonServerError, "")
	reject := sinks.Fail(sinks.Reject, sinks.ReasonRefused, "")
	down := sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "")
	tests := []struct {
		name     string
		limit    int
		keys     []string
		outcomes map[string]sinks.Outcome
		want     string
	}{
		{"all delivered", 3, []string{"a", "a", "b", "", ""}, nil, "DDDDD"},
		{"all delivered in order", 1, []string{"a", "a", "b", "", ""}, nil, "DDDDD"},
		{"a retry holds its key", 3, []string{"a", "a", "b", "a", "b"}, map[string]sinks.Outcome{"a1": retry}, "YNDND"},
		{"a retry holds its key in order", 1, []string{"a", "a", "b", "a", "b"}, map[string]sinks.Outcome{"a1": retry}, "YNDND"},
		{"a retry without a key holds nothing", 3, []string{"", "", ""}, map[string]sinks.Outcome{"1": retry}, "YDD"},
		{"a retry without a key holds nothing in order", 1, []string{"", "", ""}, map[string]sinks.Outcome{"1": retry}, "YDD"},
		{"a rejected message holds its key", 3, []string{"a", "a", "b"}, map[string]sinks.Outcome{"a1": reject}, "RND"},
		{"a rejected message holds its key in order", 1, []string{"a", "a", "b"}, map[string]sinks.Outcome{"a1": reject}, "RND"},
		{"an outage stops the batch", 2, []string{"a", "b", "c", "a", ""}, map[string]sinks.Outcome{"a1": down}, "UDNNN"},
		{"an outage stops the batch in order", 1, []string{"a", "b", "c", "a", ""}, map[string]sinks.Outcome{"b1": down}, "DUNNN"},
		{"a zero outcome is a retry", 1, []string{"a", "a"}, map[string]sinks.Outcome{"a1": {}}, "YN"},
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			var c calls
			outcomes := sinks.NewFan(test.limit).Send(t.Context(), keyed(test.keys...), c.took(time.Second, test.outcomes))
			if got := summary(outcomes); got != test.want {
				t.Errorf("%s: %s, want %s", test.name, got, test.want)
			}
			if c.doubled != "" {
				t.Errorf("%s: concurrent calls for key %q", test.name, c.doubled)
			}
		})
	}
}

func TestFanKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 8} {
		synctest.Test(t, func(t *testing.T) {
			var c calls
			keys := slices.Repeat([]string{"a", "b", "", "c"}, 25)
			sinks.NewFan(limit).Send(t.Context(), keyed(keys...), c.took(time.Second, nil))
			last := map[string]int{}
			for _, id := range c.ids {
				var n int
				key := strings.TrimRight(id, "0123456789")
				fmt.Sscan(id[len(key):], &n)
				if key != "" && n != last[key]+1 {
					t.Errorf("limit %d: %s arrived after %s%d", limit, id, key, last[key])
				}
				last[key] = n
			}
			if len(c.ids) != len(keys) || c.doubled != "" {
				t.Errorf("limit %d: %d calls, concurrent calls for key %q", limit, len(c.ids), c.doubled)
			}
		})
	}
}

func TestFanInOrderKeepsTheOrderOfTheBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c calls
		sinks.NewFan(0).Send(t.Context(), keyed("b", "a", "b", "", "a"), c.took(time.Second, nil))
		if want := []string{"b1", "a1", "b2", "1", "a2"}; !slices.Equal(c.ids, want) {
			t.Errorf("called for %v, want %v", c.ids, want)
		}
	})
}

func TestFanLimitsAllSendsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c calls
		var sends sync.WaitGroup
		fan := sinks.NewFan(3)
		start := time.Now()
		for range 3 {
			sends.Go(func() { fan.Send(t.Context(), keyed("", "", "", ""), c.took(time.Second, nil)) })
		}
		sends.Wait()
		if took := time.Since(start); c.most != 3 || took != 4*time.Second {
			t.Errorf("%d concurrent calls, %v for 12 messages of a second", c.most, took)
		}
	})
}

func TestFanStartsNothingAfterTheContextEnds(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var c calls
			outcomes := sinks.NewFan(limit).Send(ctx, keyed("a", "a", "b"), c.took(time.Second, nil))
			if len(c.ids) > 0 {
				t.Errorf("limit %d: called for %v", limit, c.ids)
			}
			for i, o := range outcomes {
				if o.Result != sinks.Unsent {
					t.Errorf("limit %d: outcome %d is %+v", limit, i, o)
				}
			}
		})
	}
}

func TestFanWaitingForASlotEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fan := sinks.NewFan(1)
		var c calls
		var sends sync.WaitGroup
		sends.Go(func() { fan.Send(t.Context(), keyed("a"), c.took(time.Hour, nil)) })
		defer sends.Wait()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		outcomes := fan.Send(ctx, keyed("b"), c.took(time.Hour, nil))
		if got, took := summary(outcomes), time.Since(start); got != "C" || took != time.Second {
			t.Errorf("%s after %v", got, took)
		}
	})
}

func TestFanStartsNothingWithTooLittleTimeLeft(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
			defer cancel()
			var c calls
			keys := slices.Repeat([]string{""}, 5*limit)
			outcomes := sinks.NewFan(limit).Send(ctx, keyed(keys...), c.took(time.Second, nil))
			want := strings.Repeat("D", 3*limit) + strings.Repeat("C", 2*limit)
			if got := summary(outcomes); got != want {
				t.Errorf("limit %d: %s, want %s", limit, got, want)
			}
		})
	}
}

func BenchmarkFan(b *testing.B) {
	keys := make([]string, 500)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i%100)
	}
	batch := keyed(keys...)
	deliver := func(context.Context, sinks.Message) sinks.Outcome { return sinks.Ok("") }
	for _, limit := range []int{1, 8} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			fan := sinks.NewFan(limit)
			for b.Loop() {
				fan.Send(b.Context(), batch, deliver)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/message")
		})
	}
}
