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

// judge decides about failed attempts, one after the other, in a goroutine that lives
// while there are some: a slow hook holds up no other queue, and no turn.
type judge struct {
	r *runner

	failures relay[queue.Failure]
	reports  *telemetry.Failures
}

// post has failures judged. It is called during a turn.
func (j *judge) post(failures []queue.Failure) {
	if j.failures.post(failures) {
		j.r.stopped.Go(j.run)
	}
}

func (j *judge) run() {
	for work := j.failures.take(nil); len(work) > 0; work = j.failures.take(recycle(work)) {
		for i := range work {
			if f := &work[i]; !j.decide(f) {
				j.r.shard.replyError(f.Reply, j.r.sides[f.Role].Gone())
			}
		}
	}
}

// decide has the machine told what becomes of a failed attempt. Once that has ended nobody
// would carry a verdict out: then it reports false, and the attempt ends at the next start,
// when the lease runs out.
func (j *judge) decide(f *queue.Failure) bool {
	if j.r.stopping.Err() != nil {
		return false
	}
	v := j.judge(f)
	j.r.shard.set.traces.failed(v, j.r.shard.Now())
	return j.r.mail.post(queue.Input{Kind: queue.Judged, Role: f.Role, Verdict: v})
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
// The first two have the last word: they hold whatever the verdict is, and a hook lifts
// the default of max_deliveries. What the rules say about the circuit and the severity
// counts in any case.
func (j *judge) judge(f *queue.Failure) *queue.Verdict {
	q := j.r.sides[f.Role]
	p := q.policy.Load()
	ruled := j.r.shard.Control.Rules().Judge(q.name, p.settings.RetryPolicy, f.Code, f.Error, f.Attempts, rand.Float64)
	q.metrics.Failure(ruled.Severity)
	v := &queue.Verdict{Failure: *f, Outcome: breaker.Failure, Rule: ruled.Rule}
	if ruled.MessageFault {
		v.Outcome = breaker.Neutral
	}
	var hook hooks.FailureDecision
	if g := p.hooks[hooks.OnFailure]; g != nil {
		hook = g.failure(j.input(f))
	}
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

// report reports a failure that rules or the default of the queue decide about.
func (j *judge) report(f *queue.Failure, v *rules.Verdict) {
	j.reports.Report(telemetry.Unlimited(j.r.shard.logAbout(f.ID)), &telemetry.Failure{
		Queue: j.r.sides[f.Role].name, ID: formatID(f.ID), Key: f.Key, Attempts: f.Attempts, Error: f.Error, Code: f.Code,
		Severity: v.Severity, Rule: v.Rule,
	})
}

// input is what on_failure gets.
func (j *judge) input(f *queue.Failure) *hooks.FailureInput {
	s, q := j.r.shard, j.r.sides[f.Role]
	in := &hooks.FailureInput{ID: formatID(f.ID), Queue: q.name, Attempts: f.Attempts, Error: f.Error, ErrorCode: f.Code, HasDelay: f.HasDelay, RequestedDelay: time.Duration(f.Delay)}
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
