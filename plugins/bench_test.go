package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/file"
)

// BenchmarkSend compares sinks inside with the same ones as plug-ins, in batches
// of 500 messages with 300 bytes:
//
//	go test ./plugins -run '^$' -bench Send
func BenchmarkSend(b *testing.B) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	for _, sync := range []bool{true, false} {
		newFile := func(b *testing.B) file.Options {
			return file.Options{Path: filepath.Join(b.TempDir(), "out.jsonl"), NoSync: !sync}
		}
		b.Run(fmt.Sprintf("file/sync=%v/inside", sync), func(b *testing.B) {
			sink, err := file.New(newFile(b))
			check(b, err)
			send(b, sink)
		})
		b.Run(fmt.Sprintf("file/sync=%v/plugin", sync), func(b *testing.B) {
			o := options(b, "file")
			o.Config = map[string]string{"path": newFile(b).Path, "sync": fmt.Sprint(sync)}
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

// send hands over b.N batches, two at a time as a relay does.
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
