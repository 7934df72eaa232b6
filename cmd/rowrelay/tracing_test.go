package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	writersTrace = "0af7651916cd43dd8448eb211c80319c"
	writersSpan  = "b7ad6b7169203331"
)

// If OpenTelemetry's variables request it, the program exports spans in the writer's trace and forwards its own trace
// context. Otherwise it forwards the trace context that the writer has stored.
func TestTracesFromTheEnvironment(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variables func(endpoint string) []string
		traced    bool
	}{
		"an endpoint": {func(endpoint string) []string { return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint} }, true},
		"disabled": {func(endpoint string) []string {
			return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint, "OTEL_SDK_DISABLED=true"}
		}, false},
		"no exporter": {func(endpoint string) []string {
			return []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + endpoint, "OTEL_TRACES_EXPORTER=none"}
		}, false},
		"nothing": {func(string) []string { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exports := make(chan *collector.ExportTraceServiceRequest, 10)
			otlp := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				var export collector.ExportTraceServiceRequest
				if err != nil || proto.Unmarshal(body, &export) != nil {
					t.Errorf("an export can't be read: %v", err)
				}
				exports <- &export
			}))
			t.Cleanup(otlp.Close)
			got := make(chan string, 1)
			consumer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Traceparent") }))
			t.Cleanup(consumer.Close)
			database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
			mustRun(t, "migrate", "up", "--database", database)
			mustCall(t, `{"topic":"orders","headers":{"traceparent":"00-`+writersTrace+"-"+writersSpan+`-01"}}`, "enqueue", "--database", database)

			run := process(t, database, "run", "--drain", "--sink", consumer.URL)
			run.Env = append(run.Env, c.variables(otlp.URL)...)
			if out, err := run.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			close(exports)
			var spans []string
			sent := ""
			for export := range exports {
				for _, span := range export.ResourceSpans[0].ScopeSpans[0].Spans {
					spans = append(spans, span.Name)
					if span.Name == "send orders" && hex.EncodeToString(span.ParentSpanId) == writersSpan {
						sent = hex.EncodeToString(span.SpanId)
					}
				}
				if service := export.ResourceSpans[0].Resource.String(); !strings.Contains(service, "rowrelay") {
					t.Errorf("the resource is %s", service)
				}
			}
			want := "00-" + writersTrace + "-" + writersSpan + "-01"
			if slices.Sort(spans); c.traced {
				want = "00-" + writersTrace + "-" + sent + "-01"
			} else if len(spans) > 0 {
				t.Errorf("exported %v, want nothing", spans)
			}
			if c.traced && !slices.Equal(spans, []string{"claim orders", "send orders", "send orders", "settle orders"}) {
				t.Errorf("exported %v", spans)
			}
			if parent := <-got; parent != want {
				t.Errorf("the consumer got %s, want %s", parent, want)
			}
		})
	}
}

// Invalid values of the variables make the program fail when it starts.
func TestInvalidVariablesForTraces(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	mustRun(t, "migrate", "up", "--database", database)
	for variable, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin": "must be otlp or none",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc": "must be http/protobuf",
	} {
		run := process(t, database, "run", "--drain", "--sink", "stdout:")
		run.Env = append(run.Env, strings.Fields(variable)...)
		if out, err := run.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", variable, err, out)
		}
	}
}
