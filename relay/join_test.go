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

// leadsTo is a sink that says where it leads.
type leadsTo struct {
	recorder
	destination string
}

func (s *leadsTo) Destination() string { return s.destination }

// crew are relays of one table, and what they sent.
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

// dismiss stops relays, or all; those that can't reach the database last, and without success.
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

// cutOff keeps relays from the database, and no others.
func (c *crew) cutOff(names ...string) {
	gone := map[string]bool{}
	for _, name := range names {
		gone[name] = true
	}
	c.gone.Store(&gone)
}

// hire starts a relay whose only sink leads there.
func (c *crew) hire(name, destination string, change ...func(*relay.Options)) (*relay.Relay, *leadsTo) {
	c.Helper()
	sink := &leadsTo{destination: destination, recorder: recorder{delay: 20 * time.Millisecond}}
	slow := map[string]relay.SinkOptions{"main": {Sink: sink, Batch: 5, Buffer: 10}} // so that by rows, too, each gets something
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

// send has a message written for each lane and waits until they are delivered; it says how many of them each sink got.
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
		c.Errorf("of 400 messages %v arrived", got)
	}
	return got
}

// eachClaim plays a scene by lanes and by rows.
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

// A relay with another sink waits until those that live have stopped, says so, and isn't red: a
// rolling deployment goes on.
func TestARelayOfAnotherSetupWaits(t *testing.T) {
	eachClaim(t, func(c *crew) {
		_, old := c.hire("old", "http https://example.org")
		time.Sleep(5 * time.Second)
		c.db.Write(outbox.Message{Topic: "orders"})
		time.Sleep(time.Hour) // the retention of the new one is over for what was delivered
		next, look := c.hire("next", "stdout", func(o *relay.Options) { o.Retention = time.Minute })
		if got := c.send(old, look); got[1] != 0 {
			c.Errorf("the relay that waits delivered %d messages", got[1])
		}
		if err := next.Healthy(); err != nil {
			c.Errorf("it is red: %v", err)
		}
		for _, word := range []string{"old", "This one has: sink main: stdout. old has: sink main: http https://example.org", "--join"} {
			if why := next.StandbyReason(); !strings.Contains(why, word) {
				c.Errorf("it waits: %q, want %q", why, word)
			}
			if c.log.with("level=WARN", "relay=next", word) != 1 {
				c.Errorf("the log doesn't say once %q", word)
			}
		}
		status, err := c.db.Store().Status(c.Context())
		if err != nil || status.Counts[storage.StateDone] != 401 || status.Relays[0].Config.Membership != storage.Standby || status.Relays[1].Config.Membership != storage.Active {
			c.Errorf("status %+v, %v; want everything kept that was delivered, and next to wait", status, err)
		}
		c.dismiss("old")
		time.Sleep(3 * time.Second)
		if got := c.send(old, look); got[1] != 400 || next.StandbyReason() != "" {
			c.Errorf("after the first has stopped the second got %v, and waits: %q", got, next.StandbyReason())
		}
	})
}

// The end of a drain that would wait is an error that says why.
func TestADrainDoesNotWaitForOthers(t *testing.T) {
	eachClaim(t, func(c *crew) {
		_, old := c.hire("old", "a")
		time.Sleep(time.Second)
		for _, join := range []bool{false, true} {
			c.cutOff("old") // so that it leaves something to drain
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
			case !join && (err == nil || !strings.Contains(err.Error(), "nothing was drained") || !strings.Contains(err.Error(), "old. This one has")):
				c.Errorf("got %v, want what it would wait for", err)
			case !join && (time.Since(began) > time.Second || len(sink.ids()) > 0):
				c.Errorf("it took %v and delivered %d messages", time.Since(began), len(sink.ids()))
			}
			c.cutOff()
			time.Sleep(20 * time.Second)
		}
		if len(old.ids()) == 0 {
			c.Error("the relay that was there delivered nothing")
		}
	})
}

// A relay that was told to join shares; and so does one of the setup that is there anyway, whoever has joined.
func TestJoining(t *testing.T) {
	eachClaim(t, func(c *crew) {
		_, first := c.hire("first", "a")
		time.Sleep(5 * time.Second)
		joined, other := c.hire("other", "b", joins)
		time.Sleep(5 * time.Second)
		if got := c.send(first, other); got[0] == 0 || got[1] == 0 || joined.StandbyReason() != "" {
			c.Errorf("they got %v", got)
		}
		second, third := c.hire("second", "a")
		time.Sleep(5 * time.Second)
		if got := c.send(first, other, third); got[2] == 0 || second.StandbyReason() != "" {
			c.Errorf("beside one of its own setup the third got %v, and waits: %q", got, second.StandbyReason())
		}
	})
}

// Relays that restart beside one that has joined them take their part again, and so do others: nobody waits for a relay that
// was told to join. What the joined relay doesn't take is delivered.
func TestNobodyWaitsForARelayThatHasJoined(t *testing.T) {
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
			c.Errorf("after the restart they got %v, and the first waits: %q", got, next.StandbyReason())
		}
		c.cutOff("next") // for longer than its lease
		time.Sleep(20 * time.Second)
		c.cutOff()
		time.Sleep(2 * time.Minute) // it stands down for one, as its reads had failed
		if got := c.send(again, other); got[0] == 0 || got[1] == 0 || next.StandbyReason() != "" {
			c.Errorf("after an outage they got %v, and the first waits: %q", got, next.StandbyReason())
		}
		third, _ := c.hire("third", "c")
		time.Sleep(5 * time.Second)
		if third.StandbyReason() == "" {
			c.Error("one of a third setup doesn't wait for one that wasn't told to join")
		}
	})
}

// By rows a joined relay that is limited to some topics leaves the others' topics to them, also after their restart.
func TestTopicsOfRestartedRelaysGoOnBesideAJoinedOne(t *testing.T) {
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

// One that can't reach the database for longer than its lease loses its part to whom waits for it, and
// then waits itself. Where nobody could reach it, everything is as before.
func TestSilentRelaysLoseTheirPart(t *testing.T) {
	eachClaim(t, func(c *crew) {
		one, a := c.hire("one", "a")
		time.Sleep(2 * time.Second)
		two, b := c.hire("two", "b")
		time.Sleep(2 * time.Second)
		c.cutOff("one", "two")
		time.Sleep(time.Minute)
		c.cutOff("one")
		time.Sleep(3 * time.Second) // whoever is back first
		c.cutOff()
		time.Sleep(20 * time.Second)
		if got := c.send(a, b); got[1] != 0 || two.StandbyReason() == "" {
			c.Errorf("after an outage they got %v, and the second waits: %q", got, two.StandbyReason())
		}
		c.cutOff("one")
		time.Sleep(20 * time.Second)
		if got := c.send(a, b); got[0] != 0 {
			c.Errorf("without the first they got %v", got)
		}
		c.cutOff()
		time.Sleep(20 * time.Second)
		if got := c.send(a, b); got[0] != 0 || !strings.Contains(one.StandbyReason(), "two") {
			c.Errorf("when the first was back they got %v, and it waits: %q", got, one.StandbyReason())
		}
	})
}

// A relay doesn't wait for a dead one of its own name, and does for one that stands down, and has
// nothing against topics that it leaves alone.
func TestWhomARelayWaitsFor(t *testing.T) {
	t.Run("not for its predecessor", func(t *testing.T) {
		eachClaim(t, func(c *crew) {
			c.hire("shop-0", "a")
			time.Sleep(time.Second)
			c.cutOff("shop-0") // killed
			_, sink := c.hire("next", "b", func(o *relay.Options) { o.Name = "shop-0" })
			c.db.Write(outbox.Message{Topic: "orders"})
			time.Sleep(time.Second)
			if len(sink.ids()) == 0 {
				c.Error("it waits for its predecessor")
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
				c.Errorf("beside a relay that is paused, and alone, they got %v", got)
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
				t.Errorf("orders waits: %q; letters: %q", orders.StandbyReason(), letters.StandbyReason())
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
				c.Errorf("one that is like the one that works waits: %s", again.StandbyReason())
			}
		})
	})
}

// Of relays that begin at the same time those of one setup take part, and no others, and not none.
func TestOneSetupBegins(t *testing.T) {
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
					t.Errorf("relay %d got %d and waits: %q", i, n, relays[i].StandbyReason())
				}
			}
			if len(kinds) != 1 {
				t.Errorf("%d setups take part: %v", len(kinds), got)
			}
			c.dismiss()
		})
		if t.Failed() {
			return
		}
	}
}

// acquiresLate takes lanes a moment after it was asked to.
type acquiresLate struct{ *memstore.Store }

func (s acquiresLate) Acquire(ctx context.Context, name string, count int, ttl time.Duration) ([]storage.Grant, error) {
	time.Sleep(100 * time.Millisecond)
	return s.Store.Acquire(ctx, name, count, ttl)
}

// Of two relays with one name the one that began last has the lanes, though the first one hears of its
// fence, and could take them anew, before the second has taken any.
func TestTheLastOfANameHasTheLanes(t *testing.T) {
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
			t.Errorf("the first one sent %d messages after the second had begun, which sent %d", n, len(second.all()))
		}
		time.Sleep(2 * time.Second)
		if n := len(first.all()) + len(second.all()); n < 1000 {
			t.Errorf("%d of 1000 messages came", n)
		}
		if err := stopSecond(); err != nil {
			t.Error(err)
		}
		if err := stopFirst(); err != nil {
			t.Error(err)
		}
	})
}
