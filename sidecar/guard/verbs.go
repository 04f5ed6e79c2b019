package guard

import (
	"encoding/json"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Verbs are the verbs of the guard by name.
func (g *Service) Verbs() map[string]api.GuardVerb {
	return map[string]api.GuardVerb{api.GuardCheck: g.checkVerb, api.GuardDone: g.doneVerb, api.GuardState: g.stateVerb(false)}
}

// SharedVerbs are the verbs of a guard that several filas serve together, by name.
func (g *Service) SharedVerbs() map[string]api.GuardVerb {
	return map[string]api.GuardVerb{api.GuardCheck: g.checkVerb, api.GuardDone: g.sharedDone, api.GuardState: g.stateVerb(true)}
}

func refused(err *wire.Error) api.GuardReply { return api.GuardReply{Err: err} }

func (g *Service) checkVerb(tail string, body []byte, from api.GuardOrigin) api.GuardReply {
	r, err := api.ParseGuardCheck(tail, body)
	if err != nil {
		return refused(err)
	}
	asks, batch := r.Checks, r.Checks != nil
	if !batch {
		asks = []api.GuardAsk{r.GuardAsk}
	}
	if from.Late(g.opt.Now()) {
		return g.refuseLate(asks, batch, &from)
	}
	caller := origin{r.Caller, from.User}
	d, err := g.decide(caller, asks)
	if err != nil {
		return refused(err)
	}
	if d.missing == "" && len(d.onDisk) == 0 {
		return g.finish(d, asks, batch, &from)
	}
	return api.GuardReply{Later: func() api.GuardReply {
		d := d
		if d.missing != "" {
			var err *wire.Error
			if d, err = g.retryWithLeases(d, caller, asks); err != nil {
				return refused(err)
			}
		}
		return g.finish(d, asks, batch, &from)
	}}
}

// finish returns the reply to a check once its permits may be sent. If it fails, the check has
// no effect.
func (g *Service) finish(d *decision, asks []api.GuardAsk, batch bool, from *api.GuardOrigin) api.GuardReply {
	if err := g.awaitDisk(d); err != nil {
		return refused(err)
	}
	if now := g.opt.Now(); len(d.given) > 0 && from.Late(now) {
		g.cancel(d.given, now)
		return g.refuseLate(asks, batch, from)
	}
	return g.reply(d, batch, from)
}

// refuseLate is the reply to a check whose caller may have given up. It gives no permit, and says
// that the caller may ask again.
func (g *Service) refuseLate(asks []api.GuardAsk, batch bool, from *api.GuardOrigin) api.GuardReply {
	d := &decision{began: g.opt.Now(), answers: make([]api.GuardAnswer, len(asks))}
	for i := range asks {
		d.answers[i] = api.GuardAnswer{Gate: api.GateLate, Key: asks[i].Key, RetryAfterMs: lateRetryAfter.Milliseconds()}
	}
	return g.reply(d, batch, from)
}

// reply encodes a decision.
func (g *Service) reply(d *decision, batch bool, from *api.GuardOrigin) (r api.GuardReply) {
	first := &d.answers[0]
	switch {
	case batch:
		r = encode(api.GuardAnswers{Answers: d.answers})
	case first.Allowed:
		r.Body = first.AppendAllowed(nil)
	default:
		r = encode(first)
		r.Headers = first.Headers()
	}
	if limit := g.opt.MaxPayload(); batch && int64(len(r.Body)) > limit {
		r = refused(wire.GuardReplyTooLarge(len(d.answers), len(r.Body), limit))
	}
	if r.Err != nil {
		g.cancel(d.given, g.opt.Now())
		return r
	}
	g.count(d, from.Trace)
	return r
}

func (g *Service) doneVerb(tail string, body []byte, _ api.GuardOrigin) api.GuardReply {
	r, err := api.ParseGuardDone(tail, body)
	if err != nil {
		return refused(err)
	}
	v, err := g.Done(&r)
	if err != nil {
		return refused(err)
	}
	return encode(v)
}

// sharedDone ends a permit of this fila, or forwards the request to the fila that gave it.
func (g *Service) sharedDone(tail string, body []byte, from api.GuardOrigin) api.GuardReply {
	r, err := api.ParseGuardDone(tail, body)
	if err != nil {
		return refused(err)
	}
	issuer, bad := wire.LeaseOf(r.Permit)
	switch {
	case bad != nil:
		return refused(wire.PermitRefused(r.Key))
	case issuer == g.run:
		return g.doneVerb(tail, body, from)
	}
	key := r.Key
	r.Key = wire.ShowKey(key)
	passed := encode(r)
	if passed.Err != nil {
		return passed
	}
	select {
	case g.forwards <- struct{}{}:
	default:
		return refused(wire.LimitReached("calls on their way to the filas that gave their permits", maxForwards, capRetryAfter))
	}
	return api.GuardReply{Later: func() api.GuardReply {
		defer func() { <-g.forwards }()
		reply, err, failed := g.opt.Forward(issuer, passed.Body)
		if failed != nil {
			err = wire.PermitAway(key, capRetryAfter)
		}
		return api.GuardReply{Body: reply, Err: err}
	}}
}

// DoneForwarded ends a permit of this fila on behalf of another fila.
func (g *Service) DoneForwarded(body []byte) ([]byte, *wire.Error) {
	r := g.doneVerb(api.KeyInBody, body, api.GuardOrigin{})
	return r.Body, r.Err
}

// stateVerb describes a key, with shared only what filas share of it, and gives the verdict of the
// rules about an error in the request.
func (g *Service) stateVerb(shared bool) api.GuardVerb {
	return func(tail string, body []byte, from api.GuardOrigin) api.GuardReply {
		r, err := api.ParseGuardState(tail, body)
		if err == nil {
			err = g.knownPolicy(r.RetryPolicy)
		}
		if err != nil {
			return refused(err)
		}
		st := g.state(r.Key, origin{r.Caller, from.User}, shared)
		if failure := r.Failure(); failure != nil {
			verdict, _, _ := g.judge(failure)
			st.Verdict = &verdict
		}
		return encode(st)
	}
}

func encode(reply any) api.GuardReply {
	data, err := json.Marshal(reply)
	if err != nil {
		return refused(wire.Internal(err.Error()))
	}
	return api.GuardReply{Body: data}
}
