package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/tracing"
)

// flushGrace limits the time that a relay may spend on exporting its last spans before it exits.
const flushGrace = 5 * time.Second

// newTracer returns a tracer if OpenTelemetry's environment variables set an endpoint or
// OTEL_TRACES_EXPORTER=otlp. Otherwise it returns nil, and the SDK isn't used. The SDK and its exporter
// read all other variables. The function flush exports the remaining spans.
func newTracer(ctx context.Context, logger *slog.Logger) (tracer relay.Tracer, flush func(), err error) {
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	asked := exporter == "otlp" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
	if !slices.Contains([]string{"", "otlp", "none"}, exporter) {
		return nil, nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: must be otlp or none", exporter)
	}
	if !asked || exporter == "none" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, func() {}, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return nil, nil, fmt.Errorf("%s is %q: must be http/protobuf, which every collector accepts (on port 4318 by default)", name, protocol)
		}
	}
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: %w", err)
	}
	// Attributes from the environment override the ones given here.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "rowrelay"), attribute.String("service.version", build().Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("export traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("traces could not be exported", "error", err) }))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(client), sdk.WithResource(about))
	return tracing.New(provider), func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushGrace)
		defer cancel()
		if err := provider.Shutdown(limited); err != nil {
			logger.Warn("the last traces could not be exported", "error", err)
		}
	}, nil
}
