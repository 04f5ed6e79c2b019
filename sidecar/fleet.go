package sidecar

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/sidecar/fleet"
	"github.com/filaq/fila/sidecar/limit"
	"github.com/filaq/fila/sidecar/natsio"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// joinFleet opens the connection for shared records and returns their Sync, nil if nothing is shared.
func (s *Server) joinFleet(event func(typ, tail string, e wire.Event)) (*fleet.Sync, error) {
	if !s.shared.Enabled {
		return nil, nil
	}
	d := &s.endpoints
	var err error
	if d.shared, err = natsio.ConnectFleet(s.cfg.NATS, d.embedded, s.log); err != nil {
		return nil, err
	}
	bucket, err := fleet.NewJetStream(d.shared, s.log, s.shared.Bucket, int(s.shared.Replicas))
	if err != nil {
		return nil, err
	}
	degraded := false // nothing is reported before the first session
	return fleet.New(fleet.Options{
		Log: s.log, Bucket: bucket, Now: s.now, Instance: cmp.Or(s.shared.Instance, hostAndPID()),
		Prefix: s.subjects.Prefix(), GuardPrefix: s.shared.GuardPrefix,
		Degraded: func(why error) {
			switch {
			case why != nil && !degraded:
				s.log.Warn("the bucket of shared circuits and limits is unreachable; this fila decides alone until it is back", "bucket", s.shared.Bucket, "error", why)
				event(wire.EventSharedDegraded, api.KeyInBody, wire.Event{Data: map[string]any{"error": why.Error()}})
			case why == nil && degraded:
				s.log.Info("circuits and limits are shared again", "bucket", s.shared.Bucket)
				event(wire.EventSharedRecovered, api.KeyInBody, wire.Event{Data: map[string]any{}})
			}
			degraded = why != nil
		},
	}), nil
}

// shareLimits returns the shared limits of throttle keys, nil if there are none.
func (s *Server) shareLimits(event func(typ, tail string, e wire.Event)) *limit.Limits {
	if s.parts.fleet == nil {
		return nil
	}
	return limit.New(limit.Options{
		Log: s.limited, Now: s.now, Fleet: s.parts.fleet, Shares: s.shared.SharesThrottle, Notify: control.Tell,
		Kin:   s.parts.fleet.Kin,
		SetAt: s.throttleSetAt,
		Conflict: func(c limit.Conflict) {
			s.limited.Warn("another fila set limits of a shared throttle key later than this fila; its limits are in force here, too",
				"throttle", c.Key, "fila", c.By, "limits", control.WireLimits(c.InForce).Text(), "own", control.WireLimits(c.Own).Text())
			event(wire.EventSharedConflict, c.Key, wire.Event{Key: c.Key, Data: map[string]any{
				"kind": api.PauseThrottle, "by": c.By, "changed_at": timestampOrNil(c.At), "limits": control.WireLimits(c.InForce).Text(), "own": control.WireLimits(c.Own).Text(),
			}})
		},
	})
}

// reportCircuitConflict returns the function that reports conflicting limits of a shared circuit.
func (s *Server) reportCircuitConflict(event func(typ, tail string, e wire.Event)) func(circuit.Conflict) {
	return func(c circuit.Conflict) {
		limits, own := circuit.LimitsText(c.InForce), circuit.LimitsText(c.Own)
		s.limited.Warn("another fila set limits of a shared circuit later than this fila; its limits are in force here, too",
			"circuit", c.Key, "fila", c.By, "limits", limits, "own", own)
		event(wire.EventSharedConflict, c.Key, wire.Event{Key: c.Key, Data: map[string]any{
			"kind": api.PauseCircuit, "by": c.By, "changed_at": timestampOrNil(c.At), "limits": limits, "own": own,
		}})
	}
}

// throttleSetAt returns when the limits of a throttle key were set, by the fleet's clock. Nodes of a
// cluster share that time and have to agree on it, so none of them converts it.
func (s *Server) throttleSetAt(key string) int64 {
	at := s.parts.control.ThrottleSetAt(key)
	if at != 0 && !s.cfg.Cluster.Enabled {
		at += s.parts.fleet.Offset()
	}
	return at
}

// sharing returns how the limits of a throttle key are shared.
func (s *Server) sharing(key string) *control.Sharing {
	st, ok := s.parts.limits.Status(key)
	if !ok {
		return nil
	}
	shared := api.ThrottleShared{Degraded: st.Away, Alone: st.Alone, Users: st.Users, By: st.By}
	if st.By != "" && st.SetAt > 0 {
		shared.ChangedAt = wire.Timestamp(st.SetAt)
	}
	if !st.Alone {
		shared.Tokens, shared.InWindow = float64(st.Tokens)/throttle.One, st.Slots
	}
	return &control.Sharing{ThrottleShared: shared, InForce: st.InForce}
}

func timestampOrNil(at int64) any {
	if at == 0 {
		return nil
	}
	return wire.Timestamp(at)
}

// releaseLimits releases what this fila holds of shared limits, while the bucket can still be written.
func (s *Server) releaseLimits() {
	if s.parts.limits == nil {
		return
	}
	ctx, cancel := context.WithTimeout(s.killed, releaseTimeout)
	defer cancel()
	s.parts.limits.Release(ctx)
}

// releaseTimeout bounds how long a stop waits for the bucket.
const releaseTimeout = 2 * time.Second

// sharedTimeout is how long a start waits for the connection for shared records.
const sharedTimeout = 5 * time.Second

func hostAndPID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// startFleet reads shared records before the first delivery. It fails without JetStream or without
// the permission for it; a bucket that cannot be reached may come back later.
func (s *Server) startFleet(ctx context.Context) error {
	f := s.parts.fleet
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
	if err := natsio.WaitConnected(waiting, s.endpoints.shared); err != nil && ctx.Err() != nil {
		return err
	}
	if err := f.Start(ctx); err != nil {
		if s.cfg.Cluster.Enabled {
			return fmt.Errorf("cluster.enabled = true: circuits and limits of the nodes: %w", err)
		}
		return fmt.Errorf("shared.enabled = true: %w", err)
	}
	if err := s.checkPrefixes(f.Others()); err != nil {
		return err
	}
	s.log.Info("circuits and limits are shared", "keys", s.shared.Keys, "bucket", s.shared.Bucket, "instance", f.Me(), "filas", len(f.Peers()))
	return nil
}

// checkPrefixes refuses a guard prefix that overlaps with another fila, and a subject prefix that
// overlaps with the guard of others.
func (s *Server) checkPrefixes(others []fleet.Other) error {
	meet := func(prefix, guardPrefix string) bool {
		own, err := wire.NewSubjects(prefix)
		common, bad := wire.NewSubjects(guardPrefix)
		return err == nil && bad == nil && own.Meets(common)
	}
	own, common := s.subjects.Prefix(), s.shared.GuardPrefix
	for _, o := range others {
		switch {
		case meet(o.Prefix, common):
			return fmt.Errorf("shared.guard_prefix = %q: it would use subjects of the fila %s, whose nats.subject_prefix is %q", common, o.Name, o.Prefix)
		case meet(own, o.GuardPrefix):
			return fmt.Errorf("nats.subject_prefix = %q: the fila %s answers the guard of shared.guard_prefix = %q there", own, o.Name, o.GuardPrefix)
		}
	}
	return nil
}

// permits forwards the outcomes of guard calls among filas with a common guard.
func (s *Server) permits() (natsio.Permits, error) {
	prefix := s.shared.GuardPrefix
	if prefix == "" {
		prefix = s.subjects.Prefix() // common to the nodes of a cluster
	}
	common, err := wire.NewSubjects(prefix)
	return natsio.Permits{Log: s.limited, Conn: s.endpoints.shared, Common: common}, err
}

// forward sends the outcome of a call to the fila that issued its permit.
func (s *Server) forward(issuer uint64, body []byte) ([]byte, *wire.Error, error) {
	p, err := s.permits()
	if err != nil {
		return nil, nil, err
	}
	return p.Forward(issuer, body)
}

// joinGuard answers the guard that this fila has in common with others, if any.
func (s *Server) joinGuard() error {
	if s.shared.GuardPrefix == "" && !s.cfg.Cluster.Enabled {
		return nil
	}
	r := &s.parts
	p, err := s.permits()
	if err != nil {
		return err
	}
	if err := p.Serve(r.guard.Issuer(), r.guard.DoneForwarded); err != nil {
		return err
	}
	if s.shared.GuardPrefix == "" {
		return nil
	}
	return r.front.JoinGuard(r.shards, s.version, p.Common, r.guard.SharedVerbs())
}
