package httpsink_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// BenchmarkSend sends messages of 256 bytes to an endpoint on the same machine that
// answers after reading them: to a fixed URL, to endpoints that messages choose,
// and in arrays.
func BenchmarkSend(b *testing.B) {
	url := answering(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, options := range map[string]httpsink.Options{
		"fixed":  {URL: url, Concurrency: 8},
		"chosen": {URL: "{header:to}", AllowedNetworks: loopback, Concurrency: 8, EndpointConcurrency: 8},
		"array":  {URL: url, Array: true},
	} {
		b.Run(name, func(b *testing.B) {
			sink := newSink(b, options)
			var batch []sinks.Message
			for range sink.Limits().Messages {
				m := message("")
				m.Payload = []byte(`{"text":"` + strings.Repeat("x", 240) + `"}`)
				m.Headers = map[string]string{"to": url}
				batch = append(batch, m)
			}
			sent := 0
			for b.Loop() {
				for _, o := range sink.Send(b.Context(), batch) {
					if o.Result != sinks.Delivered {
						b.Fatalf("%+v", o)
					}
				}
				sent += len(batch)
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
