package shard

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// judge decides about failed attempts, one after the other, in a goroutine that lives
// while there are some: a slow hook holds up no other queue, and no turn.
type judge struct {
	r *runner

	mu struct {
		sync.Mutex
		waiting []queue.Failure
		running bool
	}
}

// post has failures judged. It is called during a turn.
func (j *judge) post(failures []queue.Failure) {
	if len(failures) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.waiting = append(j.mu.waiting, failures...)
	if !j.mu.running {
		j.mu.running = true
		j.r.stopped.Go(j.run)
	}
}

// take returns what waits. If that is nothing, the goroutine must end.
func (j *judge) take(buf []queue.Failure) []queue.Failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	work := j.mu.waiting
	j.mu.waiting = buf[:0]
	j.mu.running = len(work) > 0
	return work
}

func (j *judge) run() {
	for work := j.take(nil); len(work) > 0; work = j.take(recycle(work)) {
		for i := range work {
			f := &work[i]
			// Once it has ended nobody would carry a verdict out: then the attempt ends
			// at the next start, when the lease runs out.
			if j.r.stopping.Err() != nil || !j.r.mail.post(queue.Input{Kind: queue.Judged, Side: f.Side, Verdict: j.judge(f)}) {
				j.r.shard.replyError(f.Reply, j.r.sides[f.Side].Gone())
			}
		}
	}
}

// judge says what becomes of a failed attempt. This is the order of decision about
// failures; the first that has something to say counts:
//
//  1. the message's TTL is over: dead letter (in the machine, conclude)
//  2. max_deliveries is reached: dead letter (there as well)
//  3. +TERM: dead letter; nobody is asked (onAck of the machine)
//  4. on_failure, asked for every other failure. A retry to which it gives no delay has
//     the nack's, or else goes at once
//  5. the delay of the nack
//  6. the first error rule that fits, with its retry policy or the queue's
//  7. the default of the queue: [rules.Backoff]
//
// The first two have the last word: they hold whatever the verdict is, and ByHook lifts
// the default of max_deliveries. What the rules say about the circuit and the severity
// counts in any case.
func (j *judge) judge(f *queue.Failure) *queue.Verdict {
	q := j.r.sides[f.Side]
	p := q.policy.Load()
	ruled := j.r.shard.Control.Rules().Judge(q.name, p.settings.RetryPolicy, f.Code, f.Error, f.Attempts, rand.Float64)
	q.metrics.Failure(ruled.Severity)
	v := &queue.Verdict{Failure: *f, Outcome: breaker.Failure}
	if ruled.MessageFault {
		v.Outcome = breaker.Neutral
	}
	var hook hooks.FailureDecision
	if g := p.hooks[hooks.OnFailure]; g != nil {
		hook = g.failure(j.input(f))
	}
	switch {
	case hook.Decided:
		v.ByHook = true
		switch {
		case hook.Action == hooks.DeadLetter:
			v.Reason = wire.ReasonOnFailure
		case hook.HasDelay:
			v.Delay = int64(hook.Delay)
		default:
			v.Delay = f.Delay
		}
	case f.HasDelay:
		v.Delay = f.Delay
	default:
		j.report(f, &ruled)
		v.Reason, v.Delay = deadReason(&ruled), ruled.Delay
		if v.Reason == "" && ruled.Policy == "" {
			v.Delay = rules.Backoff(&p.settings, f.Attempts, rand.Float64)
		}
	}
	return v
}

// deadReason says why the rules do not want a message to be retried, or is empty if
// they do.
func deadReason(v *rules.Verdict) string {
	switch {
	case v.Severity == rules.Critical:
		return wire.ReasonCritical
	case !v.Retry:
		return wire.ReasonRetryPolicy
	}
	return ""
}

// failureEvents are about the failures that somebody should look at, by severity.
var failureEvents = map[string]string{rules.Critical: wire.EventFailureCritical, rules.High: wire.EventFailureHigh}

// report publishes such failures when the rules have decided about them.
func (j *judge) report(f *queue.Failure, v *rules.Verdict) {
	typ, told := failureEvents[v.Severity]
	if !told {
		return
	}
	name := j.r.sides[f.Side].name
	j.r.shard.Event(typ, name, wire.Event{Queue: name, Key: f.Key, Data: map[string]any{
		"id": formatID(f.ID), "error": f.Error, "error_code": f.Code, "rule": v.Rule, "attempts": f.Attempts,
	}})
}

// input is what on_failure gets.
func (j *judge) input(f *queue.Failure) *hooks.FailureInput {
	s, q := j.r.shard, j.r.sides[f.Side]
	in := &hooks.FailureInput{ID: formatID(f.ID), Queue: q.name, Attempts: f.Attempts, Error: f.Error, ErrorCode: f.Code, HasDelay: f.HasDelay, RequestedDelay: time.Duration(f.Delay)}
	decode := func(headers []byte) {
		h, err := wire.DecodeHeaders(headers)
		if err != nil {
			s.Log.Error("headers of a message cannot be decoded", "queue", q.name, "id", in.ID, "error", err)
		}
		in.Headers = h
	}
	if f.Fresh != nil {
		decode(f.Fresh.Headers)
		return in
	}
	err := s.Store.Read([]store.Ref{{Queue: q.id, Seq: f.Seq}}, func(_ int, headers, _ []byte) { decode(headers) })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.Log.Error("headers for on_failure cannot be read", "queue", q.name, "id", in.ID, "error", err)
	}
	return in
}
