// Package pluginv1 is version 1 of the protocol between the relay and its plug-ins:
// rowrelay_sink_v1.proto and the code generated from it.
package pluginv1

//go:generate go run -C ../../internal/protogen . ../../plugins/pluginv1 rowrelay_sink_v1.proto
