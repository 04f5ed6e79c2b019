//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

const (
	registerClients = 3
	registerKeys    = 2
)

// registers are keys of the runtime configuration that clients set, compare and set, and delete at
// the same time. The history of each must be linearizable: it must be possible to put all changes
// and refusals into one order in which each comes between its request and its reply.
type registers struct {
	t  testing.TB
	nc []*nats.Conn

	changing sync.RWMutex // held during a change, and to begin a round

	round int

	mu      sync.Mutex
	history []porcupine.Operation
}

// registerCall is a change. No value is empty.
type registerCall struct {
	key     string
	value   string // "" deletes
	ifValue string // "" does not compare
}

// registerReply is the reply to a change.
type registerReply struct {
	unknown  bool // no reply, or an error that leaves the outcome open
	refused  bool
	previous string // "": it was not set
}

// registerModel is a register as it should be. Its state is the value, "" while it is not set. A
// change without a reply may be done at any later time.
var registerModel = porcupine.Model{
	Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
		byKey := map[string]int{}
		for _, op := range all {
			key := op.Input.(registerCall).key
			if _, ok := byKey[key]; !ok {
				byKey[key], parts = len(parts), append(parts, nil)
			}
			parts[byKey[key]] = append(parts[byKey[key]], op)
		}
		return parts
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		call, reply := input.(registerCall), output.(registerReply)
		fits := call.ifValue == "" || state == call.ifValue
		if call.value == "" {
			fits = state != ""
		}
		if !fits {
			return reply.unknown || reply.refused, state
		}
		return reply.unknown || !reply.refused && reply.previous == state, call.value
	},
}

// startRegisters starts the clients. They end with the load.
func startRegisters(l *load) *registers {
	r := &registers{t: l.t, nc: l.conns}
	for n := range registerClients {
		l.work.Add(1)
		go r.run(l, n)
	}
	return r
}

func (r *registers) run(l *load, client int) {
	defer l.work.Done()
	rng, last := l.random(), map[string]string{}
	for i := 0; !l.draining.Load(); i++ {
		r.changing.RLock()
		call := registerCall{key: fmt.Sprintf("register.%d.%d", r.round, rng.IntN(registerKeys)), value: fmt.Sprintf("%d-%d", client, i)}
		switch rng.IntN(6) {
		case 0:
			call.value = ""
		case 1:
			call.value = fmt.Sprint(rng.IntN(3)) // perhaps the value that it has
		case 2, 3:
			call.ifValue = last[call.key]
		}
		op := porcupine.Operation{ClientId: client, Input: call, Call: time.Now().UnixNano()}
		reply := r.call(r.nc[client%len(r.nc)], call)
		if op.Output, op.Return = reply, time.Now().UnixNano(); reply.unknown {
			op.Return = math.MaxInt64
		} else if last[call.key] = call.value; reply.refused {
			last[call.key] = reply.previous
		}
		r.mu.Lock()
		r.history = append(r.history, op)
		r.mu.Unlock()
		r.changing.RUnlock()
		if !pause(l.ctx, time.Duration(rng.IntN(8))*time.Millisecond) {
			return
		}
	}
}

// call makes a change.
func (r *registers) call(nc *nats.Conn, call registerCall) registerReply {
	subject, body := "fila.admin.config-delete."+call.key, m{}
	if call.value != "" {
		subject, body["value"] = "fila.admin.config-set."+call.key, call.value
	}
	if call.ifValue != "" {
		body["if_value"] = call.ifValue
	}
	data, err := json.Marshal(body)
	require.NoError(r.t, err)
	msg, err := nc.Request(subject, data, time.Second)
	if err != nil {
		return registerReply{unknown: true}
	}
	if e := errorOf(r.t, msg); e != nil {
		refused := e.ErrCode == wire.CodeConfigMismatch || e.ErrCode == wire.CodeConfigKeyNotFound
		return registerReply{unknown: !refused, refused: refused}
	}
	var done struct{ Value, Previous string }
	require.NoError(r.t, json.Unmarshal(msg.Data, &done))
	if call.value == "" {
		done.Previous = done.Value // the reply has the deleted entry
	}
	return registerReply{previous: done.Previous}
}

// check checks the history so far, and goes on with other keys.
func (r *registers) check(when string) {
	r.t.Helper()
	r.changing.Lock()
	history := r.history
	r.history, r.round = nil, r.round+1
	r.changing.Unlock()
	requireLinearizable(r.t, history, when)
	unknown := 0
	for _, op := range history {
		if op.Output.(registerReply).unknown {
			unknown++
		}
	}
	r.t.Logf("%s: %d changes of registers, %d of unknown outcome, in an order that explains all replies", when, len(history), unknown)
}

func requireLinearizable(t testing.TB, history []porcupine.Operation, when string) {
	t.Helper()
	for _, part := range registerModel.Partition(history) {
		if porcupine.CheckOperations(registerModel, part) {
			continue
		}
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
		for _, op := range part {
			t.Logf("%d to %d: %+v: %+v", op.Call, op.Return, op.Input, op.Output)
		}
		require.Fail(t, when+": no order of these changes explains all replies")
	}
}

// TestRegisterModel: the model finds what is wrong, and accepts what is not.
func TestRegisterModel(t *testing.T) {
	op := func(from, to int64, call registerCall, reply registerReply) porcupine.Operation {
		return porcupine.Operation{Input: call, Call: from, Output: reply, Return: to}
	}
	set := func(value string) registerCall { return registerCall{value: value} }
	first := op(0, 1, set("a"), registerReply{})
	for name, tc := range map[string]struct {
		right bool
		then  []porcupine.Operation
	}{
		"one after the other": {true, []porcupine.Operation{op(2, 3, set("b"), registerReply{previous: "a"}), op(4, 5, set(""), registerReply{previous: "b"}), op(6, 7, set(""), registerReply{refused: true})}},
		"a lost change":       {false, []porcupine.Operation{op(2, 3, set("b"), registerReply{previous: "a"}), op(4, 5, set("c"), registerReply{previous: "a"})}},
		"at the same time":    {true, []porcupine.Operation{op(2, 5, set("b"), registerReply{previous: "c"}), op(3, 4, set("c"), registerReply{previous: "a"})}},
		"an old refusal":      {false, []porcupine.Operation{op(2, 3, set("b"), registerReply{previous: "a"}), op(4, 5, registerCall{value: "c", ifValue: "b"}, registerReply{refused: true})}},
		"not compared":        {false, []porcupine.Operation{op(2, 3, registerCall{value: "c", ifValue: "b"}, registerReply{previous: "a"})}},
		"done late":           {true, []porcupine.Operation{op(2, math.MaxInt64, set("b"), registerReply{unknown: true}), op(4, 5, set("c"), registerReply{previous: "a"}), op(6, 7, set("d"), registerReply{previous: "b"})}},
		"done twice":          {false, []porcupine.Operation{op(2, math.MaxInt64, set("b"), registerReply{unknown: true}), op(4, 5, set("c"), registerReply{previous: "b"}), op(6, 7, set("d"), registerReply{previous: "b"})}},
		"never done":          {true, []porcupine.Operation{op(2, math.MaxInt64, set("b"), registerReply{unknown: true}), op(4, 5, set("c"), registerReply{previous: "a"})}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.right, porcupine.CheckOperations(registerModel, append(tc.then, first)))
		})
	}
}
