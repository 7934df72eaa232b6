package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/internal/memstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// runs is a running daemon. The test can make it load its configuration again.
type runs struct {
	*bench
	configuration config.Config
	loads         error // the error that Load returns
	reload        chan os.Signal
	log           strings.Builder
	stop          func()
	ended         chan error
}

func run(t *testing.T, b *bench, options Options, sources ...string) *runs {
	t.Helper()
	r := &runs{bench: b, configuration: b.config(sources...), reload: make(chan os.Signal, 1), ended: make(chan error, 1)}
	options.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	options.Reload, options.Load = r.reload, func() (config.Config, error) { return r.configuration, r.loads }
	a := make1(t, r.configuration, options)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.ended <- a.Run(ctx, nil) }()
	return r
}

// said returns the daemon's log.
func (r *runs) said() string {
	synctest.Wait()
	return r.log.String()
}

func (r *runs) hangUp() {
	r.reload <- syscall.SIGHUP
	time.Sleep(10 * time.Second)
	synctest.Wait() // the daemon has written its log, and the test may read it
}

func (r *runs) wantDelivered(t *testing.T, want ...string) {
	t.Helper()
	time.Sleep(10 * time.Second)
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := slices.Sorted(slices.Values(r.got)); !slices.Equal(got, want) {
		t.Errorf("delivered are %q, want %q", got, want)
	}
}

// A source that is down at the start doesn't affect the others, and is relayed when it is up.
func TestSourceThatIsDownAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("a", "b")
		b.write("a", "1")
		b.write("b", "2")
		var down atomic.Bool
		down.Store(true)
		options := b.options(t)
		open := options.Open
		options.Open = func(ctx context.Context, source config.Source) (Table, error) {
			if source.Name == "b" && down.Load() {
				return Table{}, errors.New("connection refused")
			}
			return open(ctx, source)
		}
		r := run(t, b, options, "a", "b")
		r.wantDelivered(t, "1")
		r.hangUp() // the source is still down, and yet the new configuration is used
		b.write("a", "3")
		r.wantDelivered(t, "1", "3")
		down.Store(false)
		time.Sleep(lastTry)
		b.write("a", "4")
		r.wantDelivered(t, "1", "2", "3", "4")
		r.stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		for _, want := range []string{"the source can't be opened: trying again", "the source still can't be opened", "the source can be opened now: restarting with it", "switching to the new configuration"} {
			if !strings.Contains(r.said(), want) {
				t.Errorf("the log doesn't say %q:\n%s", want, r.said())
			}
		}
	})
}

// If a source can be opened again but the restart with it fails, the daemon tries again. It continues to relay the other sources
// without interruption.
func TestSourceIsBackButTheRestartFails(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]struct {
		source string
		nth    int32 // which opening of the source fails, not counting those at the start
	}{
		"it is down again":   {"b", 2},
		"another one is":     {"a", 2},
		"another one, twice": {"a", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench("a", "b")
				b.write("b", "2")
				var down atomic.Bool
				down.Store(true)
				openings := map[string]*atomic.Int32{"a": {}, "b": {}}
				options := b.options(t)
				open := options.Open
				options.Open = func(ctx context.Context, source config.Source) (Table, error) {
					if source.Name == "b" && down.Load() {
						return Table{}, errors.New("connection refused")
					}
					if n := openings[source.Name].Add(1); source.Name == refused.source && n > 1 && n <= refused.nth {
						return Table{}, errors.New("too many connections")
					}
					return open(ctx, source)
				}
				r := run(t, b, options, "a", "b")
				b.write("a", "1")
				r.wantDelivered(t, "1")
				down.Store(false)
				time.Sleep(4 * lastTry)
				r.wantDelivered(t, "1", "2")
				r.stop()
				if err := <-r.ended; err != nil {
					t.Error(err)
				}
				if taken := strings.Count(r.said(), "restarting with it"); taken != 1 {
					t.Errorf("the others were stopped %d times, want once:\n%s", taken, r.said())
				}
				if opened, closed := r.opened.Load(), len(r.closed); int(opened) != closed {
					t.Errorf("%d tables were opened, and %d closed", opened, closed)
				}
			})
		})
	}
}

// While a reload waits for a database that doesn't answer, the daemon still reacts to a relay's failure and to the next signal.
func TestHangingReload(t *testing.T) {
	t.Parallel()
	hangs := func(b *bench, options *Options) {
		open := options.Open
		options.Open = func(ctx context.Context, source config.Source) (Table, error) {
			if source.Name == "b" {
				<-ctx.Done()
				return Table{}, ctx.Err()
			}
			return open(ctx, source)
		}
	}
	t.Run("the next signal is heard", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench("a", "b", "c")
			options := b.options(t)
			hangs(b, &options)
			r := run(t, b, options, "a")
			r.configuration = r.config("a", "b")
			r.hangUp()
			r.configuration = r.config("a", "c")
			r.hangUp()
			time.Sleep(loadTime)
			b.write("c", "3")
			r.wantDelivered(t, "3")
			r.stop()
			if err := <-r.ended; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("a relay that has failed ends it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBench("a", "b")
			options := b.options(t)
			hangs(b, &options)
			var other atomic.Bool
			b.tables["a"].Hooks.Fail = func(context.Context, memstore.Op) error {
				if other.Load() {
					return storage.ErrOtherClaim
				}
				return nil
			}
			r := run(t, b, options, "a")
			time.Sleep(time.Second)
			r.configuration = r.config("a", "b")
			r.hangUp()
			other.Store(true)
			select {
			case err := <-r.ended:
				if err == nil {
					t.Error("it ended without an error")
				}
			case <-time.After(loadTime / 2):
				t.Error("the daemon continues without its relay")
				r.stop()
				<-r.ended
			}
		})
	})
}

func TestStartFailsIfAllSourcesAreDown(t *testing.T) {
	t.Parallel()
	b := newBench("a", "b")
	b.fails["a"], b.fails["b"] = errors.New("no route to host"), errors.New("connection refused")
	err := make1(t, b.config("a", "b"), b.options(t)).Run(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "no route to host") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the error is %v, want one for each source", err)
	}
}

// The daemon switches to a new configuration. If the new configuration has an error, the daemon keeps the previous one, and
// closes everything that it has opened for the new one.
func TestReload(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(r *runs)
		says   string // the log has this error if the configuration isn't used
	}{
		"another source":            {change: func(r *runs) { r.configuration = r.config("a", "b") }},
		"a source less":             {change: func(r *runs) { r.configuration = r.config("b") }},
		"a file that can't be read": {func(r *runs) { r.loads = errors.New("line 3: this isn't YAML") }, "line 3: this isn't YAML"},
		"a sink that can't be made": {func(r *runs) { r.configuration.Sinks = []config.Sink{{Name: "all", Type: "unheard-of"}} }, "unheard-of"},
		"what the relay refuses":    {func(r *runs) { r.configuration = r.config("a"); r.configuration.Sources[0].Lease = time.Millisecond }, "lease"},
		"a source that is down":     {func(r *runs) { r.configuration = r.config("a", "b"); r.fails["b"] = errors.New("connection refused") }, "connection refused"},
		// The address has an invalid port and not an invalid host, because package net keeps a channel of the first synctest
		// bubble that looks up a host.
		"an address that isn't one":  {func(r *runs) { r.configuration = r.config("a"); r.configuration.Admin.Listen = "127.0.0.1:99999" }, "99999"},
		"a certificate that is gone": {func(r *runs) { r.configuration = r.config("a"); r.configuration.Admin.TLS.CertFile = "gone.pem" }, "gone.pem"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench("a", "b")
				b.write("a", "1")
				r := run(t, b, b.options(t), "a")
				r.wantDelivered(t, "1")
				test.change(r)
				r.hangUp()
				b.write("b", "2")
				if test.says == "" {
					r.wantDelivered(t, "1", "2")
				} else {
					b.write("a", "3")
					r.wantDelivered(t, "1", "3")
				}
				r.stop()
				if err := <-r.ended; err != nil {
					t.Error(err)
				}
				if log := r.said(); test.says != "" && (!strings.Contains(log, "the configuration wasn't loaded") || !strings.Contains(log, test.says)) {
					t.Errorf("the log doesn't have %q:\n%s", test.says, log)
				}
				if opened, closed := r.opened.Load(), len(r.closed); int(opened) != closed {
					t.Errorf("%d tables were opened, and %d closed", opened, closed)
				}
			})
		})
	}
}

// A process whose sinks are renamed doesn't wait for its own previous relay. Another process, which still has the previous
// configuration, stands by until its configuration has been reloaded, too.
func TestReloadWithOtherSinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench("a")
		one := run(t, b, b.options(t), "a")
		one.wantDelivered(t)
		one.configuration.Sinks = []config.Sink{{Name: "renamed", Type: "collect"}}
		one.hangUp()
		b.write("a", "1")
		one.wantDelivered(t, "1")
		if strings.Contains(one.said(), "standing by") {
			t.Errorf("it waited for itself:\n%s", one.said())
		}

		two := run(t, b, b.options(t), "a")
		two.configuration.Sinks = one.configuration.Sinks
		time.Sleep(10 * time.Second)
		if !strings.Contains(two.said(), "relay: standing by") {
			t.Errorf("a process of the old configuration doesn't wait:\n%s", two.said())
		}
		two.hangUp()
		b.write("a", "2")
		one.wantDelivered(t, "1", "2")
		if strings.Count(two.said(), "relay: standing by") != 1 {
			t.Errorf("the second process didn't log exactly once that it stands by:\n%s", two.said())
		}
		for _, r := range []*runs{one, two} {
			r.stop()
			if err := <-r.ended; err != nil {
				t.Error(err)
			}
		}
	})
}
