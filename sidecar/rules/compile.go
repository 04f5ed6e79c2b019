package rules

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/filaq/fila/wire"
)

// RetryPolicy is one [[retry_policy]]: when to retry a failed message.
type RetryPolicy struct {
	Name           string  `koanf:"name" json:"name"`
	Retry          *bool   `koanf:"retry" json:"retry"`                       // false: dead-letter after the first failure; nil is true
	MaxRetries     int64   `koanf:"max_retries" json:"max_retries"`           // 0: as the queue's max_deliveries allows
	InitialDelayMs int64   `koanf:"initial_delay_ms" json:"initial_delay_ms"` // before the first retry; 0: at once
	MaxDelayMs     int64   `koanf:"max_delay_ms" json:"max_delay_ms"`         // that no delay exceeds; 0: a year
	Multiplier     float64 `koanf:"multiplier" json:"multiplier"`             // of each delay to the one before, 1 to 1000; 0 is 2
	Jitter         float64 `koanf:"jitter" json:"jitter"`                     // random fraction of the delay, added or subtracted, 0 to 1
}

// DefaultRetryPolicy is a [[retry_policy]] with only a name.
func DefaultRetryPolicy(name string) RetryPolicy {
	return RetryPolicy{Name: name, InitialDelayMs: 1000, MaxDelayMs: 300_000, Multiplier: 2}
}

// ErrorRule is one [[error_rule]]: it matches failures by error code and text and decides
// about them. The first matching rule counts.
type ErrorRule struct {
	Name         string `koanf:"name" json:"name"`
	Description  string `koanf:"description" json:"description"`     // for people
	Queue        string `koanf:"queue" json:"queue"`                 // only failures in this queue; empty: in any
	Code         string `koanf:"code" json:"code"`                   // the error code, exactly; empty: any
	Pattern      string `koanf:"pattern" json:"pattern"`             // regular expression (RE2) found in the error text; empty: any text
	Severity     string `koanf:"severity" json:"severity"`           // low, medium, high or critical; empty is medium
	RetryPolicy  string `koanf:"retry_policy" json:"retry_policy"`   // of these failures; empty: the queue's
	Retry        *bool  `koanf:"retry" json:"retry"`                 // false: dead-letter; nil: as the policy says
	MessageFault bool   `koanf:"message_fault" json:"message_fault"` // does not count against the circuit, nor as an overload
	Class        string `koanf:"class" json:"class"`                 // overload, other, or empty: an overload if the code is 429, 503 or 529
}

// OrderedRule is an error rule of the runtime configuration. Rules of a lower order are tried first,
// and rules of one order by name.
type OrderedRule struct {
	Order int64 `json:"order"` // 0 to 1000000
	ErrorRule
}

// Bounds implements [wire.Bounded].
func (p RetryPolicy) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "max_retries", Value: p.MaxRetries, Max: maxRetries},
		{Field: "max_delay_ms", Value: p.MaxDelayMs, Max: wire.MaxSettingMs},
		{Field: "initial_delay_ms", Value: p.InitialDelayMs, Max: wire.MaxSettingMs},
	}
}

// Bounds implements [wire.Bounded].
func (t ErrorRule) Bounds() []wire.Bound {
	return []wire.Bound{
		{Field: "severity", Text: t.Severity, OneOf: Severities, Zero: Medium},
		{Field: "class", Text: t.Class, OneOf: []string{ClassOverload, ClassOther}, Zero: "by the code"},
	}
}

// Bounds implements [wire.Bounded].
func (t OrderedRule) Bounds() []wire.Bound {
	return append(t.ErrorRule.Bounds(), wire.Bound{Field: "order", Value: t.Order, Max: maxOrder})
}

// Bounds of rules. The time of a failure is at most proportional to their product,
// since RE2 takes time in proportion to steps and text.
const (
	maxRules        = 1000
	maxPatternBytes = 1 << 10
	maxPatternSteps = 1000    // instructions of the compiled pattern
	maxMatchedBytes = 1 << 10 // of the error text
	maxRetries      = math.MaxInt32
	maxMultiplier   = 1000
	maxOrder        = 1_000_000
)

// Compile checks the tables and compiles them. Every error is one line that names the
// key, the value and what is allowed.
func Compile(policies []RetryPolicy, errs []ErrorRule) (*Rules, error) {
	for _, list := range []struct {
		key string
		n   int
	}{{"retry_policy", len(policies)}, {"error_rule", len(errs)}} {
		if list.n > maxRules {
			return nil, fmt.Errorf("%s: %d tables: allowed are at most %d", list.key, list.n, maxRules)
		}
	}
	r := &Rules{policies: make(map[string]*RetryPolicy, len(policies))}
	for i, t := range policies {
		if err := checkName("retry_policy", i, t.Name, r.policies[t.Name] != nil); err != nil {
			return nil, err
		}
		t.MaxDelayMs, t.Multiplier = cmp.Or(t.MaxDelayMs, wire.MaxSettingMs), cmp.Or(t.Multiplier, 2)
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("retry_policy[%s].%w", t.Name, err)
		}
		r.policies[t.Name] = &t
	}
	for i, t := range errs {
		again := slices.ContainsFunc(r.errors, func(have rule) bool { return have.Name == t.Name })
		if err := checkName("error_rule", i, t.Name, again); err != nil {
			return nil, err
		}
		compiled, err := t.compile(r)
		if err != nil {
			return nil, fmt.Errorf("error_rule[%s].%w", t.Name, err)
		}
		r.errors = append(r.errors, compiled)
	}
	return r, nil
}

func checkName(table string, i int, name string, again bool) error {
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

// check checks a policy whose defaults are filled in. Its errors begin with the key.
func (p *RetryPolicy) check() error {
	for _, b := range p.Bounds() {
		if err := within(b.Field, b.Value, b.Min, b.Max); err != nil {
			return err
		}
	}
	if err := cmp.Or(
		within("multiplier", p.Multiplier, 1, maxMultiplier),
		within("jitter", p.Jitter, 0, 1),
	); err != nil {
		return err
	}
	if p.InitialDelayMs > p.MaxDelayMs {
		return fmt.Errorf("initial_delay_ms = %d: allowed is at most max_delay_ms, which is %d", p.InitialDelayMs, p.MaxDelayMs)
	}
	return nil
}

// within returns an error unless v is from low to high. NaN is an error.
func within[T int64 | float64](key string, v, low, high T) error {
	if v >= low && v <= high {
		return nil
	}
	text := fmt.Sprint(v)
	if f, ok := any(v).(float64); ok {
		text = strconv.FormatFloat(f, 'f', -1, 64)
	}
	return fmt.Errorf("%s = %s: allowed is %v to %v", key, text, low, high)
}

// compile checks the rule against the policies of r. Its errors begin with the
// key.
func (t ErrorRule) compile(r *Rules) (rule, error) {
	compiled := rule{ErrorRule: t, policy: r.policies[t.RetryPolicy]}
	compiled.Severity = cmp.Or(t.Severity, Medium)
	switch {
	case t.Queue != "" && (wire.CheckQueueName(t.Queue) != nil || wire.IsDLQ(t.Queue)):
		return rule{}, fmt.Errorf("queue = %q: allowed is the name of a queue, not of a dead letter queue, or nothing for all", t.Queue)
	case t.Code == "" && t.Pattern == "":
		return rule{}, errors.New("code and pattern are both empty: at least one of them is needed")
	case len(t.Code) > wire.MaxErrorCode:
		return rule{}, fmt.Errorf("code has %d bytes: allowed are at most %d", len(t.Code), wire.MaxErrorCode)
	case !r.HasPolicy(t.RetryPolicy):
		return rule{}, fmt.Errorf("retry_policy = %q: %s", t.RetryPolicy, r.AllowedPolicies())
	case compiled.Severity == Critical && t.Retry != nil && *t.Retry:
		return rule{}, errors.New("retry = true: allowed is false, since failures of severity critical are not retried")
	case t.Class != "" && t.Class != ClassOverload && t.Class != ClassOther:
		return rule{}, fmt.Errorf("class = %q: allowed is %s, %s, or nothing to go by the code", t.Class, ClassOverload, ClassOther)
	case !slices.Contains(Severities, compiled.Severity):
		return rule{}, fmt.Errorf("severity = %q: allowed is %s", t.Severity, strings.Join(Severities, ", "))
	}
	var err error
	compiled.pattern, err = compilePattern(t.Pattern)
	return compiled, err
}

// compilePattern compiles a pattern, and returns nil for the empty one. RE2 takes linear
// time for every pattern, but repeat counts may need many steps for each byte.
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
