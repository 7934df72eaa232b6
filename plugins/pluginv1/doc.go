// Package pluginv1 is version 1 of what the relay and its plug-ins say to each
// other: rowrelay_sink_v1.proto, and what is generated from it.
package pluginv1

//go:generate go run -C ../../internal/protogen . ../../plugins/pluginv1 rowrelay_sink_v1.proto
