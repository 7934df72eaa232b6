package httpsink

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
)

// callers makes requests to endpoints that are functions, with a simulated clock.
type callers struct {
	t   *testing.T
	all *endpoints
}

func newCallers(t *testing.T, options Options) *callers {
	return &callers{t, newEndpoints(options.withDefaults(), target{chosen: true})}
}

// call makes a request in a Send of its own.
func (c *callers) call(host string, answer func() sinks.Outcome) sinks.Outcome {
	return c.in(&round{began: time.Now()}, host, answer)
}

func (c *callers) in(r *round, host string, answer func() sinks.Outcome) sinks.Outcome {
	return c.all.call(c.t.Context(), r, &url.URL{Scheme: "http", Host: host}, "", answer)
}

func answers(o sinks.Outcome) func() sinks.Outcome { return func() sinks.Outcome { return o } }

func after(wait time.Duration, o sinks.Outcome) func() sinks.Outcome {
	return func() sinks.Outcome { time.Sleep(wait); return o }
}

var (
	delivered = sinks.Ok("200")
	refused   = sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "connection refused")
	failed    = sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500")
)

func isPostponed(o sinks.Outcome, reason sinks.Reason) bool {
	return o.Result == sinks.Unsent && o.Reason == reason && o.RetryAfter > 0 && o.Detail != ""
}

// The pauses of an unavailable endpoint grow, and each ends with one request that tests the endpoint. No message is
// charged an attempt, and messages to another endpoint are delivered meanwhile.
func TestUnavailableEndpointIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, tried := newCallers(t, Options{EndpointPause: time.Minute}), 0
		down := func() sinks.Outcome { tried++; return refused }
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
			if o := c.call("down", down); !isPostponed(o, sinks.ReasonConnection) || o.RetryAfter > 2*time.Minute {
				t.Fatalf("a message to the unavailable endpoint: %+v", o)
			}
			if o := c.call("up", answers(delivered)); o != delivered {
				t.Fatalf("a message to the other endpoint: %+v", o)
			}
		}
		if tried < 55 || tried > 90 {
			t.Errorf("it was tried %d times in an hour, want about once a minute", tried)
		}
		time.Sleep(2 * time.Minute)
		for range 3 {
			if o := c.call("down", answers(delivered)); o != delivered {
				t.Errorf("after the outage: %+v", o)
			}
		}
	})
}

// Postponed messages return at a limited rate, however many wait.
func TestPostponedMessagesReturnAtALimitedRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, asked := newCallers(t, Options{EndpointPause: time.Minute}), 0
		due := map[time.Time]int{time.Now(): 20_000}
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(time.Second) {
			for at, n := range due {
				if at.After(time.Now()) {
					continue
				}
				delete(due, at)
				for range n {
					asked++
					o := c.call("down", answers(refused))
					if o.RetryAfter > longestTurn {
						t.Fatalf("%+v", o)
					}
					due[time.Now().Add(o.RetryAfter)]++
				}
			}
		}
		if perSecond := asked / 3600; perSecond > backlogRate+10 {
			t.Errorf("20,000 waiting messages are tried %d times per second", perSecond)
		}
	})
}

// Until the request that tests a paused endpoint has ended, all other requests to
// the endpoint wait.
func TestOneRequestTestsAPausedEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{})
		c.call("down", answers(refused))
		time.Sleep(time.Minute)
		var group sync.WaitGroup
		group.Go(func() {
			if o := c.call("down", after(500*time.Millisecond, delivered)); o != delivered {
				t.Errorf("the request that tests the endpoint: %+v", o)
			}
		})
		synctest.Wait()
		if o := c.call("down", answers(delivered)); !isPostponed(o, sinks.ReasonConnection) || o.RetryAfter > 2*time.Second {
			t.Errorf("another request meanwhile: %+v", o)
		}
		group.Wait()
	})
}

// Before an endpoint is paused, each failed message has the outcome of its own answer. One success
// resets the count of consecutive failures.
func TestConsecutiveFailuresPauseAnEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{})
		for n := range 20 {
			want := failed
			if n%mostFailures == mostFailures-1 {
				want = delivered
			}
			if o := c.call("h", answers(want)); o != want {
				t.Fatalf("request %d: %+v", n, o)
			}
		}
		for range mostFailures {
			c.call("h", answers(failed))
		}
		o := c.call("h", answers(delivered))
		if want := "the endpoint failed 5 times in succession, the last time with: 500"; !isPostponed(o, sinks.ReasonConnection) || o.Detail != want {
			t.Errorf("after %d failures: %+v, want %s", mostFailures, o, want)
		}
		c.call("rejects", answers(refused))
		time.Sleep(time.Minute)
		for range 10 {
			if o := c.call("rejects", answers(sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422"))); o.Result != sinks.Reject {
				t.Errorf("repeated refusals of one message paused the endpoint: %+v", o)
			}
		}
		to := &url.URL{Scheme: "http", Host: "login"}
		for n := range mostFailures {
			c.all.call(t.Context(), &round{began: time.Now()}, to, fmt.Sprint(n), answers(sinks.Fail(sinks.Reject, sinks.ReasonRefused, "401")))
		}
		if o := c.call("login", answers(delivered)); !isPostponed(o, sinks.ReasonConnection) {
			t.Errorf("an endpoint that refused different messages was tried again: %+v", o)
		}
	})
}

// Retry-After takes precedence over the usual pause.
func TestRetryAfterSetsThePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{})
		asks := waiting(sinks.Unavailable, sinks.ReasonThrottled, "429", time.Hour)
		if o := c.call("h", answers(asks)); !isPostponed(o, sinks.ReasonThrottled) || o.RetryAfter != time.Hour {
			t.Errorf("%+v", o)
		}
		time.Sleep(time.Hour - time.Second)
		if o := c.call("h", answers(delivered)); !isPostponed(o, sinks.ReasonThrottled) {
			t.Errorf("before the hour has passed: %+v", o)
		}
		time.Sleep(time.Second)
		if o := c.call("h", answers(delivered)); o != delivered {
			t.Errorf("after the hour: %+v", o)
		}
	})
}

// An endpoint never has more concurrent requests than the limit. While the endpoint answers, all requests of a burst are made.
func TestEndpointConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{EndpointConcurrency: 3, Concurrency: 8})
		var now, most atomic.Int64
		var group sync.WaitGroup
		for range 60 {
			group.Go(func() {
				o := c.call("h", func() sinks.Outcome {
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					time.Sleep(300 * time.Millisecond)
					return delivered
				})
				if o != delivered {
					t.Errorf("%+v", o)
				}
			})
		}
		group.Wait()
		if most.Load() != 3 {
			t.Errorf("%d concurrent requests, want 3", most.Load())
		}
	})
}

// While one Send waits for a slow endpoint, other Sends postpone their messages to
// it and deliver to other endpoints.
func TestSlowEndpointDelaysOnlyOneSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{Concurrency: 8})
		slowly := after(8*time.Second, delivered)
		c.call("slow", slowly) // now the endpoint is known to be slow
		c.call("slow2", slowly)
		var group sync.WaitGroup
		group.Go(func() { c.call("slow", slowly) })
		synctest.Wait()
		start := time.Now()
		for _, host := range []string{"slow", "slow2"} {
			if o := c.call(host, slowly); !isPostponed(o, sinks.ReasonBusy) || o.RetryAfter < time.Second {
				t.Errorf("another message to %s: %+v", host, o)
			}
		}
		if o := c.call("fast", answers(delivered)); o != delivered || time.Since(start) != 0 {
			t.Errorf("a message to another endpoint: %+v after %v", o, time.Since(start))
		}
		group.Wait()
		if o := c.call("slow2", answers(delivered)); o != delivered {
			t.Errorf("after the Send has ended: %+v", o)
		}
	})
}

// A slow endpoint is tried again within about a minute, even if another endpoint hangs. If it is slow at this try,
// the next try is a minute later.
func TestSlowEndpointIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{})
		for _, host := range []string{"hangs", "well", "slow"} {
			c.call(host, after(2*time.Second, delivered))
		}
		var group sync.WaitGroup
		group.Go(func() { c.call("hangs", after(10*time.Minute, delivered)) })
		synctest.Wait()
		for host, takes := range map[string]time.Duration{"well": 0, "slow": 2 * time.Second} {
			group.Go(func() {
				want, tries := map[string]int{"well": 500, "slow": 8}[host], 0
				for begun := time.Now(); time.Since(begun) < 9*time.Minute; {
					o := c.call(host, func() sinks.Outcome { tries++; time.Sleep(takes); return delivered })
					if tries == 0 && time.Since(begun) > 90*time.Second {
						t.Errorf("%s had no turn within %v: %+v", host, time.Since(begun), o)
						return
					}
					time.Sleep(max(o.RetryAfter, time.Second))
				}
				if tries < want*9/10 || tries > want*11/10 {
					t.Errorf("%s was tried %d times, want about %d", host, tries, want)
				}
			})
		}
		group.Wait()
	})
}

// After patience has passed, a Send starts no further requests to slow endpoints, so it waits for only one timeout of them.
func TestSendStartsSlowRequestsOnlyAtItsBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, r := newCallers(t, Options{EndpointConcurrency: 2, Concurrency: 8}), &round{}
		slowly := after(8*time.Second, delivered)
		c.call("slow", slowly)
		r.began = time.Now()
		var made, put atomic.Int64
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if o := c.in(r, "slow", slowly); o == delivered {
					made.Add(1)
				} else if isPostponed(o, sinks.ReasonBusy) {
					put.Add(1)
				}
			})
		}
		group.Wait()
		if took := time.Since(r.began); made.Load() != 2 || put.Load() != 8 || took != 8*time.Second {
			t.Errorf("%d requests were made and %d messages postponed in %v, want 2 and 8 in 8s", made.Load(), put.Load(), took)
		}
	})
}

// A burst is spread over time, and postponed messages return when they can be sent.
func TestEndpointRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{EndpointRate: 10, Concurrency: 100, EndpointConcurrency: 100})
		var asked, made atomic.Int64
		var group sync.WaitGroup
		start := time.Now()
		for range 200 {
			group.Go(func() {
				for {
					asked.Add(1)
					o := c.call("h", answers(delivered))
					if o == delivered {
						made.Add(1)
						return
					}
					if !isPostponed(o, sinks.ReasonBusy) {
						t.Errorf("%+v", o)
						return
					}
					time.Sleep(o.RetryAfter)
				}
			})
		}
		group.Wait()
		if took := time.Since(start); took < 19*time.Second || took > 40*time.Second {
			t.Errorf("200 requests at 10 per second took %v", took)
		}
		if asked.Load() > 1000 {
			t.Errorf("200 messages were tried %d times; each try is a write to the table", asked.Load())
		}
	})
}

// If the context of a waiting request ends, another message gets the request's
// turn.
func TestTurnIsReturnedWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{EndpointConcurrency: 1, Concurrency: 1})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { c.call("h", after(500*time.Millisecond, delivered)) })
		synctest.Wait()
		group.Go(func() {
			if o := c.all.call(ctx, &round{began: time.Now()}, &url.URL{Scheme: "http", Host: "h"}, "", answers(delivered)); o != sinks.Cancelled() {
				t.Errorf("a request whose context ends while it waits for the endpoint: %+v", o)
			}
			if o := c.all.call(ctx, &round{began: time.Now()}, &url.URL{Scheme: "http", Host: "other"}, "", answers(delivered)); o != sinks.Cancelled() {
				t.Errorf("a request whose context has ended: %+v", o)
			}
		})
		synctest.Wait()
		cancel()
		group.Wait()
		for _, host := range []string{"h", "other"} {
			if o := c.call(host, answers(delivered)); o != delivered {
				t.Errorf("afterwards: %+v", o)
			}
		}
	})
}

// Messages can't exhaust the memory with endpoint names.
func TestNumberOfKnownEndpointsIsLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCallers(t, Options{})
		for n := range 3 * mostKnown {
			answer := delivered
			if n%2 == 0 {
				answer = refused
			}
			c.call(fmt.Sprint("h", n), answers(answer))
		}
		if n := len(c.all.known); n > mostKnown {
			t.Errorf("%d endpoints are known", n)
		}
	})
}

func TestEndpointName(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"http://Example.COM./a?b": "http://example.com:80", "https://example.com": "https://example.com:443", "http://example.com:443/": "http://example.com:443",
		"http://[2001:DB8::1]/": "http://2001:db8::1:80",
	} {
		u, err := url.Parse(address)
		if err != nil || nameOf(u) != want {
			t.Errorf("%s: %s, want %s; %v", address, nameOf(u), want, err)
		}
	}
}
