package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
)

var errFault = errors.New("input/output error")

// faulty is a real file whose calls fail on demand.
type faulty struct {
	handle
	partial                              int // bytes that a Write accepts before it fails; negative: all
	sync, truncate, size, unlock, closed error
	syncs                                int
}

func (f *faulty) Write(text []byte) (int, error) {
	if f.partial < 0 || len(text) <= f.partial {
		return f.handle.Write(text)
	}
	n, _ := f.handle.Write(text[:f.partial])
	return n, errFault
}

func (f *faulty) Sync() error {
	f.syncs++
	return errors.Join(f.handle.Sync(), f.sync)
}

func (f *faulty) Truncate(size int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.handle.Truncate(size)
}

func (f *faulty) Size() (int64, error) {
	size, err := f.handle.Size()
	return size, errors.Join(err, f.size)
}

func (f *faulty) Unlock() error { return errors.Join(f.handle.Unlock(), f.unlock) }
func (f *faulty) Close() error  { return errors.Join(f.handle.Close(), f.closed) }

const lineA, lineB = `{"topic":"t","key":"k","payload":"a"}` + "\n", `{"topic":"t","key":"k","payload":"b"}` + "\n"

func batch(payloads ...string) []sinks.Message {
	var batch []sinks.Message
	for _, payload := range payloads {
		batch = append(batch, sinks.Message{Message: outbox.Message{Topic: "t", Key: "k", Payload: []byte(payload)}})
	}
	return batch
}

// faultySink returns a sink that has delivered message a, and whose file then
// fails.
func faultySink(t *testing.T, options Options, break_ func(*faulty)) (*Sink, *faulty, string) {
	t.Helper()
	options.Path = filepath.Join(t.TempDir(), "out.jsonl")
	sink, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	var file *faulty
	sink.openFile = func(options Options) (handle, error) {
		real, err := openFile(options)
		file = &faulty{handle: real, partial: -1}
		return file, err
	}
	if o := sink.Send(t.Context(), batch("a"))[0]; o.Result != sinks.Delivered {
		t.Fatalf("outcome %+v", o)
	}
	t.Cleanup(func() { _ = sink.Close(context.Background()) })
	break_(file)
	return sink, file, options.Path
}

// The test checks the file after each fault in a batch of a and b, and after the
// batch was sent again.
func TestWriteFaults(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  func(*faulty)
		result sinks.Result
		left   string
		again  string
	}{
		"nothing is written":  {func(f *faulty) { f.partial = 0 }, sinks.Unavailable, lineA, lineA + lineA + lineB},
		"half a line":         {func(f *faulty) { f.partial = 5 }, sinks.Unavailable, lineA, lineA + lineA + lineB},
		"a line and a half":   {func(f *faulty) { f.partial = len(lineA) + 5 }, sinks.Unavailable, lineA, lineA + lineA + lineB},
		"sync fails":          {func(f *faulty) { f.sync = errFault }, sinks.Unavailable, lineA, lineA + lineA + lineB},
		"the size is unknown": {func(f *faulty) { f.size = errFault }, sinks.Unavailable, lineA, lineA + lineA + lineB},
		"half a line stays": {
			func(f *faulty) { f.partial, f.truncate = 5, errFault },
			sinks.Retry, lineA + lineA[:5], lineA + lineA[:5] + "\n" + lineA + lineB,
		},
		"unlock fails": {func(f *faulty) { f.unlock = errFault }, sinks.Delivered, lineA + lineA + lineB, lineA + lineA + lineB + lineA + lineB},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sink, _, path := faultySink(t, Options{}, test.fault)
			for i, o := range sink.Send(t.Context(), batch("a", "b")) {
				if o.Result != test.result || o.Result != sinks.Delivered && o.Detail == "" {
					t.Errorf("outcome %d: %+v, want %v", i, o, test.result)
				}
			}
			has(t, path, test.left)
			if err := sink.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			sink.Send(t.Context(), batch("a", "b"))
			has(t, path, test.again)
		})
	}
}

func has(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("the file has\n%s\nwant\n%s", got, want)
	}
}

// After a retry the relay doesn't call Open, so the next Send must repair the file.
func TestFileIsRepairedAfterARetry(t *testing.T) {
	t.Parallel()
	sink, _, path := faultySink(t, Options{}, func(f *faulty) { f.partial, f.truncate = 5, errFault })
	sink.Send(t.Context(), batch("a"))
	sink.Send(t.Context(), batch("b"))
	has(t, path, lineA+lineA[:5]+"\n"+lineB)
}

func TestDeliveredMeansOnTheDisk(t *testing.T) {
	t.Parallel()
	for noSync, want := range map[bool]int{false: 2, true: 0} {
		sink, file, _ := faultySink(t, Options{NoSync: noSync}, func(*faulty) {})
		sink.Send(t.Context(), batch("b"))
		if file.syncs != want {
			t.Errorf("NoSync %v: %d syncs for two batches, want %d", noSync, file.syncs, want)
		}
	}
}

func TestRejectedMessageBlocksOnlyItsKey(t *testing.T) {
	t.Parallel()
	sink, file, path := faultySink(t, Options{}, func(*faulty) {})
	mixed := batch("x", "b")
	mixed[0].Key, mixed[0].Headers = "other", map[string]string{"h": "\xff"}
	outcomes := sink.Send(t.Context(), mixed)
	if outcomes[0].Result != sinks.Reject || outcomes[1].Result != sinks.Delivered {
		t.Errorf("outcomes %+v", outcomes)
	}
	file.partial = 0
	outcomes = sink.Send(t.Context(), mixed)
	if outcomes[0].Result != sinks.Reject || outcomes[1].Result != sinks.Unavailable {
		t.Errorf("outcomes on a full disk: %+v", outcomes)
	}
	if o := sink.Send(t.Context(), mixed[:1])[0]; o.Result != sinks.Reject {
		t.Errorf("outcome alone: %+v", o)
	}
	has(t, path, lineA+lineB)
}

func TestCloseReturnsItsError(t *testing.T) {
	t.Parallel()
	sink, _, _ := faultySink(t, Options{}, func(f *faulty) { f.closed = errFault })
	if err := sink.Close(t.Context()); !errors.Is(err, errFault) {
		t.Errorf("Close: %v", err)
	}
}
