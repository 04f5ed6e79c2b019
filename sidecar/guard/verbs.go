package guard

import (
	"encoding/json"

	"github.com/filaq/fila/wire"
)

// Verb carries out a request with the tail of its subject, and returns the reply with
// its headers.
type Verb func(tail string, body []byte) (reply []byte, headers map[string][]string, err *wire.Error)

// Verbs are the verbs of the guard by name.
func (g *Guard) Verbs() map[string]Verb {
	return map[string]Verb{wire.GuardCheck: g.checkVerb, wire.GuardDone: g.doneVerb, wire.GuardState: g.stateVerb}
}

func (g *Guard) checkVerb(tail string, body []byte) ([]byte, map[string][]string, *wire.Error) {
	r, err := wire.ParseGuardCheck(tail, body)
	if err != nil {
		return nil, nil, err
	}
	if r.Checks != nil {
		return g.checkAll(&r)
	}
	answers, err := g.Check(r.Caller, r.GuardAsk)
	if err != nil {
		return nil, nil, err
	}
	if answers[0].Allowed {
		return answers[0].AppendAllowed(nil), nil, nil
	}
	return encode(&answers[0], answers[0].Headers(), nil)
}

// checkAll asks for several calls. What cannot be told is as if nobody had asked.
func (g *Guard) checkAll(r *wire.GuardCheckRequest) ([]byte, map[string][]string, *wire.Error) {
	answers, given, err := g.decide(r.Caller, r.Checks)
	reply, headers, err := encode(wire.GuardAnswers{Answers: answers}, nil, err)
	if limit := g.opt.MaxPayload(); int64(len(reply)) > limit {
		g.cancel(given, g.opt.Now())
		return nil, nil, wire.GuardReplyTooLarge(len(r.Checks), len(reply), limit)
	}
	return reply, headers, err
}

func (g *Guard) doneVerb(tail string, body []byte) ([]byte, map[string][]string, *wire.Error) {
	r, err := wire.ParseGuardDone(tail, body)
	if err != nil {
		return nil, nil, err
	}
	v, err := g.Done(&r)
	return encode(v, nil, err)
}

func (g *Guard) stateVerb(tail string, body []byte) ([]byte, map[string][]string, *wire.Error) {
	r, err := wire.ParseGateKey(tail, body)
	if err != nil {
		return nil, nil, err
	}
	return encode(g.State(r.Key), nil, nil)
}

func encode(reply any, headers map[string][]string, err *wire.Error) ([]byte, map[string][]string, *wire.Error) {
	if err != nil {
		return nil, nil, err
	}
	data, failed := json.Marshal(reply)
	if failed != nil {
		return nil, nil, wire.Internal(failed.Error())
	}
	return data, headers, nil
}
