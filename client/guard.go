package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/filaq/fila/wire"
)

// Guard asks fila before calls to other services, and tells it how they went, so that
// they pass the same limits and circuits as messages do. It is safe for concurrent
// use. Make one with [Client.Guard].
type Guard struct {
	c       *Client
	caller  string
	patient bool
	open    bool
}

// GuardOption changes how a [Guard] works.
type GuardOption func(*Guard)

// GuardCaller names who asks, up to 64 bytes: a permit can be given back by the same
// name only.
func GuardCaller(name string) GuardOption { return func(g *Guard) { g.caller = name } }

// GuardWait has a call that is refused wait and ask again, for as long as its context
// lets it, where fila knows when it makes sense to ask again.
func GuardWait() GuardOption { return func(g *Guard) { g.patient = true } }

// GuardFailOpen has calls made when fila cannot be asked, because nobody listens or
// there is no reply in time: no limit holds then. Without it such calls are not made,
// and the error is that of the request.
func GuardFailOpen() GuardOption { return func(g *Guard) { g.open = true } }

// Guard returns a guard that asks by this client.
func (c *Client) Guard(opts ...GuardOption) *Guard {
	g := &Guard{c: c}
	for _, opt := range opts {
		opt(g)
	}
	return g
}

// GuardCall is a call to be made.
type GuardCall struct {
	// Keys has the destination first: its circuit is asked and hears how the call
	// went. The limits of all of them, up to eight, are asked.
	Keys []string
	Cost float64 // for rates; 0 is 1
	// TTL is how long the call may take, up to an hour; 0 is 30 s. Afterwards its permit
	// ends, and its circuit hears nothing of it, or a failure where the configuration says so.
	TTL time.Duration
	// Attempt is how many calls were made for this work, this one included; 0 is 1.
	// With RetryPolicy it decides about a retry.
	Attempt     int
	RetryPolicy string
}

// ErrRefused is wrapped by every [RefusedError].
var ErrRefused = errors.New("the guard refuses the call")

// RefusedError says that a call may not be made now, and when to ask again.
type RefusedError struct{ GuardAnswer }

// Error says what refuses the call.
func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%v: %s %s", ErrRefused, e.Gate, e.Key)
	if after := e.RetryAfter(); after > 0 {
		text += ", ask again in " + after.String()
	}
	return text
}

// Unwrap returns [ErrRefused].
func (e *RefusedError) Unwrap() error { return ErrRefused }

// RetryAfter is when it makes sense to ask again; 0: nobody knows.
func (e *RefusedError) RetryAfter() time.Duration {
	return time.Duration(e.RetryAfterMs) * time.Millisecond
}

// FailedError is the error of a call that was made, with what fila's rules make of it.
type FailedError struct {
	Err     error // of the call
	Verdict GuardVerdict
}

// Error returns the text of the call's error.
func (e *FailedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the call.
func (e *FailedError) Unwrap() error { return e.Err }

// Permit is a call that may be made.
type Permit struct {
	GuardAnswer
	g    *Guard
	call GuardCall
	ends time.Time // of the permit, or a little earlier
}

// Check asks for a call. A refusal is a [*RefusedError]. A permit has to be given back
// by Done.
func (g *Guard) Check(ctx context.Context, call GuardCall) (*Permit, error) {
	if len(call.Keys) == 0 {
		return nil, badRequest(wire.CodeBadField, errors.New("a call needs at least one key"))
	}
	key, inBody := wire.KeyTail(call.Keys[0])
	ask := wire.GuardCheckRequest{Caller: g.caller, GuardAsk: wire.GuardAsk{
		Key: inBody, With: call.Keys[1:], Cost: call.Cost, TTLMs: (call.TTL + time.Millisecond - 1).Milliseconds(),
	}}
	for {
		p := &Permit{g: g, call: call, ends: time.Now().Add(cmp.Or(call.TTL, wire.DefaultPermitMs*time.Millisecond))}
		if err := g.c.call(ctx, g.c.subjects.Guard(wire.GuardCheck, key), ask, &p.GuardAnswer); err != nil {
			return nil, err
		}
		if p.Allowed {
			return p, nil
		}
		refused := &RefusedError{p.GuardAnswer}
		if !g.patient || refused.RetryAfter() == 0 {
			return nil, refused
		}
		select {
		case <-time.After(refused.RetryAfter()):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", refused, ctx.Err())
		}
	}
}

// Permit returns the permit with this id that was given for the call, possibly to
// another process.
func (g *Guard) Permit(id string, call GuardCall) *Permit {
	return &Permit{g: g, call: call, GuardAnswer: GuardAnswer{Allowed: true, Permit: id}}
}

// Done gives the permit back and tells how the call went; nil is well. Of an error it
// tells the text, the code if the error has a method ErrorCode() string, or "timeout"
// for the end of a deadline and "canceled" for that of a context, and how long the
// destination wants to be left alone if it has a method RetryAfter() time.Duration.
func (p *Permit) Done(ctx context.Context, err error) (GuardVerdict, error) {
	key, inBody := wire.KeyTail(p.call.Keys[0])
	done := wire.GuardDoneRequest{
		Key: inBody, Permit: p.Permit, Caller: p.g.caller, Outcome: wire.GuardOK, Attempt: uint32(max(p.call.Attempt, 1)),
		RetryPolicy: p.call.RetryPolicy,
	}
	if err != nil {
		done.Outcome = wire.GuardError
		done.Error = strings.ToValidUTF8(err.Error(), "\uFFFD")
		done.ErrorCode = errorCode(err)
		var asks interface{ RetryAfter() time.Duration }
		if errors.As(err, &asks) {
			done.RetryAfterMs = max(asks.RetryAfter().Milliseconds(), 0)
		}
	}
	var verdict GuardVerdict
	return verdict, p.g.c.call(ctx, p.g.c.subjects.Guard(wire.GuardDone, key), done, &verdict)
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

// Do makes a call with the keys if it is allowed, and tells how it went. The context
// of the call ends when the permit does. What it returns is nil, a [*RefusedError], a
// [*FailedError] with the error of the call, or why fila could not be asked.
func (g *Guard) Do(ctx context.Context, keys []string, call func(context.Context) error) error {
	return g.DoCall(ctx, GuardCall{Keys: keys}, call)
}

// DoCall is Do for a call with more to say about it.
func (g *Guard) DoCall(ctx context.Context, what GuardCall, call func(context.Context) error) (err error) {
	permit, err := g.Check(ctx, what)
	switch {
	case err != nil && g.open && (errors.Is(err, ErrNoFila) || errors.Is(err, ErrNoReply)):
		return call(ctx)
	case err != nil:
		return err
	}
	finished := false
	defer func() {
		if !finished { // call has panicked, or ended its goroutine
			permit.tell(ctx, errors.New("the call did not return"))
		}
	}()
	limited, cancel := context.WithDeadline(ctx, permit.ends)
	defer cancel()
	err = call(limited)
	finished = true
	verdict := permit.tell(ctx, err)
	if err != nil {
		return &FailedError{err, verdict}
	}
	return nil
}

// tell is Done for a call that has been made, also when its context has ended. If fila
// cannot be told the permit ends by itself.
func (p *Permit) tell(ctx context.Context, err error) GuardVerdict {
	ctx, cancel := p.g.c.withTimeout(context.WithoutCancel(ctx))
	defer cancel()
	verdict, failed := p.Done(ctx, err)
	if failed != nil {
		return GuardVerdict{}
	}
	return verdict
}

// State says how a key stands for the caller of the guard, and takes nothing.
func (g *Guard) State(ctx context.Context, key string) (status GuardStatus, err error) {
	tail, inBody := wire.KeyTail(key)
	err = g.c.call(ctx, g.c.subjects.Guard(wire.GuardState, tail), wire.GuardStateRequest{Key: inBody, Caller: g.caller}, &status)
	return status, err
}

// Judge says what the rules make of a failure of a call, told as in [Permit.Done], and
// counts nothing. The failure is not nil.
func (g *Guard) Judge(ctx context.Context, call GuardCall, failure error) (GuardVerdict, error) {
	tail, inBody := wire.KeyTail(call.Keys[0])
	ask := wire.GuardStateRequest{
		Key: inBody, ErrorCode: errorCode(failure), Error: strings.ToValidUTF8(failure.Error(), "\uFFFD"),
		Attempt: uint32(max(call.Attempt, 1)), RetryPolicy: call.RetryPolicy,
	}
	var status GuardStatus
	if err := g.c.call(ctx, g.c.subjects.Guard(wire.GuardState, tail), ask, &status); err != nil {
		return GuardVerdict{}, err
	}
	if status.Verdict == nil {
		return GuardVerdict{}, errors.New("fila is older and says nothing of errors")
	}
	return *status.Verdict, nil
}
