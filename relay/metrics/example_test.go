package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/metrics"
)

// An application that runs a relay sets the relay's Options.Observer to the
// Source, and serves the Handler.
func Example() {
	counted := metrics.New(metrics.Build{Version: "v1.2.3"})
	observer := counted.Source("shop", "billing")

	observer.Delivered("billing", "orders.paid", 20*time.Millisecond) // as the relay does

	answer := httptest.NewRecorder()
	counted.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "rowrelay_delivered_total") {
			fmt.Print(line)
		}
	}
	// Output:
	// rowrelay_delivered_total{sink="billing",source="shop"} 1
}
