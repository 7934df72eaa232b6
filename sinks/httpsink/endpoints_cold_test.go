package httpsink_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/httpsink"
)

// After the start, no endpoint is known to be slow. Two workers each have a batch in which most
// messages are for endpoints that never answer.
func TestHangingEndpointsDoNotBlockAHealthyOne(t *testing.T) {
	t.Parallel()
	for _, hanging := range []int{8, 60} {
		synctest.Test(t, func(t *testing.T) {
			sink := newUnclosed(t, httpsink.Options{URL: "http://{header:to}/"}).Over(func(_ context.Context, _, address string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					for reader := bufio.NewReader(server); readRequest(reader) == nil; {
						if strings.HasPrefix(address, "healthy") {
							_, _ = io.WriteString(server, accepted)
						}
					}
				}()
				return client, nil
			})
			begun := time.Now()
			var sends sync.WaitGroup
			for worker := range 2 {
				var batch []sinks.Message
				for n := range 128 {
					m := message(fmt.Sprint(worker, n))
					m.Headers = map[string]string{"to": fmt.Sprint("hanging", n%hanging, ".example")}
					if n%16 == 15 {
						m.Headers["to"] = "healthy.example"
					}
					batch = append(batch, m)
				}
				sends.Go(func() {
					for i, o := range sink.Send(t.Context(), batch) {
						if healthy := i%16 == 15; healthy != (o.Result == sinks.Delivered) {
							t.Errorf("a message to %s: %+v", batch[i].Headers["to"], o)
						}
					}
				})
			}
			sends.Wait()
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("%d hanging endpoints delay a batch by %v, want at most about two timeouts of a request", hanging, took)
			}
			_ = sink.Close(t.Context())
			time.Sleep(time.Minute) // lets the connections' timers expire
		})
	}
}
