package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/filaq/fila/wire"
)

// Severities of an error rule, the mildest first.
const (
	severityLow      = "low"
	severityMedium   = "medium"
	severityHigh     = "high"
	severityCritical = "critical" // never retried
)

// Bounds of rules. What a failure costs is at most their product, since RE2
// takes time in proportion to steps and text.
const (
	maxRules        = 1000
	maxPatternBytes = 1 << 10
	maxPatternSteps = 1000    // instructions of the compiled pattern
	maxMatchedBytes = 1 << 10 // of the error text
	maxRetries      = math.MaxInt32
	maxMultiplier   = 1000
)

// rules say what to make of failures that nothing else decides about. They never
// change: a reload makes new ones. The nil rules say nothing.
type rules struct {
	policies map[string]*retryPolicy
	errors   []errorRule // in the order of the file
}

type retryPolicy struct {
	retry      bool
	maxRetries int64   // 0: none of its own
	initial    float64 // ns
	max        float64 // ns, at least initial
	multiplier float64 // from 1
	jitter     float64 // 0 to 1
}

type errorRule struct {
	name, queue, code string
	pattern           *regexp.Regexp // nil: any text
	severity          string
	policy            *retryPolicy // nil: the queue's
	retry             *bool        // nil: as the policy says
	messageFault      bool
}

// verdict is what the rules make of a failure.
type verdict struct {
	rule     string // that matched, or ""
	severity string // of that rule; "" counts as medium
	// retry is false when the message goes to the dead letter queue: by a rule,
	// by its severity, by a policy, or because maxRetries are used up.
	retry        bool
	delay        int64 // ns until the retry
	maxRetries   int64 // of the policy; 0: none of its own
	decided      bool  // a rule or a policy applied; otherwise retry at once
	messageFault bool  // does not count against the circuit
}

// judge says what the rules make of attempt number `attempts` (ended ones, this
// one included, from 1) of a message of queue that failed with code and err.
// policy is the queue's retry_policy, "" for none; one that does not exist is
// none. rnd is uniform in [0,1) and asked for jitter. Nothing is allocated.
func (r *rules) judge(queue, policy, code, err string, attempts uint32, rnd func() float64) verdict {
	v := verdict{retry: true}
	if r == nil {
		return v
	}
	var p *retryPolicy
	rule := r.match(queue, code, err)
	if rule != nil {
		v.rule, v.severity, v.messageFault, v.decided = rule.name, rule.severity, rule.messageFault, true
		p = rule.policy
	}
	if p == nil {
		p = r.policies[policy]
	}
	if p != nil {
		v.decided = true
		v.retry, v.maxRetries = p.retry, p.maxRetries
		v.delay = p.delay(attempts, rnd)
	}
	if rule != nil && rule.retry != nil {
		v.retry = *rule.retry
	}
	if v.severity == severityCritical || v.maxRetries > 0 && int64(attempts) > v.maxRetries {
		v.retry = false
	}
	if !v.retry {
		v.delay = 0
	}
	return v
}

// match returns the first rule that a failure fits, or nil.
func (r *rules) match(queue, code, err string) *errorRule {
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

// hasPolicy reports whether a queue may name the policy.
func (r *rules) hasPolicy(name string) bool {
	if name == "" || r == nil {
		return name == ""
	}
	_, ok := r.policies[name]
	return ok
}

// delay returns how long to wait after the attempt with that number, in
// nanoseconds: the initial delay times multiplier for every earlier attempt, at
// most max. Chance spreads it over all that jitter allows up to max, so that
// delays at the maximum are spread as well.
func (p *retryPolicy) delay(attempts uint32, rnd func() float64) int64 {
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

// compileRules checks the tables and makes rules of them. Every error is one
// line that names the key, the value and what is allowed.
func compileRules(policies []RetryPolicy, errs []ErrorRule) (*rules, error) {
	for _, list := range []struct {
		key string
		n   int
	}{{"retry_policy", len(policies)}, {"error_rule", len(errs)}} {
		if list.n > maxRules {
			return nil, fmt.Errorf("%s: %d tables: allowed are at most %d", list.key, list.n, maxRules)
		}
	}
	r := &rules{policies: make(map[string]*retryPolicy, len(policies))}
	for i, t := range policies {
		if err := checkTableName("retry_policy", i, t.Name, r.policies[t.Name] != nil); err != nil {
			return nil, err
		}
		p, err := t.compile()
		if err != nil {
			return nil, fmt.Errorf("retry_policy[%s].%w", t.Name, err)
		}
		r.policies[t.Name] = p
	}
	for i, t := range errs {
		again := slices.ContainsFunc(r.errors, func(have errorRule) bool { return have.name == t.Name })
		if err := checkTableName("error_rule", i, t.Name, again); err != nil {
			return nil, err
		}
		rule, err := t.compile(r)
		if err != nil {
			return nil, fmt.Errorf("error_rule[%s].%w", t.Name, err)
		}
		r.errors = append(r.errors, rule)
	}
	return r, nil
}

func checkTableName(table string, i int, name string, again bool) error {
	switch {
	case name == "":
		return fmt.Errorf("%s[%d].name is missing: every [[%s]] needs one", table, i, table)
	case wire.CheckPolicyName(name) != nil:
		return fmt.Errorf("%s[%d].name = %q: allowed are 1 to %d bytes of A-Za-z0-9_-", table, i, name, wire.MaxPolicyName)
	case again:
		return fmt.Errorf("%s %q is declared twice: one [[%s]] per name is allowed", table, name, table)
	}
	return nil
}

// compile checks the policy. Its errors begin with the key.
func (t RetryPolicy) compile() (*retryPolicy, error) {
	maxDelay := cmp.Or(t.MaxDelayMs, wire.MaxSettingMs)
	multiplier := cmp.Or(t.Multiplier, 2)
	for _, err := range []error{
		within("max_retries", t.MaxRetries, 0, maxRetries),
		within("max_delay_ms", t.MaxDelayMs, 0, wire.MaxSettingMs),
		within("initial_delay_ms", t.InitialDelayMs, 0, wire.MaxSettingMs),
		between("multiplier", multiplier, 1, maxMultiplier),
		between("jitter", t.Jitter, 0, 1),
	} {
		if err != nil {
			return nil, err
		}
	}
	if t.InitialDelayMs > maxDelay {
		return nil, fmt.Errorf("initial_delay_ms = %d: allowed is at most max_delay_ms, which is %d", t.InitialDelayMs, maxDelay)
	}
	return &retryPolicy{
		retry: t.Retry == nil || *t.Retry, maxRetries: t.MaxRetries,
		initial: float64(t.InitialDelayMs) * 1e6, max: float64(maxDelay) * 1e6,
		multiplier: multiplier, jitter: t.Jitter,
	}, nil
}

// compile checks the rule against the policies of r. Its errors begin with the
// key.
func (t ErrorRule) compile(r *rules) (errorRule, error) {
	rule := errorRule{
		name: t.Name, queue: t.Queue, code: t.Code, severity: cmp.Or(t.Severity, severityMedium),
		policy: r.policies[t.RetryPolicy], retry: t.Retry, messageFault: t.MessageFault,
	}
	switch {
	case t.Queue != "" && (wire.CheckQueueName(t.Queue) != nil || wire.IsDLQ(t.Queue)):
		return rule, fmt.Errorf("queue = %q: allowed is the name of a queue, not of a dead letter queue, or nothing for all", t.Queue)
	case t.Code == "" && t.Pattern == "":
		return rule, fmt.Errorf("code and pattern are both empty: at least one of them is needed")
	case len(t.Code) > wire.MaxErrorCode:
		return rule, fmt.Errorf("code has %d bytes: allowed are at most %d", len(t.Code), wire.MaxErrorCode)
	case !r.hasPolicy(t.RetryPolicy):
		return rule, fmt.Errorf("retry_policy = %q: %s", t.RetryPolicy, r.allowedPolicies())
	case rule.severity == severityCritical && t.Retry != nil && *t.Retry:
		return rule, fmt.Errorf("retry = true: allowed is false, since failures of severity critical are not retried")
	}
	if err := oneOf("severity", rule.severity, severityLow, severityMedium, severityHigh, severityCritical); err != nil {
		return rule, err
	}
	var err error
	rule.pattern, err = compilePattern(t.Pattern)
	return rule, err
}

// allowedPolicies says which policies may be named.
func (r *rules) allowedPolicies() string {
	if len(r.policies) == 0 {
		return "there is no [[retry_policy]]"
	}
	names := slices.Sorted(maps.Keys(r.policies))
	more := ""
	if len(names) > 20 {
		names, more = names[:20], ", ..."
	}
	return "allowed is the name of a [[retry_policy]]: " + strings.Join(names, ", ") + more
}

// compilePattern returns nil for the empty pattern. RE2 has no pattern that
// takes more than linear time; repeat counts may still make one that takes many
// steps for each byte.
func compilePattern(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxPatternBytes {
		return nil, fmt.Errorf("pattern has %d bytes: allowed are at most %d", len(text), maxPatternBytes)
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, patternError(text, err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, patternError(text, err)
	}
	if n := len(program.Inst); n > maxPatternSteps {
		return nil, fmt.Errorf("pattern = %q takes %d steps: allowed are at most %d; a repeat count such as {500} takes one for each", text, n, maxPatternSteps)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil, patternError(text, err)
	}
	return compiled, nil
}

func patternError(text string, err error) error {
	why := ""
	if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
		why = fmt.Sprintf("%s at %q: ", bad.Code, bad.Expr)
	}
	return fmt.Errorf("pattern = %q: %sallowed is a regular expression of RE2", text, why)
}
