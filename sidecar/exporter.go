package sidecar

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/otlp"
	"github.com/filaq/fila/sidecar/telemetry"
)

// startExporter starts the export to an OpenTelemetry collector, if configured.
func (s *Server) startExporter() error {
	c := &s.cfg.OTel
	if c.Endpoint == "" {
		return nil
	}
	headers, err := c.Headers()
	if err != nil {
		return err
	}
	instance := s.shared.Instance // in a cluster, the name of the node
	if instance == "" {
		instance = hostAndPID()
	}
	s.endpoints.exporter, err = otlp.Start(otlp.Options{
		Log: telemetry.LimitLog(s.log, s.now), Endpoint: c.Endpoint, Protocol: c.Protocol, Header: http.Header(headers), CA: c.CA,
		Version: s.version, Instance: instance, Spans: c.Sampling != config.SamplingOff,
		Every: time.Duration(c.MetricsIntervalMs) * time.Millisecond, Gather: s.metrics.Gather, Exported: s.metrics.SetExports(),
	})
	if err != nil {
		return fmt.Errorf("otel: %w", err)
	}
	return nil
}

// lastExport bounds how long a stop waits for the collector. It is longer in tests.
var lastExport = time.Second

// stopExporter exports what is left within lastExport, unless the server was killed.
func (s *Server) stopExporter() {
	if s.endpoints.exporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.killed, lastExport)
	defer cancel()
	s.endpoints.exporter.Stop(ctx)
}
