package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestCallsOverAKill: after SIGKILL the slot of a guarded call stays taken, for every key that
// limits the number of calls, and for at most one and a half lifetimes of its permit. Keys
// without calls are not blocked.
func TestCallsOverAKill(t *testing.T) {
	t.Parallel()
	p := startFila(t, options{tail: "[[throttle]]\nkey = \"tenant:*\"\nconcurrency = 1\n"})
	c := p.client(t)
	var answer struct {
		Allowed      bool   `json:"allowed"`
		Permit       string `json:"permit"`
		Gate         string `json:"gate"`
		Key          string `json:"key"`
		RetryAfterMs int64  `json:"retry_after_ms"`
	}
	c.call("fila.guard.check.vendor", m{"with": []string{"tenant:acme"}, "ttl_ms": 600_000}, &answer)
	require.True(t, answer.Allowed)
	answer.Allowed = false
	c.call("fila.guard.check.vendor", m{"with": []string{"tenant:short"}, "ttl_ms": 40_000}, &answer)
	require.True(t, answer.Allowed)
	p.Kill9(t)
	p.Start(t)
	c = p.client(t)
	answer.Allowed = false
	c.call("fila.guard.check.other", m{"with": []string{"tenant:short"}}, &answer)
	require.False(t, answer.Allowed)
	require.Equal(t, "paused", answer.Gate)
	require.LessOrEqual(t, answer.RetryAfterMs, int64(60_000))
	c.call("fila.guard.check.other", m{"with": []string{"tenant:acme"}}, &answer)
	require.False(t, answer.Allowed)
	require.Equal(t, "paused", answer.Gate)
	require.Equal(t, "tenant:acme", answer.Key)
	require.Greater(t, answer.RetryAfterMs, int64(500_000))
	require.Less(t, answer.RetryAfterMs, int64(660_001))
	c.call("fila.guard.check.vendor", m{"with": []string{"tenant:globex"}}, &answer)
	require.True(t, answer.Allowed)
}

// TestOneGuardOfTwoFilas: two filas with their own prefixes serve one guard. A client asks
// both, may report a call to either, and it counts once. When one fila is killed, the other
// continues and says which permits are unknown.
func TestOneGuardOfTwoFilas(t *testing.T) {
	t.Parallel()
	ns := natstest.Start(t, natstest.JetStream)
	nc, err := nats.Connect(ns.URL)
	require.NoError(t, err)
	defer nc.Close()
	var filas []*proc
	for i := range 2 {
		filas = append(filas, startFila(t, options{
			natsURL: ns.URL, nats: fmt.Sprintf("subject_prefix = \"acme.f%d\"", i), tail: "[shared]\nenabled = true\nguard_prefix = \"acme\"\n",
		}))
	}
	type reply struct {
		Allowed, Duplicate bool
		Permit             string
		Permits            int
		Error              struct {
			Code int `json:"err_code"`
		}
	}
	ask := func(subject, body string) (r reply) {
		// Without a timeout a fila that has just stood still assumes that its caller waits no more.
		m, err := nc.RequestMsg(&nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{"Fila-Timeout-Ms": {"60000"}}}, patience)
		require.NoError(t, err, subject)
		require.NoError(t, json.Unmarshal(m.Data, &r))
		return r
	}
	live := func(i int) int { return ask(fmt.Sprintf("acme.f%d.guard.state.v", i), "").Permits }
	done := func(permit string) reply {
		return ask("acme.guard.done.v", `{"permit":"`+permit+`","outcome":"ok"}`)
	}
	check := func() (given []string) {
		for len(given) < 50 || live(0) == 0 || live(1) == 0 {
			r := ask("acme.guard.check.v", `{"ttl_ms":600000}`)
			require.True(t, r.Allowed)
			given = append(given, r.Permit)
		}
		return given
	}
	given := check()
	require.Equal(t, len(given), live(0)+live(1))
	for i, permit := range given {
		require.Equal(t, reply{}, done(permit))
		require.Equal(t, len(given)-i-1, live(0)+live(1))
		require.Equal(t, reply{Duplicate: true}, done(permit))
	}
	given = check()
	alive, lost := live(0), live(1)
	require.Equal(t, len(given), alive+lost)
	filas[1].Kill9(t)
	eventually(t, func() bool { // until NATS sends it no more requests
		_, err := nc.Request("acme.f1.guard.state.v", nil, time.Second)
		return errors.Is(err, nats.ErrNoResponders)
	})
	for _, permit := range given {
		r := done(permit)
		if r.Error.Code == 0 {
			require.False(t, r.Duplicate)
			alive--
			continue
		}
		require.Equal(t, 14503, r.Error.Code)
		lost--
	}
	require.Zero(t, alive)
	require.Zero(t, lost)
	require.Equal(t, reply{}, done(ask("acme.guard.check.v", "").Permit))
	var answer reply
	filas[0].okJSON(t, &answer, "guard", "check", "v", "--subject-prefix", "acme")
	require.True(t, answer.Allowed)
	filas[0].okJSON(t, &answer, "guard", "done", "v", answer.Permit, "--subject-prefix", "acme")
	require.False(t, answer.Duplicate)
	require.Zero(t, live(0))
}
