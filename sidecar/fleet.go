package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/natsio"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/wire"
)

// joinFleet opens the connection to what filas share, and returns what keeps it; nil if
// this one shares nothing.
func (s *Server) joinFleet(event func(typ, tail string, e wire.Event)) (*fleet.Sync, error) {
	if !s.cfg.Shared.Enabled {
		return nil, nil
	}
	d := &s.doors
	var err error
	if d.shared, err = natsio.ConnectFleet(s.cfg.NATS, d.embedded, s.log); err != nil {
		return nil, err
	}
	bucket, err := fleet.NewJetStream(d.shared, s.log, s.cfg.Shared.Bucket, int(s.cfg.Shared.Replicas))
	if err != nil {
		return nil, err
	}
	degraded := false // until the first session says otherwise there is nothing to tell
	return fleet.New(fleet.Options{
		Log: s.log, Bucket: bucket, Now: s.now, Instance: cmp.Or(s.cfg.Shared.Instance, hostAndPID()),
		Degraded: func(why error) {
			switch {
			case why != nil && !degraded:
				s.log.Warn("shared circuits cannot be reached; this fila goes by what it knows until they can", "bucket", s.cfg.Shared.Bucket, "error", why)
				event(wire.EventSharedDegraded, wire.KeyInBody, wire.Event{Data: map[string]any{"error": why.Error()}})
			case why == nil && degraded:
				s.log.Info("circuits are shared again", "bucket", s.cfg.Shared.Bucket)
				event(wire.EventSharedRecovered, wire.KeyInBody, wire.Event{Data: map[string]any{}})
			}
			degraded = why != nil
		},
	}), nil
}

// sharedTimeout is how long a start waits for the connection to what filas share.
const sharedTimeout = 5 * time.Second

func hostAndPID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// startFleet reads what is shared, before the first message is delivered. Where there is
// no JetStream, or no permission to use it, the start fails; a bucket that is away may
// come.
func (s *Server) startFleet(ctx context.Context) error {
	f := s.rooms.fleet
	if f == nil {
		return nil
	}
	s.metrics.SetShared(func() telemetry.Shared {
		st := f.Stats()
		return telemetry.Shared{
			Degraded: f.Away() != nil, Written: st.Written, Refused: st.Refused, Failed: st.Failed,
			Age: st.Age.Seconds(), Instances: len(f.Peers()),
		}
	})
	waiting, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	if err := natsio.WaitConnected(waiting, s.doors.shared); err != nil && ctx.Err() != nil {
		return err
	}
	if err := f.Start(ctx); err != nil {
		return fmt.Errorf("shared.enabled = true: %w", err)
	}
	s.log.Info("circuits are shared", "bucket", s.cfg.Shared.Bucket, "instance", f.Me(), "filas", len(f.Peers()))
	return nil
}
