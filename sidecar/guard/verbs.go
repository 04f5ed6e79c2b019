package guard

import (
	"encoding/json"

	"github.com/filaq/fila/wire"
)

// Later waits for a reply. Call it in a goroutine of its own.
type Later = func() (reply []byte, headers map[string][]string, err *wire.Error)

// Verb executes a request and returns the reply with its headers. tail is the last part of its
// subject. It does not block: if the reply takes time, it returns only later.
type Verb func(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later)

// Verbs are the verbs of the guard by name.
func (g *Service) Verbs() map[string]Verb {
	return map[string]Verb{wire.GuardCheck: g.checkVerb, wire.GuardDone: g.doneVerb, wire.GuardState: g.stateVerb}
}

// SharedVerbs are the verbs of a guard that several filas serve together, by name.
func (g *Service) SharedVerbs() map[string]Verb {
	return map[string]Verb{wire.GuardCheck: g.checkVerb, wire.GuardDone: g.sharedDone, wire.GuardState: g.sharedStateVerb}
}

func (g *Service) checkVerb(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	r, err := wire.ParseGuardCheck(tail, body)
	if err != nil {
		return nil, nil, err, nil
	}
	asks := r.Checks
	if asks == nil {
		asks = []wire.GuardAsk{r.GuardAsk}
	}
	if from.Late(g.opt.Now()) {
		reply, headers, err = g.refuseLate(asks, r.Checks != nil, &from)
		return reply, headers, err, nil
	}
	caller := origin{r.Caller, from.User}
	d, err := g.decide(caller, asks)
	switch {
	case err != nil:
		return nil, nil, err, nil
	case d.missing != "":
		return nil, nil, nil, func() ([]byte, map[string][]string, *wire.Error) {
			d, err := g.retryWithLeases(d, caller, asks)
			if err != nil {
				return nil, nil, err
			}
			return g.finish(d, asks, r.Checks != nil, &from)
		}
	case len(d.onDisk) > 0:
		return nil, nil, nil, func() ([]byte, map[string][]string, *wire.Error) { return g.finish(d, asks, r.Checks != nil, &from) }
	}
	reply, headers, err = g.finish(d, asks, r.Checks != nil, &from)
	return reply, headers, err, nil
}

// finish returns the reply to a check once its permits may be sent. If it fails, the check has
// no effect.
func (g *Service) finish(d *decision, asks []wire.GuardAsk, batch bool, from *wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error) {
	if err = g.awaitDisk(d); err != nil {
		return nil, nil, err
	}
	if now := g.opt.Now(); len(d.given) > 0 && from.Late(now) {
		g.cancel(d.given, now)
		return g.refuseLate(asks, batch, from)
	}
	return g.reply(d, batch, from)
}

// refuseLate is the reply to a check whose caller may have given up. It gives no permit, and says
// that the caller may ask again.
func (g *Service) refuseLate(asks []wire.GuardAsk, batch bool, from *wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error) {
	d := &decision{began: g.opt.Now(), answers: make([]wire.GuardAnswer, len(asks))}
	for i := range asks {
		d.answers[i] = wire.GuardAnswer{Gate: wire.GateLate, Key: asks[i].Key, RetryAfterMs: lateRetryAfter.Milliseconds()}
	}
	return g.reply(d, batch, from)
}

// reply encodes a decision.
func (g *Service) reply(d *decision, batch bool, from *wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error) {
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

func (g *Service) doneVerb(tail string, body []byte, _ wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	r, err := wire.ParseGuardDone(tail, body)
	if err != nil {
		return nil, nil, err, nil
	}
	v, err := g.Done(&r)
	reply, headers, err = encode(v, nil, err)
	return reply, headers, err, nil
}

// sharedDone ends a permit of this fila, or forwards the request to the fila that gave it.
func (g *Service) sharedDone(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
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

// DoneForwarded ends a permit of this fila on behalf of another fila.
func (g *Service) DoneForwarded(body []byte) ([]byte, *wire.Error) {
	reply, _, err, _ := g.doneVerb(wire.KeyInBody, body, wire.GuardOrigin{})
	return reply, err
}

func (g *Service) sharedStateVerb(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	reply, headers, err = g.stateReply(tail, body, from.User, true)
	return reply, headers, err, nil
}

func (g *Service) stateVerb(tail string, body []byte, from wire.GuardOrigin) (reply []byte, headers map[string][]string, err *wire.Error, later Later) {
	reply, headers, err = g.stateReply(tail, body, from.User, false)
	return reply, headers, err, nil
}

// stateReply describes a key, with shared only what filas share of it, and gives the verdict of the
// rules about an error in the request.
func (g *Service) stateReply(tail string, body []byte, user string, shared bool) ([]byte, map[string][]string, *wire.Error) {
	r, err := wire.ParseGuardState(tail, body)
	if err == nil {
		err = g.knownPolicy(r.RetryPolicy)
	}
	if err != nil {
		return nil, nil, err
	}
	st := g.state(r.Key, origin{r.Caller, user}, shared)
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
