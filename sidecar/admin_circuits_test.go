package sidecar

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestCircuitVerbs(t *testing.T) {
	r := newCircuitRig(t)
	r.disk.auto = true
	s := &Server{core: r.core}
	ask := func(do func(string, []byte) (any, *wire.Error), tail, body string) wire.CircuitInfo {
		t.Helper()
		reply, err := do(tail, []byte(body))
		require.Nil(t, err)
		return reply.(wire.CircuitInfo)
	}
	minute := timestamp(r.now.Load() + 60*second)

	i := ask(s.circuitOpen, "stripe", "")
	require.Equal(t, wire.CircuitInfo{
		Key: "stripe", State: "open", OpenUntil: "closed", Cause: "by hand",
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1,
	}, i)
	require.Equal(t, i, ask(s.circuitShow, "stripe", ""))
	require.Len(t, r.disk.stored(), 1, "it is on disk before the reply")
	i = ask(s.circuitOpen, "_", `{"key":"stripe","for_ms":60000}`)
	require.Equal(t, minute, i.OpenUntil)
	r.pass(time.Minute)
	require.Equal(t, "half-open", ask(s.circuitShow, "stripe", "{}").State)
	require.Equal(t, "closed", ask(s.circuitClose, "stripe", "").State)
	require.Empty(t, r.disk.stored())

	ci := r.cs.use("a b")
	r.fail(ci, 10)
	i = ask(s.circuitShow, "_", `{"key":"a b"}`)
	require.Equal(t, "open failures", i.State+" "+i.Cause)
	i = ask(s.circuitClose, "_", `{"key":"a b"}`)
	require.Equal(t, wire.CircuitInfo{
		Key: "a b", State: "closed", ConsecutiveFailures: 9,
		Threshold: 10, CooldownMs: 300_000, HalfOpenMaxCalls: 3, HalfOpenSuccesses: 1,
	}, i)
	require.Zero(t, ask(s.circuitReset, "_", `{"key":"a b"}`).ConsecutiveFailures)
	ci.retryAfter(r.now.Load(), r.now.Load()+second)
	require.Equal(t, "closed", ask(s.circuitReset, "_", `{"key":"a b"}`).State)

	limits := r.cs.mu.defaults
	limits.breaker.Threshold = 7
	r.cs.configure(r.cs.mu.defaults, map[string]circuitSettings{"set": limits})
	for _, do := range []adminVerb{s.circuitShow, s.circuitClose, s.circuitReset} {
		require.Equal(t, 7, ask(do, "set", "").Threshold, "it need not be in use")
	}

	reply, err := s.circuitList("", []byte(`{"limit":1,"offset":1}`))
	require.Nil(t, err)
	list := reply.(wire.CircuitList)
	require.Equal(t, 2, list.Total)
	require.Equal(t, "set", list.Circuits[0].Key)
	reply, err = s.circuitList("", []byte(`{"prefix":"x"}`))
	require.Nil(t, err)
	data, jerr := json.Marshal(reply)
	require.NoError(t, jerr)
	require.JSONEq(t, `{"total":0,"circuits":[]}`, string(data))
}

func TestClosingAPausedCircuitEndsThePause(t *testing.T) {
	for verb, do := range map[string]func(*Server) adminVerb{
		wire.VerbCircuitClose: func(s *Server) adminVerb { return s.circuitClose },
		wire.VerbCircuitReset: func(s *Server) adminVerb { return s.circuitReset },
	} {
		t.Run(verb, func(t *testing.T) {
			r := newGateRig(t)
			r.create("orders")
			r.pause(`{"kind":"circuit","name":"stripe"}`)
			reply, err := do(r.s)("stripe", nil)
			require.Nil(t, err)
			require.Equal(t, "closed", reply.(wire.CircuitInfo).State)
			require.Empty(t, r.pauses())
			r.restart(true, 0)
			_, ok := r.s.core.circuits.info("stripe", r.now.Load())
			require.False(t, ok, "nor does a restart bring it back")
		})
	}
}

func TestCircuitVerbsRefuse(t *testing.T) {
	r := newCircuitRig(t)
	r.disk.auto = true
	s := &Server{core: r.core}
	for _, tc := range []struct {
		do         adminVerb
		tail, body string
		code       int
		text       string
	}{
		{s.circuitShow, "nobody", "", 404, "nobody"},
		{s.circuitClose, "nobody", "", 404, "nobody"},
		{s.circuitReset, "nobody", "", 404, "nobody"},
		{s.circuitShow, "_", "", 400, "key"},
		{s.circuitOpen, "x", `{"for_ms":-1}`, 400, "for_ms"},
		{s.circuitOpen, "x", `{"for":1}`, 400, "for"},
		{s.circuitClose, "x", `{"key":"y"}`, 400, "key"},
		{s.circuitList, "", `{"limit":0}`, 400, "limit"},
	} {
		reply, err := tc.do(tc.tail, []byte(tc.body))
		require.Nil(t, reply)
		require.NotNil(t, err, tc.text)
		require.Equal(t, tc.code, err.Code)
		require.Contains(t, err.Description, tc.text)
	}
	_, err := s.circuitShow("nobody", nil)
	require.Equal(t, wire.CodeCircuitNotFound, err.ErrCode)
	require.Empty(t, r.cs.mu.byKey, "a refused request changes nothing")

	r.disk.mu.err = errors.New("disk on fire")
	_, err = s.circuitOpen("x", nil)
	require.NotNil(t, err)
	require.Equal(t, wire.CodeOutcomeUnknown, err.ErrCode)
}
