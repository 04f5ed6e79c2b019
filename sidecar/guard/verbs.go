package guard

import (
	"encoding/json"

	"github.com/filaq/fila/wire"
)

// Later waits for what a request is answered with, which takes a goroutine of its own.
type Later = func() (reply []byte, headers map[string][]string, err *wire.Error)

// Verb carries out a request with the tail of its subject, and returns the reply with its
// headers. It does not block: where an answer has to be waited for it returns later alone.
type Verb func(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later)

// Verbs are the verbs of the guard by name.
func (g *Guard) Verbs() map[string]Verb {
	return map[string]Verb{wire.GuardCheck: g.checkVerb, wire.GuardDone: g.doneVerb, wire.GuardState: g.stateVerb}
}

// Common are the verbs of a guard that several filas answer together, by name.
func (g *Guard) Common() map[string]Verb {
	return map[string]Verb{wire.GuardCheck: g.checkVerb, wire.GuardDone: g.anyonesDone, wire.GuardState: g.sharedStateVerb}
}

func (g *Guard) checkVerb(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	r, err := wire.ParseGuardCheck(tail, body)
	if err != nil {
		return nil, nil, err, nil
	}
	asks := r.Checks
	if asks == nil {
		asks = []wire.GuardAsk{r.GuardAsk}
	}
	if from.Late(g.opt.Now()) {
		reply, headers, err = g.tellLate(asks, r.Checks != nil, &from)
		return reply, headers, err, nil
	}
	who := asker{r.Caller, from.User}
	d, err := g.decide(who, asks)
	switch {
	case err != nil:
		return nil, nil, err, nil
	case d.lacks != "":
		return nil, nil, nil, func() ([]byte, map[string][]string, *wire.Error) {
			d, err := g.lent(d, who, asks)
			if err != nil {
				return nil, nil, err
			}
			return g.told(d, asks, r.Checks != nil, &from)
		}
	case len(d.onDisk) > 0:
		return nil, nil, nil, func() ([]byte, map[string][]string, *wire.Error) { return g.told(d, asks, r.Checks != nil, &from) }
	}
	reply, headers, err = g.told(d, asks, r.Checks != nil, &from)
	return reply, headers, err, nil
}

// told is the reply to a check, when its permits may be told of. What cannot be told is
// as if nobody had asked.
func (g *Guard) told(d *decision, asks []wire.GuardAsk, batch bool, from *wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error) {
	if err = g.onDisk(d); err != nil {
		return nil, nil, err
	}
	if now := g.opt.Now(); len(d.given) > 0 && from.Late(now) {
		g.cancel(d.given, now)
		return g.tellLate(asks, batch, from)
	}
	return g.tell(d, batch, from)
}

// tellLate is the reply to a check for which nobody may wait any more. It gives no permit:
// the answer says that one may be had by asking again, should somebody hear it.
func (g *Guard) tellLate(asks []wire.GuardAsk, batch bool, from *wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error) {
	d := &decision{began: g.opt.Now(), answers: make([]wire.GuardAnswer, len(asks))}
	for i := range asks {
		d.answers[i] = wire.GuardAnswer{Gate: wire.GateLate, Key: asks[i].Key, RetryAfterMs: lateRetryAfter.Milliseconds()}
	}
	return g.tell(d, batch, from)
}

// tell encodes what was decided.
func (g *Guard) tell(d *decision, batch bool, from *wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error) {
	first := &d.answers[0]
	switch {
	case batch:
		reply, _, err = encode(wire.GuardAnswers{Answers: d.answers}, nil, nil)
	case first.Allowed:
		reply = first.AppendAllowed(nil)
	default:
		reply, headers, err = encode(first, first.Headers(), nil)
	}
	if limit := g.opt.MaxPayload(); batch && int64(len(reply)) > limit {
		err = wire.GuardReplyTooLarge(len(d.answers), len(reply), limit)
	}
	if err != nil {
		g.cancel(d.given, g.opt.Now())
		return nil, nil, err
	}
	g.count(d, from.Trace)
	return reply, headers, nil
}

func (g *Guard) doneVerb(tail string, body []byte, _ wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	r, err := wire.ParseGuardDone(tail, body)
	if err != nil {
		return nil, nil, err, nil
	}
	v, err := g.Done(&r)
	reply, headers, err = encode(v, nil, err)
	return reply, headers, err, nil
}

// anyonesDone takes back a permit of this fila, or tells the one that gave it.
func (g *Guard) anyonesDone(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	r, err := wire.ParseGuardDone(tail, body)
	if err != nil {
		return nil, nil, err, nil
	}
	issuer, bad := wire.LeaseOf(r.Permit)
	switch {
	case bad != nil:
		return nil, nil, wire.PermitRefused(r.Key), nil
	case issuer == g.run:
		return g.doneVerb(tail, body, from)
	}
	key := r.Key
	r.Key = wire.ShowKey(key)
	passed, _, err := encode(r, nil, nil)
	if err != nil {
		return nil, nil, err, nil
	}
	select {
	case g.forwards <- struct{}{}:
	default:
		return nil, nil, wire.LimitReached("calls on their way to the filas that gave their permits", maxForwards, capRetryAfter), nil
	}
	return nil, nil, nil, func() ([]byte, map[string][]string, *wire.Error) {
		defer func() { <-g.forwards }()
		reply, refused, failed := g.opt.Forward(issuer, passed)
		if failed != nil {
			refused = wire.PermitAway(key, capRetryAfter)
		}
		return reply, nil, refused
	}
}

// Forwarded takes back a permit of this fila of which another one was told.
func (g *Guard) Forwarded(body []byte) ([]byte, *wire.Error) {
	reply, _, err, _ := g.doneVerb(wire.KeyInBody, body, wire.GuardOrigin{})
	return reply, err
}

func (g *Guard) sharedStateVerb(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	reply, headers, err = g.stateReply(tail, body, from.User, true)
	return reply, headers, err, nil
}

func (g *Guard) stateVerb(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	reply, headers, err = g.stateReply(tail, body, from.User, false)
	return reply, headers, err, nil
}

// stateReply answers how a key stands, with shared by what filas share, and what the rules
// make of an error.
func (g *Guard) stateReply(tail string, body []byte, user string, shared bool) ([]byte, map[string][]string, *wire.Error) {
	r, err := wire.ParseGuardState(tail, body)
	if err == nil {
		err = g.knownPolicy(r.RetryPolicy)
	}
	if err != nil {
		return nil, nil, err
	}
	st := g.state(r.Key, asker{r.Caller, user}, shared)
	if failure := r.Failure(); failure != nil {
		verdict, _ := g.judge(failure)
		st.Verdict = &verdict
	}
	return encode(st, nil, nil)
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
