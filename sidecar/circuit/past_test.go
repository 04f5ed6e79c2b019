package circuit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Past has the failure that opened the circuit, the changes of its state, and the failures of each
// minute, late ones too.
func TestPast(t *testing.T) {
	r := newRig(t)
	last, h := r.reg.Past("stripe")
	require.Nil(t, last)
	require.Nil(t, h, "it is not known")
	c := r.use("stripe")
	last, h = r.reg.Past("stripe")
	require.Nil(t, last)
	require.Equal(t, &api.CircuitHistory{Since: wire.Timestamp(r.now.Load())}, h)
	since := r.now.Load()

	late := r.allow(c)
	for i := range uint32(10) {
		f := gates.FailedCall{ID: [16]byte{15: byte(i)}, Attempt: i, Code: "503", Error: strings.Repeat("é", 400)}
		r.announce(c, c.Failed(r.allow(c), r.now.Load(), f, false))
	}
	opened := r.now.Load()
	r.announce(c, c.Failed(late, r.now.Load(), gates.FailedCall{Error: "of an earlier state"}, false))
	want := &api.CircuitFailure{
		At: wire.Timestamp(opened), ID: "00000000-0000-0000-0000-000000000009", Attempt: 9, ErrorCode: "503", Error: strings.Repeat("é", 256),
	}
	last, _ = r.reg.Past("stripe")
	require.Equal(t, want, last)
	r.pass(5 * time.Minute)
	probed := r.now.Load()
	r.announce(c, c.Failed(r.allow(c), r.now.Load(), gates.FailedCall{Caller: "billing", Attempt: 1}, false))
	last, h = r.reg.Past("stripe")
	require.Equal(t, &api.CircuitFailure{At: wire.Timestamp(probed), Caller: "billing", Attempt: 1}, last)
	minute := func(at int64) string { return wire.Timestamp(at - at%int64(time.Minute)) }
	require.Equal(t, &api.CircuitHistory{
		Since: wire.Timestamp(since),
		Changes: []api.CircuitChange{
			{At: wire.Timestamp(opened), Old: "closed", New: "open", Cause: "failures"},
			{At: wire.Timestamp(probed), Old: "open", New: "half-open", Cause: "time"},
			{At: wire.Timestamp(probed), Old: "half-open", New: "open", Cause: "failures"},
		},
		Failures: []api.CircuitFailures{{Minute: minute(opened), Failures: 11}, {Minute: minute(probed), Failures: 1}},
		Openings: []api.CircuitOpened{{Minute: minute(opened), Openings: 1}, {Minute: minute(probed), Openings: 1}},
	}, h)

	r.pass(58 * time.Minute)
	last, h = r.reg.Past("stripe")
	require.NotNil(t, last)
	require.Len(t, h.Changes, 2, "an hour is over for the others")
	require.Equal(t, []api.CircuitFailures{{Minute: minute(probed), Failures: 1}}, h.Failures)
	r.pass(2 * time.Hour)
	_, h = r.reg.Past("stripe")
	require.Empty(t, h.Changes)
	require.Empty(t, h.Failures)
	require.Equal(t, wire.Timestamp(r.now.Load()-int64(time.Hour)), h.Since)
}

// The failure that comes with a Retry-After is the last one, although it is judged when the circuit is
// open already.
func TestLastFailureWithRetryAfter(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	pass := r.allow(c)
	c.AwaitVerdict(pass, r.now.Load())
	r.retryAfter(c, r.now.Load()+30*second)
	r.announce(c, c.Failed(pass, r.now.Load(), gates.FailedCall{Attempt: 1, Code: "429"}, true))
	last, h := r.reg.Past("stripe")
	require.Equal(t, &api.CircuitFailure{At: wire.Timestamp(r.now.Load()), Attempt: 1, ErrorCode: "429"}, last)
	require.EqualValues(t, 1, h.Failures[0].Failures)
}

// A circuit that changes all the time keeps the newest changes, and a clock that jumps back loses no
// failure.
func TestPastIsBounded(t *testing.T) {
	var p past
	for i := range int64(3 * maxTurns) {
		p.addTurn(turn{at: i, new: breaker.Open})
	}
	require.LessOrEqual(t, len(p.turns), maxTurns)
	require.EqualValues(t, 3*maxTurns-1, p.turns[len(p.turns)-1].at)
	hour := int64(time.Hour)
	p.addTurn(turn{at: 2 * hour})
	require.Len(t, p.turns, 1)

	for i := range int64(100) {
		p.failures.add(2*hour - i*int64(time.Minute))
	}
	require.EqualValues(t, 100, p.failures.n[p.failures.last%pastMinutes])
	p.failures.add(4 * hour)
	sum := uint32(0)
	for _, n := range p.failures.n {
		sum += n
	}
	require.EqualValues(t, 1, sum)
}

// A circuit that flaps for an hour keeps all openings of the hour by minute, and a change of each
// minute; the states of its changes follow each other.
func TestPastOfFlapping(t *testing.T) {
	r := newRig(t)
	c := r.use("stripe")
	r.pass(time.Minute - time.Duration(r.now.Load())%time.Minute)
	states := []breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen}
	for range 60 * 12 { // every 5 s
		for i := range states {
			c.mu.Lock()
			c.remember().addTurn(turn{at: r.now.Load(), old: states[i], new: states[(i+1)%3], cause: "retry_after"})
			c.mu.Unlock()
		}
		r.pass(5 * time.Second)
	}
	_, h := r.reg.Past("stripe")
	require.LessOrEqual(t, len(h.Changes), maxTurns)
	opened, sum := map[string]bool{}, int64(0)
	for i, change := range h.Changes {
		if i > 0 {
			require.Equal(t, h.Changes[i-1].New, change.Old)
		}
		if change.New == "open" {
			opened[change.At[:len("2006-01-02T15:04")]] = true
		}
	}
	require.GreaterOrEqual(t, len(opened), 59)
	for _, o := range h.Openings {
		sum += o.Openings
	}
	require.InDelta(t, 59*12, sum, 12)
	list, _, _ := r.reg.List(api.CircuitListRequest{NotClosed: true, Opened: true, KeyListRequest: api.KeyListRequest{Limit: 10}})
	require.Len(t, list, 1)
	require.Equal(t, "closed", list[0].State)
	require.InDelta(t, 120, list[0].Openings.Count, 12)
	require.Equal(t, "retry_after", list[0].Openings.Cause)
	list, _, _ = r.reg.List(api.CircuitListRequest{NotClosed: true, KeyListRequest: api.KeyListRequest{Limit: 10}})
	require.Empty(t, list)

	r.reg.Drop(c, r.now.Load(), nil)
	require.Nil(t, r.reg.find("stripe"), "nobody uses it")
	_, after := r.reg.Past("stripe")
	require.Equal(t, h, after)
	r.reg.Drop(r.use("stripe"), r.now.Load(), nil)
	_, after = r.reg.Past("stripe")
	require.Equal(t, h, after, "it was used and forgotten again")
	for i := range 2*maxPasts + 1 {
		c := r.use(fmt.Sprint("other-", i))
		c.mu.Lock()
		c.remember().setLast(r.now.Load(), gates.FailedCall{})
		c.mu.Unlock()
		r.reg.Drop(c, r.now.Load(), nil)
	}
	_, after = r.reg.Past("stripe")
	require.Nil(t, after, "others were forgotten since")
}
