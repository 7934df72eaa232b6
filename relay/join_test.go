package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// leadsTo is a sink with a name for its destination (sinks.Destined).
type leadsTo struct {
	recorder
	destination string
}

func (s *leadsTo) Destination() string { return s.destination }

// crew has the relays of one table, and the messages that they sent.
type crew struct {
	*testing.T
	db    *memstore.DB
	log   lines
	claim storage.Claim
	gone  atomic.Pointer[map[string]bool] // relays that can't reach the database
	stops map[string]func() error
}

func newCrew(t *testing.T, claim storage.Claim) *crew {
	c := &crew{T: t, db: memstore.New(), claim: claim, stops: map[string]func() error{}}
	c.cutOff()
	return c
}

// dismiss stops the named relays, or all relays if none is named. It stops relays that can't reach the database last, and
// expects their stops to fail.
func (c *crew) dismiss(names ...string) {
	c.Helper()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(c.stops))
	}
	for _, name := range names {
		err := c.stops[name]()
		if delete(c.stops, name); err != nil && !(*c.gone.Load())[name] {
			c.Errorf("stop %s: %v", name, err)
		}
	}
}

// cutOff makes the database unreachable for these relays, and for no others.
func (c *crew) cutOff(names ...string) {
	gone := map[string]bool{}
	for _, name := range names {
		gone[name] = true
	}
	c.gone.Store(&gone)
}

// hire starts a relay whose only sink has this destination.
func (c *crew) hire(name, destination string, change ...func(*relay.Options)) (*relay.Relay, *leadsTo) {
	c.Helper()
	sink := &leadsTo{destination: destination, recorder: recorder{delay: 20 * time.Millisecond}}
	slow := map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 5, Buffer: 10}} // small enough that each relay gets some messages when claiming by rows, too
	options := relay.Options{Name: name, Claim: c.claim, Sinks: slow, Lease: 6 * time.Second, Logger: slog.New(slog.NewTextHandler(&c.log, nil))}
	for _, change := range change {
		change(&options)
	}
	store := c.db.Store()
	store.Hooks.Fail = func(context.Context, memstore.Op) error {
		if (*c.gone.Load())[name] {
			return errors.New("no route to host")
		}
		return nil
	}
	r, stop := start(c.T, store, options)
	c.stops[name] = stop
	return r, sink
}

func joins(o *relay.Options) { o.Join = true }

// send writes 400 messages, and waits until they are delivered. It returns how many of them each sink received.
func (c *crew) send(sinks ...*leadsTo) (got []int) {
	c.Helper()
	before := make([]int, len(sinks))
	for i, sink := range sinks {
		before[i] = len(sink.ids())
	}
	for i := range 400 {
		c.db.Write(outbox.Message{Topic: "orders", Key: fmt.Sprint(i)})
	}
	time.Sleep(5 * time.Second)
	all := 0
	for i, sink := range sinks {
		got = append(got, len(sink.ids())-before[i])
		all += got[i]
	}
	if all != 400 {
		c.Errorf("the sinks received %v of 400 messages", got)
	}
	return got
}

// eachClaim runs a test for each way of claiming.
func eachClaim(t *testing.T, scene func(*crew)) {
	t.Parallel()
	for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
		t.Run(string(claim), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, claim)
				scene(c)
				c.dismiss()
			})
		})
	}
}

// A relay with another sink stands by until the active relays have stopped. It reports that, and stays healthy, so that a rolling
// deployment continues.
func TestRelayWithAnotherConfigurationStandsBy(t *testing.T) {
	eachClaim(t, func(c *crew) {
		_, old := c.hire("old", "http https://example.org")
		time.Sleep(5 * time.Second)
		c.db.Write(outbox.Message{Topic: "orders"})
		time.Sleep(time.Hour) // the delivered messages are now older than the new relay's retention
		next, look := c.hire("next", "stdout", func(o *relay.Options) { o.Retention = time.Minute })
		if got := c.send(old, look); got[1] != 0 {
			c.Errorf("the relay that stands by delivered %d messages", got[1])
		}
		if err := next.Healthy(); err != nil {
			c.Errorf("the relay that stands by is unhealthy: %v", err)
		}
		for _, word := range []string{"old", "This relay has: sink main: stdout. old has: sink main: http https://example.org", "--join"} {
			if why := next.StandbyReason(); !strings.Contains(why, word) {
				c.Errorf("the reason for standing by is %q, want %q in it", why, word)
			}
			if c.log.with("level=WARN", "relay=next", word) != 1 {
				c.Errorf("the log doesn't have %q exactly once", word)
			}
		}
		status, err := c.db.Store().Status(c.Context())
		if err != nil || status.Counts[storage.StateDone] != 401 || status.Relays[0].Config.Membership != storage.Standby || status.Relays[1].Config.Membership != storage.Active {
			c.Errorf("status %+v, %v; want all delivered messages kept, and the relay next to stand by", status, err)
		}
		c.dismiss("old")
		time.Sleep(3 * time.Second)
		if got := c.send(old, look); got[1] != 400 || next.StandbyReason() != "" {
			c.Errorf("after the first relay has stopped, the sinks received %v, and the second relay's reason to stand by is %q", got, next.StandbyReason())
		}
	})
}

// A drain that would have to stand by returns an error with the reason.
func TestDrainDoesNotStandBy(t *testing.T) {
	eachClaim(t, func(c *crew) {
		_, old := c.hire("old", "a")
		time.Sleep(time.Second)
		for _, join := range []bool{false, true} {
			c.cutOff("old") // so that messages are left to drain
			c.db.Write(outbox.Message{Topic: "orders"})
			sink := &leadsTo{destination: "b"}
			r, err := relay.New(c.db.Store(), relay.Options{Claim: c.claim, Sinks: to(sink), Drain: true, Join: join, Lease: 6 * time.Second, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				c.Fatal(err)
			}
			began := time.Now()
			err = r.Run(c.Context())
			switch {
			case join && err != nil:
				c.Errorf("joined: %v", err)
			case !join && (err == nil || !strings.Contains(err.Error(), "nothing was drained") || !strings.Contains(err.Error(), "old. This relay has")):
				c.Errorf("the drain returned %v, want an error that names the relays that it would wait for", err)
			case !join && (time.Since(began) > time.Second || len(sink.ids()) > 0):
				c.Errorf("the drain took %v and delivered %d messages", time.Since(began), len(sink.ids()))
			}
			c.cutOff()
			time.Sleep(20 * time.Second)
		}
		if len(old.ids()) == 0 {
			c.Error("the active relay delivered nothing")
		}
	})
}

// A relay with Join shares the messages with active relays. So does a relay that has the configuration of an active relay,
// whatever configurations relays with Join have.
func TestJoinSharesMessages(t *testing.T) {
	eachClaim(t, func(c *crew) {
		_, first := c.hire("first", "a")
		time.Sleep(5 * time.Second)
		joined, other := c.hire("other", "b", joins)
		time.Sleep(5 * time.Second)
		if got := c.send(first, other); got[0] == 0 || got[1] == 0 || joined.StandbyReason() != "" {
			c.Errorf("the sinks received %v", got)
		}
		second, third := c.hire("second", "a")
		time.Sleep(5 * time.Second)
		if got := c.send(first, other, third); got[2] == 0 || second.StandbyReason() != "" {
			c.Errorf("with an active relay of its configuration, the third relay stands by: the sinks received %v, and the reason is %q", got, second.StandbyReason())
		}
	})
}

// No relay stands by because of a relay with Join. So relays that restart while a relay with Join is active become active
// again, and so do other relays.
func TestNoRelayStandsByForAJoinedOne(t *testing.T) {
	eachClaim(t, func(c *crew) {
		c.hire("first", "a")
		time.Sleep(5 * time.Second)
		_, other := c.hire("other", "b", joins)
		time.Sleep(5 * time.Second)
		c.dismiss("first")
		time.Sleep(5 * time.Second)
		next, again := c.hire("next", "a")
		time.Sleep(5 * time.Second)
		if got := c.send(again, other); got[0] == 0 || got[1] == 0 || next.StandbyReason() != "" {
			c.Errorf("after the restart the sinks received %v, and the first relay's reason to stand by is %q", got, next.StandbyReason())
		}
		c.cutOff("next") // for longer than its lease
		time.Sleep(20 * time.Second)
		c.cutOff()
		time.Sleep(2 * time.Minute) // it stands down for one minute, because its reads had failed
		if got := c.send(again, other); got[0] == 0 || got[1] == 0 || next.StandbyReason() != "" {
			c.Errorf("after an outage the sinks received %v, and the first relay's reason to stand by is %q", got, next.StandbyReason())
		}
		third, _ := c.hire("third", "c")
		time.Sleep(5 * time.Second)
		if third.StandbyReason() == "" {
			c.Error("a relay with a third configuration doesn't stand by although a relay without Join is active")
		}
	})
}

// When claiming by rows, a relay with Join that is limited to some topics leaves the other topics to the other relays, even
// after these have restarted.
func TestRelaysRestartWhileAJoinedOneIsActive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, storage.ByRows)
		c.hire("first", "a")
		time.Sleep(5 * time.Second)
		c.hire("other", "b", joins, func(o *relay.Options) { o.Topics = []string{"mail"} })
		time.Sleep(5 * time.Second)
		c.dismiss("first")
		time.Sleep(5 * time.Second)
		_, again := c.hire("next", "a")
		time.Sleep(5 * time.Second)
		c.send(again)
		c.dismiss()
	})
}

// If a relay can't reach the database for longer than its lease, a relay that stands by becomes active, and the first relay
// stands by when it returns. If no relay could reach the database, the same relays are active afterwards.
func TestRelaysWithoutHeartbeatsLoseTheirMembership(t *testing.T) {
	eachClaim(t, func(c *crew) {
		one, a := c.hire("one", "a")
		time.Sleep(2 * time.Second)
		two, b := c.hire("two", "b")
		time.Sleep(2 * time.Second)
		c.cutOff("one", "two")
		time.Sleep(time.Minute)
		c.cutOff("one")
		time.Sleep(3 * time.Second) // relay two reaches the database 3 s before relay one
		c.cutOff()
		time.Sleep(20 * time.Second)
		if got := c.send(a, b); got[1] != 0 || two.StandbyReason() == "" {
			c.Errorf("after an outage the sinks received %v, and the second relay's reason to stand by is %q", got, two.StandbyReason())
		}
		c.cutOff("one")
		time.Sleep(20 * time.Second)
		if got := c.send(a, b); got[0] != 0 {
			c.Errorf("without the first relay the sinks received %v", got)
		}
		c.cutOff()
		time.Sleep(20 * time.Second)
		if got := c.send(a, b); got[0] != 0 || !strings.Contains(one.StandbyReason(), "two") {
			c.Errorf("after the first relay's return the sinks received %v, and its reason to stand by is %q", got, one.StandbyReason())
		}
	})
}

// A relay doesn't wait for a dead relay that had its name, or for a relay that claims other topics. It waits for a relay that
// stands down.
func TestOthersInSelectsRelaysToWaitFor(t *testing.T) {
	t.Run("not for its predecessor", func(t *testing.T) {
		eachClaim(t, func(c *crew) {
			c.hire("shop-0", "a")
			time.Sleep(time.Second)
			c.cutOff("shop-0") // it was killed
			_, sink := c.hire("next", "b", func(o *relay.Options) { o.Name = "shop-0" })
			c.db.Write(outbox.Message{Topic: "orders"})
			time.Sleep(time.Second)
			if len(sink.ids()) == 0 {
				c.Error("the relay stands by because of its predecessor")
			}
		})
	})
	t.Run("for one that is paused", func(t *testing.T) {
		eachClaim(t, func(c *crew) {
			if err := c.db.Store().SetControl(c.Context(), storage.Control{Kind: storage.PauseRelay, Name: "old"}, 0); err != nil {
				c.Fatal(err)
			}
			_, old := c.hire("old", "a")
			time.Sleep(5 * time.Second)
			next, look := c.hire("next", "b")
			if got := c.send(old, look); got[1] != 0 || next.StandbyReason() == "" {
				c.Errorf("with a paused relay, and then without it, the sinks received %v", got)
			}
		})
	})
	t.Run("not for one that has other topics", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCrew(t, storage.ByRows)
			only := func(topics ...string) func(*relay.Options) { return func(o *relay.Options) { o.Topics = topics } }
			c.hire("mail", "a", only("mail", "letters"))
			time.Sleep(time.Second)
			orders, _ := c.hire("orders", "b", only("orders"))
			letters, _ := c.hire("letters", "c", only("letters"))
			time.Sleep(time.Second)
			if orders.StandbyReason() != "" || letters.StandbyReason() == "" {
				t.Errorf("the reasons to stand by are %q for orders and %q for letters", orders.StandbyReason(), letters.StandbyReason())
			}
			c.dismiss()
		})
	})
	t.Run("not for one that waits", func(t *testing.T) {
		eachClaim(t, func(c *crew) {
			c.hire("old", "a")
			time.Sleep(5 * time.Second)
			c.hire("two", "b")
			c.hire("three", "c")
			time.Sleep(5 * time.Second)
			again, _ := c.hire("again", "a")
			time.Sleep(time.Second)
			if again.StandbyReason() != "" {
				c.Errorf("a relay with the configuration of the active relay stands by: %s", again.StandbyReason())
			}
		})
	})
}

// If relays with several configurations begin at the same time, those of exactly one configuration become active.
func TestOnlyOneConfigurationBecomesActive(t *testing.T) {
	t.Parallel()
	histories := 200
	if underRace && !*wholeHour {
		histories = 20
	}
	for range histories {
		synctest.Test(t, func(t *testing.T) {
			c := newCrew(t, storage.ByLanes)
			c.db.Hooks.Fail = func(context.Context, memstore.Op) error {
				time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
				return nil
			}
			var relays []*relay.Relay
			var all []*leadsTo
			for i := range 4 {
				r, sink := c.hire(fmt.Sprint(i), string(rune('a'+i%3)))
				relays, all = append(relays, r), append(all, sink)
			}
			time.Sleep(20 * time.Second)
			got := c.send(all...)
			kinds := map[string]bool{}
			for i, n := range got {
				if n > 0 {
					kinds[all[i].destination] = true
				}
				if (n > 0) != (relays[i].StandbyReason() == "") {
					t.Errorf("relay %d sent %d messages, and its reason to stand by is %q", i, n, relays[i].StandbyReason())
				}
			}
			if len(kinds) != 1 {
				t.Errorf("relays of %d configurations are active: %v", len(kinds), got)
			}
			c.dismiss()
		})
		if t.Failed() {
			return
		}
	}
}

// acquiresLate is a store whose calls of Acquire are delayed.
type acquiresLate struct{ *memstore.Store }

func (s acquiresLate) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Acquire(ctx, name, count, ttl)
}

// If two relays have the same name, the one that started last gets the lanes. This holds even if the first relay notices that
// it was fenced before the second one has acquired any lane, and so could acquire the lanes again.
func TestLastRelayWithANameGetsTheLanes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, first, second := memstore.New(), &recorder{}, &recorder{}
		go func() {
			for i := range 1000 {
				write(db, "t", fmt.Sprint("key-", i), 1)
				time.Sleep(10 * time.Millisecond)
			}
		}()
		_, stopFirst := start(t, db.Store(), relay.Options{Name: "shop", Sinks: to(first)})
		time.Sleep(time.Second)
		_, stopSecond := start(t, acquiresLate{db.Store()}, relay.Options{Name: "shop", Sinks: to(second)})
		time.Sleep(4 * time.Second)
		before := len(first.all())
		time.Sleep(4 * time.Second)
		if n := len(first.all()) - before; n > 0 {
			t.Errorf("after the second relay had begun, the first one sent %d messages and the second one %d", n, len(second.all()))
		}
		time.Sleep(2 * time.Second)
		if n := len(first.all()) + len(second.all()); n < 1000 {
			t.Errorf("%d of 1000 messages arrived", n)
		}
		if err := stopSecond(); err != nil {
			t.Error(err)
		}
		if err := stopFirst(); err != nil {
			t.Error(err)
		}
	})
}
