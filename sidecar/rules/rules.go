package rules

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
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
	policies map[string]*policy
	errors   []rule // in the order of the file
}

type policy struct {
	retry      bool
	maxRetries int64   // 0: none of its own
	initial    float64 // ns
	max        float64 // ns, at least initial
	multiplier float64 // from 1
	jitter     float64 // 0 to 1
}

type rule struct {
	name, queue, code string
	pattern           *regexp.Regexp // nil: any text
	severity          string
	policy            *policy // nil: the queue's
	retry             *bool   // nil: as the policy says
	messageFault      bool
}

// Verdict is what the rules make of a failure.
type Verdict struct {
	Rule     string // that matched, or ""
	Severity string // of that rule; "" counts as medium
	// Retry is false when the message goes to the dead letter queue: by a rule,
	// by its severity, by a policy, or because MaxRetries are used up.
	Retry        bool
	Delay        int64 // ns until the retry
	MaxRetries   int64 // of the policy; 0: none of its own
	Decided      bool  // a rule or a policy applied; otherwise retry at once
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
		v.Rule, v.Severity, v.MessageFault, v.Decided = rule.name, rule.severity, rule.messageFault, true
		if rule.policy != nil {
			p = rule.policy
		}
	}
	if p != nil {
		v.Decided = true
		v.Retry, v.MaxRetries = p.retry, p.maxRetries
		v.Delay = p.delay(attempts, rnd)
	}
	if rule != nil && rule.retry != nil {
		v.Retry = *rule.retry
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
		if rule.queue != "" && rule.queue != queue || rule.code != "" && rule.code != code {
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
// most max. Chance spreads it over all that jitter allows up to max, so that
// delays at the maximum are spread as well.
func (p *policy) delay(attempts uint32, rnd func() float64) int64 {
	if p.initial == 0 {
		return 0
	}
	// Pow may be +Inf, but not NaN: multiplier is at least 1.
	d := min(p.max, p.initial*math.Pow(p.multiplier, float64(max(attempts, 1)-1)))
	if p.jitter > 0 {
		low, high := d*(1-p.jitter), min(p.max, d*(1+p.jitter))
		d = low + rnd()*(high-low)
	}
	return int64(min(d, p.max))
}
