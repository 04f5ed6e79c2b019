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

// startExporter begins to tell a collector of OpenTelemetry what happens, if there is to be
// one.
func (s *Server) startExporter() error {
	c := &s.cfg.OTel
	if c.Endpoint == "" {
		return nil
	}
	headers, err := c.Headers()
	if err != nil {
		return err
	}
	instance := s.shared.Instance // of a cluster, the name of the node
	if instance == "" {
		instance = hostAndPID()
	}
	s.doors.exporter, err = otlp.Start(otlp.Options{
		Log: telemetry.LimitLog(s.log, s.now), Endpoint: c.Endpoint, Protocol: c.Protocol, Header: http.Header(headers), CA: c.CA,
		Version: s.version, Instance: instance, Spans: c.Sampling != config.SamplingOff,
		Every: time.Duration(c.MetricsIntervalMs) * time.Millisecond, Gather: s.metrics.Gather, Exported: s.metrics.SetExports(),
	})
	if err != nil {
		return fmt.Errorf("otel: %w", err)
	}
	return nil
}

// lastExport is how long a stop waits for a collector: what one nearby has not taken by
// then is not worth a longer stop. Tests have it longer.
var lastExport = time.Second

// stopExporter sends what is left, for a moment, unless nothing is to be waited for.
func (s *Server) stopExporter() {
	if s.doors.exporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	defer context.AfterFunc(s.killed, cancel)()
	s.doors.exporter.Stop(ctx)
}
