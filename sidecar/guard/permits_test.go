package guard

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/sidecar/circuit"
	"github.com/filaq/fila/sidecar/queue/gates"
	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// askAs checks a call of a key by a caller of a NATS user.
func (r *rig) askAs(user, caller, key string, with ...string) (permit string, err *wire.Error) {
	r.t.Helper()
	body, failed := json.Marshal(api.GuardCheckRequest{Caller: caller, GuardAsk: api.GuardAsk{With: with}})
	require.NoError(r.t, failed)
	reply := r.checkVerb(key, body, api.GuardOrigin{User: user})
	require.Nil(r.t, reply.Later)
	if reply.Err != nil {
		return "", reply.Err
	}
	var a api.GuardAnswer
	require.NoError(r.t, json.Unmarshal(reply.Body, &a))
	require.True(r.t, a.Allowed)
	return a.Permit, nil
}

// stateAs returns the state of a key for a caller of a NATS user.
func (r *rig) stateAs(user, caller, key string) (st api.GuardStatus) {
	r.t.Helper()
	body, failed := json.Marshal(api.GuardStateRequest{Caller: caller})
	require.NoError(r.t, failed)
	reply := r.Verbs()[api.GuardState](key, body, api.GuardOrigin{User: user})
	require.Nil(r.t, reply.Err)
	require.NoError(r.t, json.Unmarshal(reply.Body, &st))
	return st
}

// A caller that never sends done takes no more than its cap, with one key or with many. The
// refusal and the state of the key name the cap.
func TestNobodyTakesAllPermits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opt.Caps = Caps{Permits: 10, KeyPermits: 3, CallerPermits: 5}
		refused := func(limit string, most int64, names, user, caller, key string) {
			t.Helper()
			before := len(r.reachedCap)
			_, err := r.askAs(user, caller, key)
			require.NotNil(t, err)
			require.Equal(t, wire.CodeLimitReached, err.ErrCode)
			require.Contains(t, err.Description, names)
			require.Contains(t, err.Description, "limits."+limit)
			require.Equal(t, time.Second, err.RetryAfter)
			require.Equal(t, limit, r.reachedCap[len(r.reachedCap)-1])
			st := r.stateAs(user, caller, key)
			require.Equal(t, api.GuardAnswer{
				Gate: limit, Key: key, RetryAfterMs: 1000, Limit: &api.GuardLimit{Key: key, Gate: limit, Limit: most},
			}, st.Answer)
			require.Len(t, r.reachedCap, before+1, "looking is not counted")
		}
		allowed := func(user, caller, key string) string {
			t.Helper()
			require.True(t, r.stateAs(user, caller, key).Answer.Allowed)
			permit, err := r.askAs(user, caller, key)
			require.Nil(t, err)
			return permit
		}
		for range 3 {
			allowed("", "a", "v")
		}
		refused(capKeyPermits, 3, `key "v"`, "", "a", "v")
		refused(capKeyPermits, 3, `key "v"`, "", "b", "v")
		allowed("", "a", "w")
		permit := allowed("", "a", "x")
		refused(capCallerPermits, 5, `caller "a"`, "", "a", "y")
		allowed("APP/a", "a", "y") // NATS knows that it is another one
		allowed("", "", "y")       // and so does the name of nobody
		_, err := r.Done(&api.GuardDoneRequest{Key: "x", Permit: permit, Caller: "a", Outcome: api.GuardOK, Attempt: 1})
		require.Nil(t, err)
		allowed("", "a", "y")
		for i := range 3 {
			allowed("APP/a", fmt.Sprint("name", i), fmt.Sprint("key", i)) // whatever it calls itself
		}
		require.Equal(t, 10, r.Live())
		refused(capPermits, 10, "permits of the guard", "", "z", "z")
		time.Sleep(api.DefaultPermitMs * time.Millisecond)
		for range 4 {
			allowed("", "", fmt.Sprint("key", rand.IntN(1000)))
		}
		allowed("", "", "k")
		refused(capCallerPermits, 5, "callers without a name", "", "", "l")
		for i := range 5 {
			allowed("APP/a", "", fmt.Sprint(i))
		}
		refused(capCallerPermits, 5, `NATS user "APP/a"`, "APP/a", "", "l")
	})
}

// Permits of the same request count before they are live.
func TestBatchesAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(caps Caps, keys ...string) (asks []api.GuardAsk, r *rig) {
			r = newRig(t)
			r.opt.Caps = caps
			for _, key := range keys {
				asks = append(asks, api.GuardAsk{Key: key, Cost: 1, TTLMs: 1000})
			}
			return asks, r
		}
		for limit, caps := range map[string]Caps{
			capPermits: {Permits: 2}, capKeyPermits: {KeyPermits: 1}, capCallerPermits: {CallerPermits: 2},
		} {
			asks, r := ask(caps, "v", "w", "v")
			_, err := r.Check("me", asks...)
			require.NotNil(t, err, limit)
			require.Contains(t, err.Description, limit)
			require.Zero(t, r.Live())
			_, err = r.Check("me", asks[:2]...)
			require.Nil(t, err, limit)
		}
	})
}

// Caps on throttle keys and circuits are in the state of a new key, not of a known one.
func TestStateOfWhatWouldBeTooMuch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opt.Caps = Caps{ThrottleKeys: 2, Circuits: 2}
		r.allowed("a", "b")
		require.True(t, r.State("b", "me").Answer.Allowed)
		require.Equal(t, capThrottleKeys, r.State("c", "me").Answer.Gate)
		require.Equal(t, capThrottleKeys, r.State("c", "me").Answer.Gate, "looking makes no room")
		r.opt.Caps.ThrottleKeys = 0
		r.allowed("b")
		require.True(t, r.State("a", "me").Answer.Allowed)
		require.Equal(t, capCircuits, r.State("c", "me").Answer.Gate)
		require.Equal(t, capCircuits, r.State("c", "me").Answer.Gate)
	})
}

// Done permits take no place under the caps, however many there are: the oldest are
// forgotten first.
func TestCallsThatAreDoneTakeNoRoom(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.opt.Caps = Caps{Permits: 3, KeyPermits: 3, CallerPermits: 3}
		var permits []string
		for range 100 {
			permits = append(permits, r.allowed("v"))
			r.done("v", permits[len(permits)-1], api.GuardOK)
		}
		require.Len(t, r.mu.permits, 3)
		require.True(t, r.done("v", permits[99], api.GuardOK).Duplicate)
		require.True(t, r.done("v", permits[97], api.GuardOK).Duplicate)
		_, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: permits[96], Caller: "me", Outcome: api.GuardOK, Attempt: 1})
		require.ErrorIs(t, err, wire.PermitNotFound(""))
		time.Sleep(time.Duration(doneLife))
		synctest.Wait()
		require.Empty(t, r.mu.permits)
	})
}

// pages lists permits by pages of a size.
func (r *rig) pages(f api.PermitFilter, size int) (all []api.GuardPermit) {
	for after := ""; ; {
		page := r.Permits(api.GuardPermitsRequest{PermitFilter: f, After: after, Limit: size})
		require.LessOrEqual(r.t, len(page.Permits), size)
		all = append(all, page.Permits...)
		if after = page.Next; after == "" {
			return all
		}
		require.Len(r.t, page.Permits, size)
	}
}

func caller(name string) *string { return &name }

func TestPermitsAreListed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute}})
		empty := r.Permits(api.GuardPermitsRequest{Limit: 10})
		require.Equal(t, api.GuardPermitList{Permits: []api.GuardPermit{}, Keys: []api.GuardHolder{}, Callers: []api.GuardHolder{}}, empty)
		given := time.Now().UnixNano()
		for i := range 7 {
			_, err := r.askAs([]string{"", "APP/bob"}[i%2], []string{"", "cron", "web"}[i%3], fmt.Sprint("key", i%4), "tenant:b", "tenant:a")
			require.Nil(t, err)
		}
		for _, size := range []int{1, 2, 3, 7, 8} {
			require.Len(t, r.pages(api.PermitFilter{}, size), 7)
		}
		for name, tc := range map[string]struct {
			filter api.PermitFilter
			n      int
		}{
			"key": {api.PermitFilter{Key: "key0"}, 2}, "caller": {api.PermitFilter{Caller: caller("cron")}, 2},
			"no caller": {api.PermitFilter{Caller: caller("")}, 3}, "user": {api.PermitFilter{User: "APP/bob"}, 3},
			"all": {api.PermitFilter{Key: "key0", Caller: caller("web"), User: "APP/bob"}, 0}, "both": {api.PermitFilter{Key: "key1", Caller: caller("web"), User: "APP/bob"}, 1},
		} {
			require.Len(t, r.pages(tc.filter, 1), tc.n, name)
			require.Len(t, r.pages(tc.filter, 100), tc.n, name)
		}
		first := r.Permits(api.GuardPermitsRequest{Limit: 2})
		require.Equal(t, 7, first.Total)
		require.Equal(t, api.GuardHolder{Key: "key0", Permits: 2}, first.Keys[0])
		require.Equal(t, []api.GuardHolder{{User: "APP/bob", Permits: 3}, {Permits: 2}, {Caller: "cron", Permits: 1}, {Caller: "web", Permits: 1}}, first.Callers)
		require.Equal(t, api.GuardPermit{
			ID: api.PermitID(r.Issuer(), 1), Key: "key0", With: []string{"tenant:a", "tenant:b"},
			GivenAt: wire.Timestamp(given), ExpiresAt: wire.Timestamp(given + api.DefaultPermitMs*int64(time.Millisecond)),
		}, first.Permits[0])
		second := r.Permits(api.GuardPermitsRequest{Limit: 2, After: first.Next})
		require.Nil(t, second.Keys)

		// A page goes on behind a permit that has ended, or that another fila has given.
		require.Equal(t, int64(1), r.EndPermits(api.GuardEndRequest{IDs: []string{first.Next}}))
		require.Equal(t, second.Permits, r.Permits(api.GuardPermitsRequest{Limit: 2, After: first.Next}).Permits)
		require.Len(t, r.Permits(api.GuardPermitsRequest{Limit: 10, After: api.PermitID(r.Issuer()-1, 99)}).Permits, 6)
		require.Empty(t, r.Permits(api.GuardPermitsRequest{Limit: 10, After: api.PermitID(r.Issuer()+1, 1)}).Permits)
	})
}

// When an operator ends permits, their places are free, the circuit gets no outcome, and a
// later done finds no permit.
func TestPermitsAreEnded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.circuit(circuit.Settings{Breaker: breaker.Config{Threshold: 1, Cooldown: time.Minute, HalfOpenMaxCalls: 1}})
		r.limit("v", throttle.Limits{Concurrency: 2, Limit: 100, Window: int64(time.Hour)})
		end := func(f api.PermitFilter, ids ...string) int64 {
			return r.EndPermits(api.GuardEndRequest{PermitFilter: f, IDs: ids})
		}
		permit := r.allowed("v")
		r.allowed("w")
		id := r.Permits(api.GuardPermitsRequest{Limit: 1}).Permits[0].ID
		for _, f := range []api.PermitFilter{{Key: "x"}, {Caller: caller("other")}, {Caller: caller("")}, {User: "me"}} {
			require.Zero(t, end(f))
			require.Zero(t, end(f, id))
		}
		require.Zero(t, end(api.PermitFilter{}, api.PermitID(r.Issuer()+1, 1), api.PermitID(r.Issuer(), 99)))
		require.Equal(t, int64(1), end(api.PermitFilter{Key: "v"}))
		require.Zero(t, end(api.PermitFilter{}, id), "it is over")
		st := r.State("v", "me")
		require.Equal(t, []any{0, int64(99), int64(2)}, []any{st.Permits, st.Limits[0].Remaining, st.Limits[1].Remaining}, "the call was made: it counts in the window")
		require.Equal(t, "closed", r.circuitState("v"))
		require.Zero(t, r.kept.Load(), "it is not kept over a crash any more")
		_, err := r.Done(&api.GuardDoneRequest{Key: "v", Permit: permit, Caller: "me", Outcome: api.GuardError, Attempt: 1})
		require.ErrorIs(t, err, wire.PermitNotFound(""))
		require.Equal(t, map[string]int64{byOperator: 1}, r.ended)

		// Also the probe of a half-open circuit, of which nobody tells anything.
		r.done("v", r.allowed("v"), api.GuardError)
		time.Sleep(time.Minute)
		require.True(t, r.ask("v").Probe)
		require.True(t, r.Permits(api.GuardPermitsRequest{PermitFilter: api.PermitFilter{Key: "v"}, Limit: 1}).Permits[0].Probe)
		require.Equal(t, "circuit", r.ask("v").Gate)
		require.Equal(t, int64(1), end(api.PermitFilter{Caller: caller("me")}))
		require.True(t, r.ask("v").Probe)

		// One that waits for the disk is not told.
		disk := make(chan *wire.Error)
		r.limit("z", throttle.Limits{Concurrency: 2})
		r.keep = func([]string, int64) func() *wire.Error { return func() *wire.Error { return <-disk } }
		reply := r.checkVerb("z", nil, api.GuardOrigin{})
		answered := make(chan *wire.Error)
		go func() { answered <- reply.Later().Err }()
		require.Equal(t, int64(1), end(api.PermitFilter{Key: "z"}))
		disk <- nil
		require.ErrorIs(t, <-answered, wire.PermitNotFound(""))
	})
}

// Thousands of permits are ended in pieces. Permits given meanwhile stay.
func TestManyPermitsAreEnded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const n = pageLines + endPiece + 1
		for i := range 2 * n {
			r.allowed([]string{"v", "w"}[i%2])
		}
		require.Len(t, r.pages(api.PermitFilter{Key: "v"}, 1000), n)
		given := false
		r.opt.Circuits = meanwhile{r.circuits, func() { // while the first is given back
			if !given {
				given = true
				r.allowed("v")
			}
		}}
		require.Equal(t, int64(n), r.EndPermits(api.GuardEndRequest{PermitFilter: api.PermitFilter{Key: "v"}}))
		require.Equal(t, 1, r.State("v", "me").Permits)
		require.Equal(t, n, r.State("w", "me").Permits)
		require.Len(t, r.pages(api.PermitFilter{}, 1000), n+1)
		require.LessOrEqual(t, len(r.mu.listed.lines), 2*(n+1)+1)
	})
}

// meanwhile are circuits of which nothing is given back before something else is done.
type meanwhile struct {
	*circuit.Registry
	do func()
}

func (m meanwhile) Drop(c gates.Circuit, now int64, pending []gates.Circuit) []gates.Circuit {
	m.do()
	return m.Registry.Drop(c, now, pending)
}

// A givenList has what was added and not removed, in order, and few empty lines.
func TestGivenList(t *testing.T) {
	var l givenList
	live := make(map[uint64]*permit)
	var number uint64
	for range 20_000 {
		switch {
		case rand.IntN(2) == 0 || len(live) == 0:
			number++
			p := &permit{number: number}
			live[number] = p
			l.add(p)
		default:
			for n := range live {
				l.remove(n)
				delete(live, n)
				break
			}
		}
		if rand.IntN(100) == 0 {
			require.LessOrEqual(t, len(l.lines), 2*len(live)+1)
		}
	}
	var listed []uint64
	for _, line := range l.lines {
		if line.permit != nil {
			require.Same(t, live[line.number], line.permit)
			listed = append(listed, line.number)
		}
	}
	require.Len(t, listed, len(live))
	require.True(t, slices.IsSorted(listed))
}
