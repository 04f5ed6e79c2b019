// Package otlp sends telemetry to an OpenTelemetry collector by OTLP over HTTP or gRPC: spans,
// which other packages give to an [Exporter] when they end, and all metrics of the registry. It
// runs only if otel.endpoint is set.
//
// The OpenTelemetry SDK batches spans and drops those that exceed its queue. The transport is
// fila's own, on net/http for both protocols, because the SDK's exporters depend on gRPC even
// for HTTP (docs/adr/0029).
package otlp
