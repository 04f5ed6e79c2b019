package sidecar

import (
	"errors"
	"math"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/wire"
)

func (s *Server) circuitShow(tail string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseCircuitKey(tail, body)
	if err != nil {
		return nil, err
	}
	return s.circuitReply(req.Key)
}

func (s *Server) circuitList(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseGateList(body)
	if err != nil {
		return nil, err
	}
	list := wire.CircuitList{}
	list.Circuits, list.Total = s.core.circuits.list(req.Prefix, req.Offset, req.Limit, s.core.clock.Now())
	return list, nil
}

// circuitOpen shuts a circuit, also one of which nothing is known yet. When its
// time is over, probes decide.
func (s *Server) circuitOpen(tail string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseCircuitOpen(tail, body)
	if err != nil {
		return nil, err
	}
	now := s.core.clock.Now()
	until := int64(math.MaxInt64)
	if req.ForMs > 0 {
		until = now + req.ForMs*int64(time.Millisecond)
	}
	ci := s.core.circuits.use(req.Key)
	defer s.core.circuits.drop(ci)
	ci.open(now, until, breaker.HalfOpen)
	return s.circuitSaved(ci.info(now), ci.sync())
}

// circuitClose makes a circuit closed now. If its destination still fails, the
// next failure opens it again; circuitReset also forgets those before.
func (s *Server) circuitClose(tail string, body []byte) (any, *wire.Error) {
	return s.circuitEnd(wire.VerbCircuitClose, tail, body, false)
}

func (s *Server) circuitReset(tail string, body []byte) (any, *wire.Error) {
	return s.circuitEnd(wire.VerbCircuitReset, tail, body, true)
}

func (s *Server) circuitEnd(verb, tail string, body []byte, forget bool) (any, *wire.Error) {
	req, err := wire.ParseCircuitKey(tail, body)
	if err != nil {
		return nil, err
	}
	ci := s.core.circuits.lookup(req.Key)
	if ci == nil {
		// One that is only configured is closed and has failed nothing so far.
		return s.circuitReply(req.Key)
	}
	defer s.core.circuits.drop(ci)
	now := s.core.clock.Now()
	ci.close(now, forget)
	info := ci.info(now)
	// A pause would shut it again at the next start.
	_, forgotten := s.endPauses(byOperator, verb, anyPause, pauseID{wire.PauseCircuit, "", req.Key})
	return s.circuitSaved(info, errors.Join(ci.sync(), <-forgotten))
}

// circuitSaved answers a change by hand, when it is on disk.
func (s *Server) circuitSaved(info wire.CircuitInfo, err error) (any, *wire.Error) {
	if err != nil {
		return nil, s.core.commitError(err)
	}
	return info, nil
}

func (s *Server) circuitReply(key string) (any, *wire.Error) {
	info, ok := s.core.circuits.info(key, s.core.clock.Now())
	if !ok {
		return nil, wire.CircuitNotFound(key)
	}
	return info, nil
}
