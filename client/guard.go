package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Guard checks calls to other services with fila and reports their outcomes, so that they
// pass the same limits and circuits as messages. It is safe for concurrent use. Make one with
// [Client.Guard].
type Guard struct {
	c       *Client
	caller  string
	patient bool
	open    bool
}

// GuardOption changes how a [Guard] works.
type GuardOption func(*Guard)

// GuardCaller names the caller, up to 64 bytes. Only the same caller can give a permit back.
func GuardCaller(name string) GuardOption { return func(g *Guard) { g.caller = name } }

// GuardWait makes a refused call wait and check again until its context ends, if fila knows
// when that makes sense.
func GuardWait() GuardOption { return func(g *Guard) { g.patient = true } }

// GuardFailOpen allows calls when fila does not answer the check; then no limit holds.
// Without it such calls fail with the error of the check.
func GuardFailOpen() GuardOption { return func(g *Guard) { g.open = true } }

// Guard returns a guard that uses this client.
func (c *Client) Guard(opts ...GuardOption) *Guard {
	g := &Guard{c: c}
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// GuardCall is a call to be made.
type GuardCall struct {
	// Keys begins with the destination, whose circuit decides and gets the outcome. The
	// limits of all keys, up to eight, must allow the call.
	Keys []string
	// Cost is for rates; 0 is 1. If it is an estimate, [Permit.DoneWith] or [ReportCost] reports the
	// actual cost.
	Cost float64
	// TTL is how long the call may take, up to an hour; 0 is 30 s. Then its permit ends: the
	// circuit gets no outcome, or a failure if the configuration says so.
	TTL time.Duration
	// Attempt is the number of calls for this work, this one included; 0 is 1. Together with
	// RetryPolicy it decides about a retry.
	Attempt     int
	RetryPolicy string
}

// ErrRefused is wrapped by every [RefusedError].
var ErrRefused = errors.New("the guard refuses the call")

// RefusedError says that a call is refused now, and when to check again.
type RefusedError struct{ api.GuardAnswer }

// Error names the gate that refuses the call.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%v: %s %s", ErrRefused, e.Gate, e.Key)
	if after := e.RetryAfter(); after > 0 {
		text += ", ask again in " + after.String()
	}
	return text
}

// Unwrap returns [ErrRefused].
func (e *RefusedError) Unwrap() error { return ErrRefused }

// RetryAfter is when a retry makes sense; 0: unknown.
func (e *RefusedError) RetryAfter() time.Duration {
	return time.Duration(e.RetryAfterMs) * time.Millisecond
}

// FailedError is the error of a call, with the verdict of fila's rules.
type FailedError struct {
	Err     error // of the call
	Verdict api.GuardVerdict
}

// Error returns the text of the call's error.
func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the call.
func (e *FailedError) Unwrap() error { return e.Err }

// Permit is an allowed call.
type Permit struct {
	api.GuardAnswer
	g    *Guard
	call GuardCall
	ends time.Time // of the permit, or a little earlier
}

// Check checks a call. A refusal is a [*RefusedError]. Done must give the permit back.
func (g *Guard) Check(ctx context.Context, call GuardCall) (*Permit, error) {
	if len(call.Keys) == 0 {
		return nil, badRequest(wire.CodeBadField, errors.New("a call needs at least one key"))
	}
	key, inBody := api.KeyTail(call.Keys[0])
	ask := api.GuardCheckRequest{Caller: g.caller, GuardAsk: api.GuardAsk{
		Key: inBody, With: call.Keys[1:], Cost: call.Cost, TTLMs: wholeMs(call.TTL),
	}}
	for {
		p := &Permit{g: g, call: call, ends: time.Now().Add(cmp.Or(call.TTL, api.DefaultPermitMs*time.Millisecond))}
		if err := g.c.call(ctx, g.c.subjects.Guard(api.GuardCheck, key), ask, &p.GuardAnswer); err != nil {
			return nil, err
		}
		if p.Allowed {
			return p, nil
		}
		refused := &RefusedError{p.GuardAnswer}
		if !g.patient || refused.RetryAfter() == 0 {
			return nil, refused
		}
		if !wait(ctx, time.After(refused.RetryAfter())) {
			return nil, fmt.Errorf("%w (%w)", refused, ctx.Err())
		}
	}
}

// Permit returns the permit with this id for the call, possibly of another process.
func (g *Guard) Permit(id string, call GuardCall) *Permit {
	return &Permit{g: g, call: call, GuardAnswer: api.GuardAnswer{Allowed: true, Permit: id}}
}

// Done gives the permit back and reports the outcome of the call; nil is success. Of an error
// it reports the text; the code, if the error has a method ErrorCode() string, or "timeout" and
// "canceled" for errors of a context; and when to retry, if it has a method RetryAfter()
// time.Duration.
func (p *Permit) Done(ctx context.Context, err error) (api.GuardVerdict, error) {
	return p.done(ctx, err, AckOptions{})
}

// DoneCost is Done with the actual cost of the call, 0 to 1,000,000, in the unit of its cost and
// of rates. fila charges rates with it instead of [GuardCall].Cost, also if the call failed.
func (p *Permit) DoneCost(ctx context.Context, err error, cost float64) (api.GuardVerdict, error) {
	return p.DoneWith(ctx, err, AckOptions{Cost: &cost})
}

// DoneWith is Done with the actual cost of the call, as in DoneCost, and with what the destination
// has said about its limit.
func (p *Permit) DoneWith(ctx context.Context, err error, o AckOptions) (api.GuardVerdict, error) {
	if bad := putReported(make(map[string]any), o.Cost, o.Feedback); bad != nil {
		return api.GuardVerdict{}, badRequest(wire.CodeBadField, bad)
	}
	return p.done(ctx, err, o)
}

func (p *Permit) done(ctx context.Context, err error, o AckOptions) (api.GuardVerdict, error) {
	key, inBody := api.KeyTail(p.call.Keys[0])
	done := api.GuardDoneRequest{
		Key: inBody, Permit: p.Permit, Caller: p.g.caller, Outcome: api.GuardOK, Attempt: uint32(max(p.call.Attempt, 1)),
		RetryPolicy: p.call.RetryPolicy, Cost: o.Cost,
	}
	if f := o.Feedback; f != nil {
		done.Remaining = &f.Remaining
		if f.Reset > 0 {
			done.ResetMs = new(wholeMs(f.Reset))
		}
	}
	if err != nil {
		done.Outcome = api.GuardError
		done.Error = strings.ToValidUTF8(err.Error(), "\uFFFD")
		done.ErrorCode = errorCode(err)
		var asks interface{ RetryAfter() time.Duration }
		if errors.As(err, &asks) {
			done.RetryAfterMs = max(asks.RetryAfter().Milliseconds(), 0)
		}
	}
	var verdict api.GuardVerdict
	return verdict, p.g.c.call(ctx, p.g.c.subjects.Guard(api.GuardDone, key), done, &verdict)
}

// reportedKey is the context key of the *reported of a guarded call.
type reportedKey struct{}

// reported is what a guarded call has reported about itself.
type reported struct {
	cost     atomic.Pointer[float64]
	feedback atomic.Pointer[Feedback]
}

func (r *reported) options() AckOptions {
	return AckOptions{Cost: r.cost.Load(), Feedback: r.feedback.Load()}
}

// ReportCost reports the actual cost of a call, as [Permit.DoneCost] does, from inside the call:
// ctx is the context that [Guard.Do] or [Guard.DoCall] gave it. The latest report counts. It does
// nothing with another context, or with a cost out of range.
func ReportCost(ctx context.Context, cost float64) {
	if to, ok := ctx.Value(reportedKey{}).(*reported); ok && checkCost(cost) == nil {
		to.cost.Store(&cost)
	}
}

// ReportFeedback reports what the destination has said about its limit, such as in the headers of
// its reply, from inside the call as ReportCost does. It does nothing with a value out of range.
func ReportFeedback(ctx context.Context, f Feedback) {
	if to, ok := ctx.Value(reportedKey{}).(*reported); ok && putReported(make(map[string]any), nil, &f) == nil {
		to.feedback.Store(&f)
	}
}

func errorCode(err error) string {
	var coded interface{ ErrorCode() string }
	switch {
	case errors.As(err, &coded):
		return coded.ErrorCode()
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return ""
}

// Do makes a call with the keys if it is allowed, and reports the outcome. The context of the
// call ends with the permit. It returns nil, a [*RefusedError], a [*FailedError] with the error
// of the call, or the error of the check.
func (g *Guard) Do(ctx context.Context, keys []string, call func(context.Context) error) error {
	return g.DoCall(ctx, GuardCall{Keys: keys}, call)
}

// DoCall is Do with more about the call.
func (g *Guard) DoCall(ctx context.Context, what GuardCall, call func(context.Context) error) (err error) {
	permit, err := g.Check(ctx, what)
	switch {
	case err != nil && g.open && (errors.Is(err, ErrNoFila) || errors.Is(err, ErrNoReply)):
		return call(ctx)
	case err != nil:
		return err
	}
	finished := false
	var said reported
	defer func() {
		if !finished { // call has panicked, or ended its goroutine
			permit.report(ctx, errors.New("the call did not return"), said.options())
		}
	}()
	limited, cancel := context.WithDeadline(context.WithValue(ctx, reportedKey{}, &said), permit.ends)
	defer cancel()
	err = call(limited)
	finished = true
	verdict := permit.report(ctx, err, said.options())
	if err != nil {
		return &FailedError{err, verdict}
	}
	return nil
}

// report is done even after ctx has ended. If it fails, the permit ends by itself.
func (p *Permit) report(ctx context.Context, err error, o AckOptions) api.GuardVerdict {
	ctx, cancel := p.g.c.withTimeout(context.WithoutCancel(ctx))
	defer cancel()
	verdict, failed := p.done(ctx, err, o)
	if failed != nil {
		return api.GuardVerdict{}
	}
	return verdict
}

// State returns the state of a key for the caller of the guard.
func (g *Guard) State(ctx context.Context, key string) (status api.GuardStatus, err error) {
	tail, inBody := api.KeyTail(key)
	err = g.c.call(ctx, g.c.subjects.Guard(api.GuardState, tail), api.GuardStateRequest{Key: inBody, Caller: g.caller}, &status)
	return status, err
}

// Judge returns the verdict of the rules about a failure, which must not be nil, as [Permit.Done]
// would. The failure does not count.
func (g *Guard) Judge(ctx context.Context, call GuardCall, failure error) (api.GuardVerdict, error) {
	tail, inBody := api.KeyTail(call.Keys[0])
	ask := api.GuardStateRequest{
		Key: inBody, ErrorCode: errorCode(failure), Error: strings.ToValidUTF8(failure.Error(), "\uFFFD"),
		Attempt: uint32(max(call.Attempt, 1)), RetryPolicy: call.RetryPolicy,
	}
	var status api.GuardStatus
	if err := g.c.call(ctx, g.c.subjects.Guard(api.GuardState, tail), ask, &status); err != nil {
		return api.GuardVerdict{}, err
	}
	if status.Verdict == nil {
		return api.GuardVerdict{}, errors.New("fila is older and says nothing of errors")
	}
	return *status.Verdict, nil
}
