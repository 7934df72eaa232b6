package metrics_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rowrelay/rowrelay/relay/metrics"
)

// A program registers the metrics in its own registry, or in the default one.
func Example_registry() {
	registry := prometheus.NewRegistry()
	counted := metrics.New(metrics.Build{Version: "v1.2.3"})
	registry.MustRegister(counted)
	observer := counted.Source("shop") // set it as Options.Observer of a relay

	observer.Delivered("billing", "orders.paid", 20*time.Millisecond) // as the relay does

	fmt.Println(testutil.GatherAndCount(registry, "rowrelay_delivered_total"))
	// Output:
	// 1 <nil>
}

// A program without a registry serves the Handler.
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
