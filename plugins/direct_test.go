package plugins_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
)

// Messages go past gRPC where the plug-in can take them so: calls that are under
// way at once on connections of their own, which then serve again.
func TestDirect(t *testing.T) {
	t.Parallel()
	d := newDestination(t)
	direct, older := toDestination(t, d, "prefix"), newSink(t, older(t, d))
	for sink, want := range map[*plugins.Sink]int{direct: 3, older: 0} {
		check(t, sink.Open(t.Context()))
		for range 2 {
			together(t, sink, d, 3)
		}
		if got := sink.Direct(); got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
		check(t, sink.Close(t.Context()))
	}
}

func older(t testing.TB, d *destination) plugins.Options {
	t.Helper()
	o := remoteOptions(t, d, "prefix")
	o.Args = append([]string{"older"}, o.Args...)
	return o
}

// together lets so many calls of Send be under way at once.
func together(t *testing.T, sink *plugins.Sink, d *destination, calls int) {
	t.Helper()
	_, release := d.stall()
	before := d.count()
	var sends sync.WaitGroup
	for range calls {
		sends.Go(func() {
			if o := sink.Send(t.Context(), batch("key"))[0]; o.Result != sinks.Delivered {
				t.Errorf("outcome %+v", o)
			}
		})
	}
	eventually(t, "all are under way", func() bool { return d.count() == before+calls })
	release()
	sends.Wait()
}

// What the plug-in starts has no socket of the relay's.
func TestSocketsAreNotInherited(t *testing.T) {
	t.Parallel()
	o := options(t, "scripted")
	o.Env["PATH"] = sinks.Secret(os.Getenv("PATH"))
	sink := running(t, o)
	child := ask(t, sink, "fork with")
	files, err := filepath.Glob(filepath.Join("/proc", child, "fd", "*"))
	check(t, err)
	for _, file := range files {
		if to, _ := os.Readlink(file); strings.HasPrefix(to, "socket:") {
			t.Errorf("the plug-in's child has %s at %s", to, file)
		}
	}
	if len(files) == 0 {
		t.Error("the child has no files at all")
	}
}

// A plug-in that is killed leaves no connection of its own behind, and the next
// one has new ones.
func TestDirectAfterADeath(t *testing.T) {
	t.Parallel()
	sink := running(t, options(t, "scripted"))
	ask(t, sink, "hello")
	check(t, syscall.Kill(sink.PID(), syscall.SIGKILL))
	<-sink.Gone()
	if got := sink.Direct(); got != 0 {
		t.Errorf("%d connections to a plug-in that is gone", got)
	}
	check(t, sink.Open(t.Context()))
	ask(t, sink, "hello")
	if got := sink.Direct(); got != 1 {
		t.Errorf("%d connections, want 1", got)
	}
}

// Each message is what it was, whatever the sink has done with those before it.
func TestASinkThatChangesItsMessages(t *testing.T) {
	t.Parallel()
	for _, way := range [][]string{{"spoiling"}, {"older", "spoiling"}} {
		o := options(t, "spoiling")
		o.Args = way
		sink, batch := running(t, o), measured()
		for i := range batch {
			batch[i].Payload = fmt.Append(nil, "payload-", i)
			batch[i].Headers["number"] = fmt.Sprint(i / 3)
		}
		for range 3 {
			for i, got := range sink.Send(t.Context(), batch) {
				if want := sinks.Ok(seen(batch[i])); got != want {
					t.Fatalf("%v: message %d was seen as\n%+v\nwant\n%+v", way, i, got, want)
				}
			}
		}
	}
}
