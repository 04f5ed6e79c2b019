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
	Medium   = "medium" // of failures that no rule matches
	High     = "high"
	Critical = "critical" // never retried
)

// Severities are all severities, the mildest first.
var Severities = []string{Low, Medium, High, Critical}

// Classes of failures. Without a class the error code says whether a failure is an overload
// ([wire.OverloadCode]).
const (
	ClassOverload = "overload" // the destination has too much to do: cuts limits that learn
	ClassOther    = "other"    // it has not
)

// Rules decide about failures. nil Rules decide nothing.
type Rules struct {
	policies map[string]*RetryPolicy // with defaults filled in
	errors   []rule                  // in the order of the file
}

type rule struct {
	ErrorRule                // with the severity filled in
	pattern   *regexp.Regexp // nil: any text
	policy    *RetryPolicy   // nil: the queue's
}

// Verdict is the decision of the rules about a failure.
type Verdict struct {
	Rule        string // that matched, or ""
	Description string // of that rule, for people
	Severity    string // of that rule; "" counts as medium
	Policy      string // the policy that applies, of the rule or of the queue; "": none, and Delay is 0
	// Retry is false when the message goes to the dead letter queue: by a rule,
	// by its severity, by a policy, or because MaxRetries are used up.
	Retry        bool
	Delay        int64 // ns until the retry
	MaxRetries   int64 // of the policy; 0: none of its own
	MessageFault bool  // does not count against the circuit
	Overload     bool  // cuts limits that learn
}

// Judge decides about the failure of attempt number `attempts` (from 1) of a message of
// queue, with error code and text err. policy is the queue's retry_policy, "" for none; an
// unknown one counts as none. rnd returns random numbers in [0,1) for jitter.
func (r *Rules) Judge(queue, policy, code, err string, attempts uint32, rnd func() float64) Verdict {
	v := Verdict{Retry: true, Overload: wire.OverloadCode(code)}
	if r == nil {
		return v
	}
	p := r.policies[policy]
	rule := r.match(queue, code, err)
	if rule != nil {
		v.Rule, v.Description, v.Severity, v.MessageFault = rule.Name, rule.Description, rule.Severity, rule.MessageFault
		v.Overload = !rule.MessageFault && (rule.Class == ClassOverload || rule.Class == "" && v.Overload)
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

// match returns the first rule that matches a failure, or nil.
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

// HasErrorRules reports whether there is any error rule.
func (r *Rules) HasErrorRules() bool { return r != nil && len(r.errors) > 0 }

// HasPolicy reports whether a queue may name the policy. "" means none and is allowed.
func (r *Rules) HasPolicy(name string) bool {
	if name == "" || r == nil {
		return name == ""
	}
	_, ok := r.policies[name]
	return ok
}

// AllowedPolicies returns the policies that may be named, for error texts.
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

// delay returns the delay after attempt number `attempts` in nanoseconds: the initial
// delay times multiplier for every earlier attempt, at most the maximum. Jitter spreads it
// randomly below the maximum, so that delays at the maximum are spread as well.
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

// Backoff returns the default delay of a queue after attempt number `attempts`, in
// nanoseconds. rnd in [0,1) subtracts up to the fraction retry_jitter; a fraction of 1 is
// full jitter, as in Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog,
// 2015.
func Backoff(q *wire.QueueSettings, attempts uint32, rnd func() float64) int64 {
	p := RetryPolicy{InitialDelayMs: q.RetryInitialMs, MaxDelayMs: q.RetryMaxMs, Multiplier: 2}
	d := float64(p.delay(attempts, nil))
	return int64(d - d*q.RetryJitter*rnd())
}
