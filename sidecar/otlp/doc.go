// Package otlp tells an OpenTelemetry collector what fila does: spans, which the rooms
// give to an [Exporter] when they are over, and all metrics of the registry, by OTLP over
// HTTP or gRPC. Nothing of it runs unless otel.endpoint is set.
//
// Spans go through the SDK of OpenTelemetry, which gathers them and lets go of those that
// are too many for the collector. The way to the collector is fila's own, on net/http for
// both protocols: the exporters that come with the SDK bring gRPC along, also for HTTP
// (docs/adr/0029).
package otlp
