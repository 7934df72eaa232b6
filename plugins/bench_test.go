package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
)

// BenchmarkSend compares built-in sinks with the same sinks as plug-ins, in batches
// of 500 messages with 300 bytes:
//
//	go test ./plugins -run '^$' -bench Send
func BenchmarkSend(b *testing.B) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, synced := range []bool{true, false} {
		newFile := func(b *testing.B) file.Options {
			return file.Options{Path: filepath.Join(b.TempDir(), "out.jsonl"), NoSync: !synced}
		}
		b.Run(fmt.Sprintf("file/sync=%v/inside", synced), func(b *testing.B) {
			sink, err := file.New(newFile(b))
			check(b, err)
			send(b, sink)
		})
		b.Run(fmt.Sprintf("file/sync=%v/plugin", synced), func(b *testing.B) {
			o := options(b, "file")
			o.Config = map[string]string{"path": newFile(b).Path, "sync": fmt.Sprint(synced)}
			o.Logger = quiet
			send(b, newSink(b, o))
		})
	}
	b.Run("discard/inside", func(b *testing.B) { send(b, discard.New()) })
	b.Run("discard/plugin", func(b *testing.B) {
		o := options(b, "discard")
		o.Logger = quiet
		send(b, newSink(b, o))
	})
}

// BenchmarkOverhead compares a built-in file sink with the same sink as a plug-in.
// The two alternate, so that other work on the machine affects both. The reported
// ratio compares the median throughputs; 1 means that the plug-in costs nothing.
// The reported µs are the core time per message of both processes together.
//
//	go test ./plugins -run '^$' -bench Overhead/ -benchtime 100x
func BenchmarkOverhead(b *testing.B) {
	for _, synced := range []bool{true, false} {
		for _, callers := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("file/sync=%v/callers=%d", synced, callers), func(b *testing.B) {
				folder, o := b.TempDir(), options(b, "file")
				o.Logger = slog.New(slog.DiscardHandler)
				o.Config = map[string]string{"path": filepath.Join(folder, "plugin.jsonl"), "sync": fmt.Sprint(synced)}
				inside, err := file.New(file.Options{Path: filepath.Join(folder, "inside.jsonl"), NoSync: !synced})
				check(b, err)
				inTurns(b, callers, inside, newSink(b, o))
			})
		}
	}
}

// inTurns lets the sinks alternate in rounds of 20 batches, with the given number
// of concurrent Sends, as in a relay.
func inTurns(b *testing.B, callers int, inside sinks.Sink, plugin *plugins.Sink) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	both := []sinks.Sink{inside, plugin}
	batch := measured()
	took, used := make([][]time.Duration, len(both)), make([]time.Duration, len(both))
	for _, sink := range both {
		check(b, sink.Open(ctx))
	}
	for b.Loop() {
		for i, sink := range both {
			began, before := time.Now(), worked(b, plugin.PID())
			var workers sync.WaitGroup
			for range callers {
				workers.Go(func() {
					for range 20 / callers {
						sink.Send(ctx, batch)
					}
				})
			}
			workers.Wait()
			took[i] = append(took[i], time.Since(began))
			used[i] += worked(b, plugin.PID()) - before
		}
	}
	for i, sink := range both {
		check(b, sink.Close(ctx))
		slices.Sort(took[i])
	}
	median := func(i int) float64 { return took[i][len(took[i])/2].Seconds() }
	for i, name := range []string{"inside", "plugin"} {
		b.ReportMetric(20*500/median(i), name+"/s")
		b.ReportMetric(float64(used[i].Microseconds())/float64(b.N*20*500), name+"-µs")
	}
	b.ReportMetric(median(0)/median(1), "ratio")
}

// worked returns the core time that this process and another process have used so far.
func worked(b *testing.B, pid int) time.Duration {
	var mine syscall.Rusage
	check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &mine))
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(b, err)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	check(b, err)
	system, err := strconv.Atoi(fields[12])
	check(b, err)
	return time.Duration(mine.Utime.Nano()+mine.Stime.Nano()) + time.Duration(user+system)*10*time.Millisecond
}

// send sends b.N batches, two concurrently as a relay does.
func send(b *testing.B, sink sinks.Sink) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	check(b, sink.Open(ctx))
	defer func() { check(b, sink.Close(context.Background())) }()
	b.SetParallelism(1)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		batch := measured()
		for pb.Next() {
			for _, o := range sink.Send(ctx, batch) {
				if o.Result != sinks.Delivered {
					b.Errorf("outcome %+v", o)
					return
				}
			}
		}
	})
	b.ReportMetric(float64(b.N)*500/b.Elapsed().Seconds(), "messages/s")
}

func measured() []sinks.Message {
	batch := make([]sinks.Message, 500)
	for i := range batch {
		batch[i] = sinks.Message{
			Message: outbox.Message{
				ID: fmt.Sprintf("0195c0de-0000-7000-8000-%012d", i), Topic: "orders.paid", Key: fmt.Sprint("order-", i%50),
				Payload: bytes.Repeat([]byte("0123456789"), 30), Headers: map[string]string{"x-trace": "0123456789abcdef"},
			},
			Sequence: int64(i), Attempt: 1, CreatedAt: time.Now(),
		}
	}
	return batch
}
