package alerts

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/metrics"
	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// scene is a table with one relay, which Prometheus scrapes, and with the failures that a test can
// cause.
type scene struct {
	t       *testing.T
	db      *memstore.DB
	history history

	answer atomic.Pointer[func(context.Context, sinks.Message) sinks.Outcome] // the sink's answer; nil: delivered
	fail   atomic.Pointer[func(context.Context, memstore.Op) error]           // the error of a database call, or a delay; nil: none
	gone   bool                                                               // the relay is no longer scraped
	other  *metrics.Metrics                                                   // a process with another source, which is always scraped; nil: none
	unseen atomic.Bool                                                        // while it is true, pages don't report late rows

	metrics *metrics.Metrics
}

// Open, Close and Send implement a sink.
func (s *scene) Open(context.Context) error  { return nil }
func (s *scene) Close(context.Context) error { return nil }
func (s *scene) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	outcomes := sinks.All(len(batch), sinks.Ok(""))
	if answer := s.answer.Load(); answer != nil {
		for i, m := range batch {
			outcomes[i] = (*answer)(ctx, m)
		}
	}
	return outcomes
}

// fails sets the sink's answer for messages of a topic, or for all messages.
func (s *scene) fails(topic string, outcome sinks.Outcome) {
	answer := func(_ context.Context, m sinks.Message) sinks.Outcome {
		if topic == "" || m.Topic == topic {
			return outcome
		}
		return sinks.Ok("")
	}
	s.answer.Store(&answer)
}

// breaks makes database calls fail or take a long time.
func (s *scene) breaks(how func(ctx context.Context, op memstore.Op) error) { s.fail.Store(&how) }

// goOn lets the scene run for this time, with a message every second and with regular scrapes.
func (s *scene) goOn(long time.Duration) {
	for range long / interval {
		for range interval / time.Second {
			s.db.Write(outbox.Message{Topic: "orders"})
			time.Sleep(time.Second)
		}
		if !s.gone {
			s.history.scrape(s.t, s.metrics)
		}
		if s.other != nil {
			s.history.scrape(s.t, s.other)
		}
	}
}

var troubles = map[string]struct {
	options func(*relay.Options, *relay.SinkOptions) // nil: the defaults
	make    func(*scene)
	within  time.Duration
}{
	"RowrelayGone": {nil, func(s *scene) { s.gone = true }, 10 * time.Minute},
	"RowrelayNotPolling": {nil, func(s *scene) {
		s.breaks(func(context.Context, memstore.Op) error { return errors.New("connection refused") })
	}, 5 * time.Minute},
	"RowrelayDatabaseFails": {nil, func(s *scene) {
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettle {
				return errors.New("disk full")
			}
			return nil
		})
	}, 10 * time.Minute},
	"RowrelayUpkeepFails": {nil, func(s *scene) {
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpPurge {
				return errors.New("permission denied for table outbox_done")
			}
			return nil
		})
	}, 40 * time.Minute},
	"RowrelayDatabaseSlow": {nil, func(s *scene) {
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettle {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
	}, 20 * time.Minute},
	"RowrelaySinkDown": {nil, func(s *scene) {
		s.fails("", sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "connection refused"))
	}, 10 * time.Minute},
	"RowrelayBacklogOld": {nil, func(s *scene) { s.fails("", sinks.Fail(sinks.Retry, sinks.ReasonTimeout, "no answer")) }, 15 * time.Minute},
	"RowrelayStuck": {nil, func(s *scene) {
		release := make(chan struct{})
		s.t.Cleanup(func() { close(release) })
		answer := func(_ context.Context, m sinks.Message) sinks.Outcome {
			if m.Topic == "stuck" {
				<-release
			}
			return sinks.Ok("")
		}
		s.answer.Store(&answer)
		s.db.Write(outbox.Message{Topic: "stuck"})
	}, 5 * time.Minute},
	"RowrelayDeliverySlow": {func(_ *relay.Options, o *relay.SinkOptions) { o.Batch, o.Workers = 1, 1 }, func(s *scene) {
		answer := func(context.Context, sinks.Message) sinks.Outcome { time.Sleep(2 * time.Second); return sinks.Ok("") }
		s.answer.Store(&answer)
	}, 30 * time.Minute},
	"RowrelayRetryOld": {func(_ *relay.Options, o *relay.SinkOptions) { o.MaxAttempts = -1 }, func(s *scene) {
		s.fails("bad", sinks.Fail(sinks.Retry, sinks.ReasonServerError, "500 Internal Server Error"))
		s.db.Write(outbox.Message{Topic: "bad"})
	}, 70 * time.Minute},
	"RowrelayParked": {nil, func(s *scene) {
		s.fails("bad", sinks.Fail(sinks.Reject, sinks.ReasonRefused, "422 Unprocessable Entity"))
		s.db.Write(outbox.Message{Topic: "bad"})
	}, 2 * time.Minute},
	"RowrelayKeyHeld": {func(_ *relay.Options, o *relay.SinkOptions) { o.OnPark = relay.HoldKey }, func(s *scene) {
		s.fails("bad", sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no"))
		s.db.Write(outbox.Message{Topic: "bad", Key: "42"})
	}, 20 * time.Minute},
	"RowrelayUnrouted": {func(o *relay.Options, _ *relay.SinkOptions) {
		o.Routes = []relay.Route{{Prefix: "orders", Sink: "main"}}
	}, func(s *scene) {
		s.db.Write(outbox.Message{Topic: "invoices"})
	}, 10 * time.Minute},
	"RowrelayLeasesLost": {nil, func(s *scene) {
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpRenew {
				return errors.New("connection refused")
			}
			return nil
		})
		time.Sleep(time.Minute)
		_, err := s.db.Store().Acquire(s.t.Context(), "another", storage.Lanes, time.Minute)
		check(s.t, err)
		s.breaks(func(context.Context, memstore.Op) error { return nil })
	}, 5 * time.Minute},
	"RowrelayOutcomeRefused": {nil, func(s *scene) {
		var refused atomic.Bool
		s.fails("bad", sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "no"))
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpSettle && !refused.Load() {
				return errors.New("violates a constraint")
			}
			return nil
		})
		s.db.Write(outbox.Message{Topic: "bad"})
		go func() { time.Sleep(2 * time.Minute); refused.Store(true) }()
	}, 5 * time.Minute},
	"RowrelayDiscarded": {func(o *relay.Options, _ *relay.SinkOptions) {
		o.Routes = []relay.Route{{Topic: "*", Sink: "main", OnExpire: relay.DiscardExpired}}
	}, func(s *scene) {
		s.db.Write(outbox.Message{Topic: "orders", ExpiresAt: s.db.Now().Add(-time.Minute)})
	}, 2 * time.Minute},
	"RowrelayFoundLate": {nil, func(s *scene) { // a row with a low id appears, and nothing else is wrong
		s.unseen.Store(true)
		last := s.db.Write(outbox.Message{Topic: "orders"})[0]
		s.db.Renumber(1)
		s.db.Write(outbox.Message{Topic: "orders"})
		s.db.Renumber(last + 1)
		s.db.Write(outbox.Message{Topic: "orders"})
	}, 15 * time.Minute},
	"RowrelayWaits": {nil, func(s *scene) { // the relay has lost its connection, and a relay with another sink has taken over
		s.breaks(func(context.Context, memstore.Op) error { return errors.New("connection refused") })
		s.another("elsewhere")
		time.Sleep(time.Minute)
		s.breaks(func(context.Context, memstore.Op) error { return nil })
	}, 20 * time.Minute},
}

// Each alert fires during its problem, and not before.
func TestEachAlertFiresInItsTrouble(t *testing.T) {
	t.Parallel()
	for _, rule := range rules(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			t.Parallel()
			trouble, known := troubles[rule.Alert]
			if !known {
				t.Fatal("troubles has no problem that fires this alert")
			}
			s := &scene{t: t, history: history{}}
			var began, made, ended time.Time
			synctest.Test(t, func(t *testing.T) {
				s.t = t
				began = time.Now()
				stop := s.start(trouble.options)
				s.goOn(15 * time.Minute)
				made = time.Now()
				trouble.make(s)
				s.goOn(trouble.within)
				ended = time.Now()
				stop()
			})
			if first, _ := s.history.firing(t, rule, began.Add(time.Minute), made); !first.IsZero() {
				t.Errorf("it fires before there is any trouble, %v after the start", first.Sub(began))
			}
			if first, last := s.history.firing(t, rule, made, ended); first.IsZero() {
				t.Errorf("it doesn't fire within %v", trouble.within)
			} else {
				t.Logf("fires after %v, until %v", first.Sub(made), last.Sub(made))
			}
		})
	}
}

// No alert fires while everything works.
func TestNoAlertFiresWhileAllIsWell(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, history: history{}}
	var began, ended time.Time
	synctest.Test(t, func(t *testing.T) {
		s.t, began = t, time.Now()
		stop := s.start(nil)
		s.goOn(time.Hour)
		ended = time.Now()
		stop()
	})
	for _, rule := range rules(t) {
		if first, _ := s.history.firing(t, rule, began.Add(interval), ended); !first.IsZero() {
			t.Errorf("%s fires after %v", rule.Alert, first.Sub(began))
		}
	}
}

// Even if a relay is scraped for one source, the alert fires when no relay is scraped for another
// source.
func TestRowrelayGoneFiresForEachSource(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, history: history{}}
	var began, gone, ended time.Time
	synctest.Test(t, func(t *testing.T) {
		s.t, began = t, time.Now()
		stop := s.start(nil)
		s.other = metrics.New(metrics.Build{Version: "2"})
		s.other.Source("billing", "main")
		s.goOn(15 * time.Minute)
		gone, s.gone = time.Now(), true
		s.goOn(10 * time.Minute)
		ended = time.Now()
		stop()
	})
	for _, rule := range rules(t) {
		if rule.Alert != "RowrelayGone" {
			continue
		}
		if first, _ := s.history.firing(t, rule, began.Add(interval), gone); !first.IsZero() {
			t.Errorf("fires while both sources are scraped, %v after the start", first.Sub(began))
		}
		if first, _ := s.history.firing(t, rule, gone, ended); first.IsZero() {
			t.Error("does not fire within 10 minutes after the relay of one source was scraped for the last time")
		}
	}
}

// An alert fires for a source that was never polled. Otherwise the source would seem to have no work.
func TestSourceThatWasNeverPolledIsReported(t *testing.T) {
	t.Parallel()
	for name, never := range map[string]func(*scene) (stop func()){
		"its table can't be opened": func(s *scene) func() {
			s.db, s.metrics = memstore.New(), metrics.New(metrics.Build{})
			s.metrics.Source("shop", "main")
			return func() {}
		},
		"its relay can't lease lanes": func(s *scene) func() {
			s.breaks(func(_ context.Context, op memstore.Op) error {
				if op == memstore.OpAcquire {
					return errors.New("permission denied for table outbox_lanes")
				}
				return nil
			})
			return s.start(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{t: t, history: history{}}
			var began, ended time.Time
			synctest.Test(t, func(t *testing.T) {
				s.t, began = t, time.Now()
				stop := never(s)
				s.goOn(5 * time.Minute)
				ended = time.Now()
				stop()
			})
			for _, rule := range rules(t) {
				if rule.Alert == "RowrelayNotPolling" {
					if first, _ := s.history.firing(t, rule, began, ended); first.IsZero() {
						t.Error("RowrelayNotPolling doesn't fire within 5 minutes")
					}
				}
			}
		})
	}
}

// otherTroubles are problems that resemble an alert's problem but must not fire it.
var otherTroubles = map[string]struct {
	alert   string
	options func(*relay.Options, *relay.SinkOptions)
	make    func(*scene)
}{
	"the only sink is down, and its buffer full": {"RowrelayNotPolling", func(_ *relay.Options, o *relay.SinkOptions) { o.Batch, o.Workers, o.Buffer = 10, 1, 100 }, func(s *scene) {
		s.fails("", sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "connection refused"))
	}},
	"the same by rows": {"RowrelayNotPolling", func(o *relay.Options, so *relay.SinkOptions) {
		o.Claim, so.Batch, so.Workers, so.Buffer = storage.ByRows, 10, 1, 100
	}, func(s *scene) {
		s.fails("", sinks.Fail(sinks.Unavailable, sinks.ReasonConnection, "connection refused"))
	}},
	"delivered rows can't be deleted": {"RowrelayDatabaseFails", nil, func(s *scene) {
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpPurge {
				return errors.New("permission denied for table outbox_done")
			}
			return nil
		})
	}},
	"sweeps fail": {"RowrelayDatabaseFails", nil, func(s *scene) {
		s.breaks(func(_ context.Context, op memstore.Op) error {
			if op == memstore.OpScan {
				return errors.New("context deadline exceeded")
			}
			return nil
		})
	}},
	"another relay does its part": {"RowrelayNotPolling", nil, func(s *scene) {
		s.another("main")
		check(s.t, s.db.Store().SetControl(s.t.Context(), storage.Control{Kind: storage.PauseRelay, Name: "relay"}, 0))
	}},
}

// An alert doesn't fire during a problem that only resembles its own.
func TestNoAlertFiresInAnothersTrouble(t *testing.T) {
	t.Parallel()
	for name, trouble := range otherTroubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scene{t: t, history: history{}}
			var made, ended time.Time
			synctest.Test(t, func(t *testing.T) {
				s.t = t
				stop := s.start(trouble.options)
				s.goOn(time.Minute)
				made = time.Now()
				trouble.make(s)
				s.goOn(15 * time.Minute)
				ended = time.Now()
				stop()
			})
			for _, rule := range rules(t) {
				if rule.Alert != trouble.alert {
					continue
				}
				if first, _ := s.history.firing(t, rule, made, ended); !first.IsZero() {
					t.Errorf("%s fires after %v", rule.Alert, first.Sub(made))
				}
			}
		})
	}
}

// another starts a second relay of the table, with a sink of this name, until the end of the test.
func (s *scene) another(sink string) {
	r, err := relay.New(s.db.Store(), relay.Options{Name: "another", Logger: slog.New(slog.DiscardHandler), Sinks: map[string]relay.SinkOptions{sink: {Sink: s}}})
	check(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	s.t.Cleanup(func() { cancel(); check(s.t, <-done) })
}

// unseen is a store whose pages don't report late rows while the scene's field unseen is true.
type unseen struct {
	*memstore.Store
	scene *scene
}

func (u unseen) Read(ctx context.Context, request storage.ReadRequest) (storage.Page, error) {
	page, err := u.Store.Read(ctx, request)
	if u.scene.unseen.Load() {
		page.LateAfter = -1
	}
	return page, err
}

// start runs a relay until stop is called.
func (s *scene) start(options func(*relay.Options, *relay.SinkOptions)) (stop func()) {
	s.db, s.metrics = memstore.New(), metrics.New(metrics.Build{})
	s.db.Now = time.Now
	store, observer := s.db.Store(), s.metrics.Source("shop", "main")
	store.Hooks.Fail = func(ctx context.Context, op memstore.Op) error {
		if fail := s.fail.Load(); fail != nil {
			return (*fail)(ctx, op)
		}
		return nil
	}
	sink := relay.SinkOptions{Sink: s}
	o := relay.Options{Name: "relay", Observer: observer, Logger: slog.New(slog.DiscardHandler)}
	if options != nil {
		options(&o, &sink)
	}
	o.Sinks = map[string]relay.SinkOptions{"main": sink}
	r, err := relay.New(unseen{store, s}, o)
	check(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 2)
	go func() { done <- r.Run(ctx) }()
	go func() { observer.Watch(ctx, s.db.Store().Status); done <- nil }()
	return func() {
		cancel()
		r.Abort()
		<-done // errors at the end of a scene don't matter
		<-done
	}
}
