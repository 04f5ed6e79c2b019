package rules

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/filaq/fila/wire"
)

// Severities of an error rule, the mildest first.
const (
	Low      = "low"
	Medium   = "medium" // of what no rule fits
	High     = "high"
	Critical = "critical" // never retried
)

// Severities lists them, the mildest first.
var Severities = []string{Low, Medium, High, Critical}

// Rules say what to make of failures. The nil Rules say nothing.
type Rules struct {
	policies map[string]*RetryPolicy // their defaults filled in
	errors   []rule                  // in the order of the file
}

type rule struct {
	ErrorRule                // its severity filled in
	pattern   *regexp.Regexp // nil: any text
	policy    *RetryPolicy   // nil: the queue's
}

// Verdict is what the rules make of a failure.
type Verdict struct {
	Rule        string // that matched, or ""
	Description string // of that rule, for people
	Severity    string // of that rule; "" counts as medium
	Policy      string // that applies, of the rule or of the queue; "": none, and Delay is nobody's
	// Retry is false when the message goes to the dead letter queue: by a rule,
	// by its severity, by a policy, or because MaxRetries are used up.
	Retry        bool
	Delay        int64 // ns until the retry
	MaxRetries   int64 // of the policy; 0: none of its own
	MessageFault bool  // does not count against the circuit
}

// Judge says what the rules make of attempt number `attempts` (ended ones, this
// one included, from 1) of a message of queue that failed with code and err.
// policy is the queue's retry_policy, "" for none; one that does not exist is
// none. rnd is uniform in [0,1) and asked for jitter.
func (r *Rules) Judge(queue, policy, code, err string, attempts uint32, rnd func() float64) Verdict {
	v := Verdict{Retry: true}
	if r == nil {
		return v
	}
	p := r.policies[policy]
	rule := r.match(queue, code, err)
	if rule != nil {
		v.Rule, v.Description, v.Severity, v.MessageFault = rule.Name, rule.Description, rule.Severity, rule.MessageFault
		if rule.policy != nil {
			p = rule.policy
		}
	}
	if p != nil {
		v.Policy = p.Name
		v.Retry, v.MaxRetries = p.Retry == nil || *p.Retry, p.MaxRetries
		v.Delay = p.delay(attempts, rnd)
	}
	if rule != nil && rule.Retry != nil {
		v.Retry = *rule.Retry
	}
	if v.Severity == Critical || v.MaxRetries > 0 && int64(attempts) > v.MaxRetries {
		v.Retry = false
	}
	if !v.Retry {
		v.Delay = 0
	}
	return v
}

// match returns the first rule that a failure fits, or nil.
func (r *Rules) match(queue, code, err string) *rule {
	err = err[:min(len(err), maxMatchedBytes)]
	for i := range r.errors {
		rule := &r.errors[i]
		if rule.Queue != "" && rule.Queue != queue || rule.Code != "" && rule.Code != code {
			continue
		}
		if rule.pattern == nil || rule.pattern.MatchString(err) {
			return rule
		}
	}
	return nil
}

// HasErrorRules reports whether any error rule may fit a failure.
func (r *Rules) HasErrorRules() bool { return r != nil && len(r.errors) > 0 }

// HasPolicy reports whether a queue may name the policy; "" is none, which it
// may.
func (r *Rules) HasPolicy(name string) bool {
	if name == "" || r == nil {
		return name == ""
	}
	_, ok := r.policies[name]
	return ok
}

// AllowedPolicies says for error texts which policies may be named.
func (r *Rules) AllowedPolicies() string {
	if r == nil || len(r.policies) == 0 {
		return "there is no [[retry_policy]]"
	}
	names := slices.Sorted(maps.Keys(r.policies))
	more := ""
	if len(names) > 20 {
		names, more = names[:20], ", ..."
	}
	return "allowed is the name of a [[retry_policy]]: " + strings.Join(names, ", ") + more
}

// delay returns how long to wait after the attempt with that number, in
// nanoseconds: the initial delay times multiplier for every earlier attempt, at
// most the maximum. Chance spreads it over all that jitter allows up to there, so
// that delays at the maximum are spread as well.
func (p *RetryPolicy) delay(attempts uint32, rnd func() float64) int64 {
	if p.InitialDelayMs == 0 {
		return 0
	}
	first, most := float64(p.InitialDelayMs)*1e6, float64(p.MaxDelayMs)*1e6
	// Pow may be +Inf, but not NaN: the multiplier is at least 1.
	d := min(most, first*math.Pow(p.Multiplier, float64(max(attempts, 1)-1)))
	if p.Jitter > 0 {
		low, high := d*(1-p.Jitter), min(most, d*(1+p.Jitter))
		d = low + rnd()*(high-low)
	}
	return int64(min(d, most))
}

// Backoff returns how long a queue waits, in nanoseconds, after the attempt with that
// number when nobody else has decided about its failure. Chance, rnd in [0,1), takes
// away up to the fraction that its retry_jitter says: all of it is full jitter, as in
// Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
func Backoff(q *wire.QueueSettings, attempts uint32, rnd func() float64) int64 {
	p := RetryPolicy{InitialDelayMs: q.RetryInitialMs, MaxDelayMs: q.RetryMaxMs, Multiplier: 2}
	d := float64(p.delay(attempts, nil))
	return int64(d - d*q.RetryJitter*rnd())
}
