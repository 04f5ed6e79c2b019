package shard

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/filaq/fila/breaker"
	"github.com/filaq/fila/hooks"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/sidecar/telemetry"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// judge decides about failed attempts one after the other, in a goroutine that runs while
// there are some, so that a slow hook delays neither steps nor other queues.
type judge struct {
	r *runner

	failures relay[queue.Failure]
	reports  *telemetry.Failures
}

// post queues failures. It is called during a step.
func (j *judge) post(failures []queue.Failure) {
	if j.failures.post(failures) {
		j.r.stopped.Go(j.run)
	}
}

func (j *judge) run() {
	for work := j.failures.take(nil); len(work) > 0; work = j.failures.take(recycle(work)) {
		for i := range work {
			if f := &work[i]; !j.decide(f) {
				j.r.shard.refuse(f.Confirm, j.r.sides[f.Role].Gone())
			}
		}
	}
}

// decide posts the verdict about a failed attempt to the machine. It reports false if the
// machine has ended; then the attempt ends when its lease runs out after the next start.
func (j *judge) decide(f *queue.Failure) bool {
	if j.r.stopping.Err() != nil {
		return false
	}
	v := j.judge(f)
	j.r.shard.set.traces.Failed(v, j.r.shard.Now())
	return j.r.mail.post(queue.Input{Kind: queue.Judged, Role: f.Role, Verdict: v})
}

// judge decides about a failed attempt. The first of these that applies wins:
//
//  1. the message's TTL is over: dead letter (in the machine, conclude)
//  2. max_deliveries is reached: dead letter (also in the machine)
//  3. +TERM: dead letter, without a hook or rule (onAck of the machine)
//  4. on_failure, which runs for every other failure; if it retries without a delay, the
//     nack's delay counts, or none
//  5. the delay of the nack
//  6. the first matching error rule, with its retry policy or the queue's
//  7. the default of the queue: [rules.Backoff]
//
// The machine applies the first two to every verdict; a hook lifts the default of
// max_deliveries. The outcome for the circuit and the severity always come from the rules.
func (j *judge) judge(f *queue.Failure) *queue.Verdict {
	q := j.r.sides[f.Role]
	p := q.policy.Load()
	ruled := j.r.shard.Control.Rules().Judge(q.name, p.Settings.RetryPolicy, f.Code, f.Error, f.Attempts, rand.Float64)
	q.metrics.Failure(ruled.Severity)
	v := &queue.Verdict{Failure: *f, Outcome: breaker.Failure, Overload: ruled.Overload, Rule: ruled.Rule}
	if ruled.MessageFault {
		v.Outcome = breaker.Neutral
	}
	hook := p.OnFailure(func() *hooks.FailureInput { return j.input(f) })
	switch {
	case hook.Decided:
		v.DecidedBy = wire.DecidedByHook
		switch {
		case hook.Action == hooks.DeadLetter:
			v.Reason = wire.ReasonOnFailure
		case hook.HasDelay:
			v.Delay = int64(hook.Delay)
		default:
			v.Delay = f.Delay
		}
	case f.HasDelay:
		v.Delay, v.DecidedBy = f.Delay, wire.DecidedByConsumer
	default:
		j.report(f, &ruled)
		v.Reason, v.Delay, v.DecidedBy = deadReason(&ruled), ruled.Delay, wire.DecidedByRule
		switch {
		case ruled.Policy != "" && ruled.Rule == "":
			v.DecidedBy = wire.DecidedByPolicy
		case ruled.Policy == "" && v.Reason == "":
			v.DecidedBy = wire.DecidedByDefault
			v.Delay = rules.Backoff(&p.Settings, f.Attempts, rand.Float64)
		}
	}
	return v
}

// deadReason returns why the rules dead-letter a message, empty if they retry it.
func deadReason(v *rules.Verdict) string {
	switch {
	case v.Severity == rules.Critical:
		return wire.ReasonCritical
	case !v.Retry:
		return wire.ReasonRetryPolicy
	}
	return ""
}

// report logs a failure that no hook and no nack delay has decided about.
func (j *judge) report(f *queue.Failure, v *rules.Verdict) {
	j.reports.Report(telemetry.Unlimited(j.r.shard.logAbout(f.ID)), &telemetry.Failure{
		Queue: j.r.sides[f.Role].name, ID: formatID(f.ID), Key: f.Key, Attempts: f.Attempts, Error: f.Error, Code: f.Code, Route: f.Route,
		Severity: v.Severity, Rule: v.Rule,
	})
}

// input returns the input of on_failure.
func (j *judge) input(f *queue.Failure) *hooks.FailureInput {
	s, q := j.r.shard, j.r.sides[f.Role]
	in := &hooks.FailureInput{ID: formatID(f.ID), Queue: q.name, Attempts: f.Attempts, Error: f.Error, ErrorCode: f.Code, Route: f.Route, HasDelay: f.HasDelay, RequestedDelay: time.Duration(f.Delay)}
	decode := func(headers []byte) {
		h, err := wire.DecodeHeaders(headers)
		if err != nil {
			s.logAbout(f.ID).Error("headers of a message cannot be decoded", "queue", q.name, "id", in.ID, "error", err)
		}
		in.Headers = h
	}
	if f.Fresh != nil {
		decode(f.Fresh.Headers)
		return in
	}
	err := s.store.Read([]store.Ref{{Queue: q.id, Seq: f.Seq}}, func(_ int, headers, _ []byte) { decode(headers) })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.logAbout(f.ID).Error("headers for on_failure cannot be read", "queue", q.name, "id", in.ID, "error", err)
	}
	return in
}
