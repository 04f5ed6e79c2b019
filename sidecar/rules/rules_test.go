package rules

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/filaq/fila/wire"
)

// middle is chance that always takes the middle, so that jitter changes nothing.
func middle() float64 { return 0.5 }

const ms = int64(1e6)

func testRules(t *testing.T, policies []RetryPolicy, errs []ErrorRule) *Rules {
	t.Helper()
	r, err := Compile(policies, errs)
	require.NoError(t, err)
	return r
}

func TestJudge(t *testing.T) {
	r := testRules(t, []RetryPolicy{
		{Name: "slow", InitialDelayMs: 100, MaxDelayMs: 1000, Multiplier: 2},
		{Name: "three", MaxRetries: 3, InitialDelayMs: 10},
		{Name: "never", Retry: new(false), InitialDelayMs: 10},
		{Name: "at-once", MaxRetries: 1},
	}, []ErrorRule{
		{Name: "timeout", Code: "timeout", Severity: "low", RetryPolicy: "slow"},
		{Name: "mail-only", Queue: "mail", Code: "smtp", Severity: "high"},
		{Name: "both", Code: "http", Pattern: `^5\d\d`, RetryPolicy: "three"},
		{Name: "bad-input", Pattern: `(?i)invalid`, Retry: new(false), MessageFault: true},
		{Name: "insist", Code: "insist", RetryPolicy: "never", Retry: new(true)},
		{Name: "refuse", Code: "refuse", RetryPolicy: "never"},
		{Name: "fire", Code: "fire", Severity: "critical", RetryPolicy: "slow"},
		{Name: "timeout-too", Code: "timeout", Severity: "critical"},
	})
	for name, tc := range map[string]struct {
		queue, policy, code, err string
		attempts                 uint32
		want                     Verdict
	}{
		"nothing applies":            {"q", "", "x", "y", 1, Verdict{Retry: true}},
		"unknown policy":             {"q", "gone", "x", "y", 1, Verdict{Retry: true}},
		"the queue's policy":         {"q", "slow", "", "", 1, Verdict{Policy: "slow", Retry: true, Delay: 100 * ms}},
		"it grows":                   {"q", "slow", "", "", 3, Verdict{Policy: "slow", Retry: true, Delay: 400 * ms}},
		"up to the maximum":          {"q", "slow", "", "", 5, Verdict{Policy: "slow", Retry: true, Delay: 1000 * ms}},
		"for ever":                   {"q", "slow", "", "", math.MaxUint32, Verdict{Policy: "slow", Retry: true, Delay: 1000 * ms}},
		"attempt 0 counts as 1":      {"q", "slow", "", "", 0, Verdict{Policy: "slow", Retry: true, Delay: 100 * ms}},
		"last retry":                 {"q", "three", "", "", 3, Verdict{Policy: "three", Retry: true, Delay: 40 * ms, MaxRetries: 3}},
		"no more retries":            {"q", "three", "", "", 4, Verdict{Policy: "three", MaxRetries: 3}},
		"no delay":                   {"q", "at-once", "", "", 1, Verdict{Policy: "at-once", Retry: true, MaxRetries: 1}},
		"a policy without retries":   {"q", "never", "", "", 1, Verdict{Policy: "never"}},
		"code":                       {"q", "", "timeout", "", 2, Verdict{Policy: "slow", Rule: "timeout", Severity: "low", Retry: true, Delay: 200 * ms}},
		"the rule's policy wins":     {"q", "three", "timeout", "", 1, Verdict{Policy: "slow", Rule: "timeout", Severity: "low", Retry: true, Delay: 100 * ms}},
		"a rule without policy":      {"mail", "three", "smtp", "", 1, Verdict{Policy: "three", Rule: "mail-only", Severity: "high", Retry: true, Delay: 10 * ms, MaxRetries: 3}},
		"of another queue":           {"q", "", "smtp", "", 1, Verdict{Retry: true}},
		"code without the pattern":   {"q", "", "http", "404", 1, Verdict{Retry: true}},
		"pattern without the code":   {"q", "", "", "503", 1, Verdict{Retry: true}},
		"code and pattern":           {"q", "", "http", "503 busy", 1, Verdict{Policy: "three", Rule: "both", Severity: "medium", Retry: true, Delay: 10 * ms, MaxRetries: 3}},
		"the message's fault":        {"q", "slow", "", "INVALID address", 1, Verdict{Policy: "slow", Rule: "bad-input", Severity: "medium", MessageFault: true}},
		"the rule insists":           {"q", "", "insist", "", 1, Verdict{Policy: "never", Rule: "insist", Severity: "medium", Retry: true, Delay: 10 * ms}},
		"the rule's policy says no":  {"q", "slow", "refuse", "", 1, Verdict{Policy: "never", Rule: "refuse", Severity: "medium"}},
		"critical":                   {"q", "", "fire", "", 1, Verdict{Policy: "slow", Rule: "fire", Severity: "critical"}},
		"text beyond what is looked": {"q", "", "", strings.Repeat("x", maxMatchedBytes) + "invalid", 1, Verdict{Retry: true}},
		"text up to there":           {"q", "", "", strings.Repeat("x", maxMatchedBytes-7) + "invalid", 1, Verdict{Rule: "bad-input", Severity: "medium", MessageFault: true}},
		"text that is no UTF-8":      {"q", "", "", "\xff invalid", 1, Verdict{Rule: "bad-input", Severity: "medium", MessageFault: true}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, r.Judge(tc.queue, tc.policy, tc.code, tc.err, tc.attempts, middle))
		})
	}
	require.Equal(t, Verdict{Retry: true}, (*Rules)(nil).Judge("q", "slow", "c", "e", 1, middle), "no rules yet")
	require.True(t, r.HasPolicy("slow"))
	require.True(t, r.HasPolicy(""))
	require.False(t, r.HasPolicy("gone"))
}

// A class decides whether a failure is an overload, then the code; the message's own fault is none.
func TestOverloads(t *testing.T) {
	r := testRules(t, nil, []ErrorRule{
		{Name: "busy", Pattern: "try later", Class: ClassOverload},
		{Name: "quota", Code: "429", Pattern: "monthly quota", Class: ClassOther},
		{Name: "poison", Code: "429", Pattern: "too long", MessageFault: true},
		{Name: "poison-too", Pattern: "invalid", MessageFault: true, Class: ClassOverload},
		{Name: "alert", Code: "503", Severity: "high"},
	})
	for _, tc := range []struct {
		code, err string
		want      bool
	}{
		{"429", "", true},
		{"503", "", true},
		{"529", "", true},
		{"500", "", false},
		{"", "", false},
		{"", "try later", true},
		{"429", "monthly quota", false},
		{"429", "too long", false},
		{"429", "invalid", false},
	} {
		require.Equal(t, tc.want, r.Judge("q", "", tc.code, tc.err, 1, middle).Overload, "%s %s", tc.code, tc.err)
	}
	require.True(t, (*Rules)(nil).Judge("q", "", "429", "", 1, middle).Overload)
}

func TestJudgeJitter(t *testing.T) {
	r := testRules(t, []RetryPolicy{{Name: "p", InitialDelayMs: 100, MaxDelayMs: 110, Jitter: 0.2}}, nil)
	at := func(attempts uint32, rnd float64) int64 {
		return r.Judge("q", "p", "", "", attempts, func() float64 { return rnd }).Delay
	}
	require.EqualValues(t, 80*ms, at(1, 0))
	require.EqualValues(t, 95*ms, at(1, 0.5), "spread over 80 to 110, not cut off at 110")
	require.InDelta(t, 110*ms, at(1, math.Nextafter(1, 0)), float64(ms)/1000)
	require.EqualValues(t, 88*ms, at(9, 0))
	require.EqualValues(t, 99*ms, at(9, 0.5))
}

// TestBackoff: the waits of a queue double from the initial one to the longest, and
// chance takes away up to what its jitter says.
func TestBackoff(t *testing.T) {
	last := math.Nextafter(1, 0)
	for name, tc := range map[string]struct {
		change   func(*wire.QueueSettings)
		attempts uint32
		rnd      float64
		want     int64
	}{
		"the first":          {attempts: 1, want: 1000 * ms},
		"anything from zero": {attempts: 1, rnd: last, want: 0},
		"half of it":         {attempts: 1, rnd: 0.5, want: 500 * ms},
		"it doubles":         {attempts: 4, want: 8000 * ms},
		"up to five minutes": {attempts: 10, want: 300_000 * ms},
		"for ever":           {attempts: math.MaxUint32, rnd: 0.5, want: 150_000 * ms},
		"at once":            {change: func(s *wire.QueueSettings) { s.RetryInitialMs = 0 }, attempts: 7, want: 0},
		"another start":      {change: func(s *wire.QueueSettings) { s.RetryInitialMs = 10 }, attempts: 3, want: 40 * ms},
		"another end":        {change: func(s *wire.QueueSettings) { s.RetryMaxMs = 1500 }, attempts: 3, want: 1500 * ms},
		"less jitter":        {change: func(s *wire.QueueSettings) { s.RetryJitter = 0.2 }, attempts: 1, rnd: last, want: 800 * ms},
		"no jitter":          {change: func(s *wire.QueueSettings) { s.RetryJitter = 0 }, attempts: 2, rnd: last, want: 2000 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			s := wire.DefaultQueueSettings("q")
			if tc.change != nil {
				tc.change(&s)
			}
			require.InDelta(t, tc.want, Backoff(&s, tc.attempts, func() float64 { return tc.rnd }), 1000)
		})
	}
}

func TestCompileMistakes(t *testing.T) {
	p := func(change func(*RetryPolicy)) []RetryPolicy {
		policy := DefaultRetryPolicy("p")
		change(&policy)
		return []RetryPolicy{policy}
	}
	e := func(change func(*ErrorRule)) []ErrorRule {
		rule := ErrorRule{Name: "e", Code: "c"}
		change(&rule)
		return []ErrorRule{rule}
	}
	for name, tc := range map[string]struct {
		policies []RetryPolicy
		errs     []ErrorRule
		want     string
	}{
		"policy without name":     {p(func(p *RetryPolicy) { p.Name = "" }), nil, "retry_policy[0].name is missing: every [[retry_policy]] needs one"},
		"policy name":             {p(func(p *RetryPolicy) { p.Name = "a b" }), nil, `retry_policy[0].name = "a b": allowed are 1 to 64 bytes of A-Za-z0-9_-`},
		"policy twice":            {[]RetryPolicy{{Name: "p"}, {Name: "p"}}, nil, `retry_policy "p" is declared twice: one [[retry_policy]] per name is allowed`},
		"retries":                 {p(func(p *RetryPolicy) { p.MaxRetries = -1 }), nil, "retry_policy[p].max_retries = -1: allowed is 0 to 2147483647"},
		"initial delay":           {p(func(p *RetryPolicy) { p.InitialDelayMs = -1 }), nil, "retry_policy[p].initial_delay_ms = -1: allowed is 0 to"},
		"maximum":                 {p(func(p *RetryPolicy) { p.MaxDelayMs = math.MaxInt64 }), nil, "retry_policy[p].max_delay_ms = 9223372036854775807: allowed is 0 to 31536000000"},
		"initial above maximum":   {p(func(p *RetryPolicy) { p.InitialDelayMs = 300_001 }), nil, "retry_policy[p].initial_delay_ms = 300001: allowed is at most max_delay_ms, which is 300000"},
		"multiplier":              {p(func(p *RetryPolicy) { p.Multiplier = 0.5 }), nil, "retry_policy[p].multiplier = 0.5: allowed is 1 to 1000"},
		"multiplier not a number": {p(func(p *RetryPolicy) { p.Multiplier = math.NaN() }), nil, "retry_policy[p].multiplier = NaN: allowed is 1 to 1000"},
		"multiplier endless":      {p(func(p *RetryPolicy) { p.Multiplier = math.Inf(1) }), nil, "retry_policy[p].multiplier = +Inf: allowed is 1 to 1000"},
		"jitter":                  {p(func(p *RetryPolicy) { p.Jitter = 1.1 }), nil, "retry_policy[p].jitter = 1.1: allowed is 0 to 1"},
		"jitter negative":         {p(func(p *RetryPolicy) { p.Jitter = -0.1 }), nil, "retry_policy[p].jitter = -0.1: allowed is 0 to 1"},
		"too many policies":       {make([]RetryPolicy, maxRules+1), nil, "retry_policy: 1001 tables: allowed are at most 1000"},

		"rule without name": {nil, e(func(e *ErrorRule) { e.Name = "" }), "error_rule[0].name is missing: every [[error_rule]] needs one"},
		"rule twice":        {nil, []ErrorRule{{Name: "e", Code: "c"}, {Name: "e", Code: "d"}}, `error_rule "e" is declared twice: one [[error_rule]] per name is allowed`},
		"rule for nothing":  {nil, e(func(e *ErrorRule) { e.Code = "" }), "error_rule[e].code and pattern are both empty: at least one of them is needed"},
		"queue":             {nil, e(func(e *ErrorRule) { e.Queue = "a b" }), `error_rule[e].queue = "a b": allowed is the name of a queue`},
		"dead letter queue": {nil, e(func(e *ErrorRule) { e.Queue = "a.dlq" }), `error_rule[e].queue = "a.dlq": allowed is the name of a queue, not of a dead letter queue`},
		"severity":          {nil, e(func(e *ErrorRule) { e.Severity = "bad" }), `error_rule[e].severity = "bad": allowed is low, medium, high, critical`},
		"critical retried":  {nil, e(func(e *ErrorRule) { e.Severity, e.Retry = "critical", new(true) }), "error_rule[e].retry = true: allowed is false"},
		"code":              {nil, e(func(e *ErrorRule) { e.Code = strings.Repeat("c", 65) }), "error_rule[e].code has 65 bytes: allowed are at most 64"},
		"no policies":       {nil, e(func(e *ErrorRule) { e.RetryPolicy = "x" }), `error_rule[e].retry_policy = "x": there is no [[retry_policy]]`},
		"unknown policy":    {[]RetryPolicy{{Name: "b"}, {Name: "a"}}, e(func(e *ErrorRule) { e.RetryPolicy = "x" }), `error_rule[e].retry_policy = "x": allowed is the name of a [[retry_policy]]: a, b`},
		"too many rules":    {nil, make([]ErrorRule, maxRules+1), "error_rule: 1001 tables: allowed are at most 1000"},

		"pattern":                   {nil, e(func(e *ErrorRule) { e.Pattern = "a(\nb" }), `error_rule[e].pattern = "a(\nb": missing closing ) at "a(\nb": allowed is a regular expression of RE2`},
		"pattern with backreferece": {nil, e(func(e *ErrorRule) { e.Pattern = `(a)\1` }), `error_rule[e].pattern = "(a)\\1": invalid escape sequence at "\\1": allowed is`},
		"long pattern":              {nil, e(func(e *ErrorRule) { e.Pattern = strings.Repeat("a", 1025) }), "error_rule[e].pattern has 1025 bytes: allowed are at most 1024"},
		"steep pattern":             {nil, e(func(e *ErrorRule) { e.Pattern = `(a{1,30}){1,30}` }), "steps: allowed are at most 1000; a repeat count"},
		"pattern not UTF-8":         {nil, e(func(e *ErrorRule) { e.Pattern = "\xff" }), `error_rule[e].pattern = "\xff": invalid UTF-8 at "\xff": allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compile(tc.policies, tc.errs)
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "\n")
			require.Nil(t, r)
		})
	}
}

// The largest pattern that is allowed, on the largest text, is what a failure
// may cost: it must be a pattern that people write.
func TestPatternsThatPeopleWrite(t *testing.T) {
	for _, pattern := range []string{
		`(?i)timeout|timed out|deadline exceeded|connection (reset|refused)|EOF`,
		`^(4\d\d|5\d\d) .{0,200}$`, `\p{L}+@\p{L}+`, strings.Repeat("a", 900),
	} {
		_, err := compilePattern(pattern)
		require.NoError(t, err, pattern)
	}
}

// Delays lie between 0 and the maximum and within the jitter, whatever the
// numbers are.
func TestDelayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := RetryPolicy{
			Name:       "p",
			MaxDelayMs: rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, wire.MaxSettingMs)).Draw(t, "max"),
			Multiplier: rapid.OneOf(rapid.Float64Range(1, 3), rapid.Float64Range(1, maxMultiplier)).Draw(t, "multiplier"),
			Jitter:     rapid.OneOf(rapid.Just(0.0), rapid.Just(1.0), rapid.Float64Range(0, 1)).Draw(t, "jitter"),
		}
		most := policy.MaxDelayMs
		if most == 0 {
			most = wire.MaxSettingMs
		}
		policy.InitialDelayMs = rapid.Int64Range(0, most).Draw(t, "initial")
		attempts := rapid.OneOf(rapid.Uint32Range(0, 40), rapid.Uint32()).Draw(t, "attempts")
		rnd := rapid.OneOf(rapid.Just(0.0), rapid.Just(math.Nextafter(1, 0)), rapid.Float64Range(0, math.Nextafter(1, 0))).Draw(t, "rnd")
		r, err := Compile([]RetryPolicy{policy}, nil)
		require.NoError(t, err)

		got := r.Judge("q", "p", "", "", attempts, func() float64 { return rnd }).Delay
		require.GreaterOrEqual(t, got, int64(0))
		require.LessOrEqual(t, got, most*ms)
		// The same without logarithms: multiply until the maximum is reached.
		want, limit := float64(policy.InitialDelayMs*ms), float64(most*ms)
		for n := uint32(1); n < attempts && want < limit && want > 0 && policy.Multiplier > 1.0001; n++ {
			want = min(want*policy.Multiplier, limit)
		}
		if policy.Multiplier <= 1.0001 && attempts > 1 {
			return // too many steps to take them all
		}
		slack := 1 + want*1e-9
		require.GreaterOrEqual(t, float64(got), want*(1-policy.Jitter)-slack)
		require.LessOrEqual(t, float64(got), want*(1+policy.Jitter)+slack)
		if policy.Jitter == 0 {
			require.InDelta(t, want, got, slack)
		}
		if attempts < math.MaxUint32 && policy.Jitter == 0 {
			next := r.Judge("q", "p", "", "", attempts+1, middle).Delay
			require.GreaterOrEqual(t, next, got, "delays never get shorter")
		}
	})
}

// The verdict comes from the first matching rule.
func TestFirstRuleWins(t *testing.T) {
	words := []string{"", "a", "b", "ab"}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom(words)
		var errs []ErrorRule
		for i := range rapid.IntRange(0, 12).Draw(t, "rules") {
			rule := ErrorRule{
				Name: fmt.Sprint("r", i), Queue: word.Draw(t, "queue"), Code: word.Draw(t, "code"), Pattern: word.Draw(t, "pattern"),
				Severity: rapid.SampledFrom([]string{"low", "medium", "high", "critical"}).Draw(t, "severity"),
			}
			if rule.Code+rule.Pattern == "" {
				rule.Code = "a"
			}
			errs = append(errs, rule)
		}
		r, err := Compile(nil, errs)
		require.NoError(t, err)
		queue, code, text := word.Draw(t, "in queue"), word.Draw(t, "with code"), word.Draw(t, "and text")
		want := Verdict{Retry: true}
		for _, rule := range errs {
			if (rule.Queue == "" || rule.Queue == queue) && (rule.Code == "" || rule.Code == code) && strings.Contains(text, rule.Pattern) {
				want = Verdict{Rule: rule.Name, Severity: rule.Severity, Retry: rule.Severity != "critical"}
				break
			}
		}
		require.Equal(t, want, r.Judge(queue, "", code, text, 1, middle))
	})
}

func FuzzRules(f *testing.F) {
	f.Add(`(?i)time(d )?out`, "Timed out after 30s", "c")
	f.Add(`^5\d\d$`, "503", "")
	f.Add(`((a*)*)*b`, strings.Repeat("a", 2000), "x")
	f.Add("\xff", "\xff", "")
	f.Add(`(?s).{0,300}$`, "a\nb", "")
	f.Fuzz(func(t *testing.T, pattern, text, code string) {
		r, err := Compile(nil, []ErrorRule{{Name: "e", Pattern: pattern, Code: code, Retry: new(false)}})
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		fits := pattern == "" || regexp.MustCompile(pattern).MatchString(text[:min(len(text), maxMatchedBytes)])
		v := r.Judge("q", "", code, text, 1, middle)
		require.Equal(t, fits, v.Rule == "e")
		require.Equal(t, fits, !v.Retry)
		if code != "" {
			require.Empty(t, r.Judge("q", "", code+"x", text, 1, middle).Rule)
		}
	})
}

// benchRules are 20 rules of which a failure fits the last.
func benchRules(tb testing.TB) *Rules {
	var errs []ErrorRule
	for i := range 19 {
		errs = append(errs, ErrorRule{Name: fmt.Sprint("r", i), Pattern: fmt.Sprintf("(?i)upstream %d (is )?(down|busy)", i)})
	}
	errs = append(errs, ErrorRule{Name: "last", Pattern: `deadline|timed? ?out`, RetryPolicy: "p"})
	r, err := Compile([]RetryPolicy{{Name: "p", InitialDelayMs: 100, Jitter: 0.5}}, errs)
	require.NoError(tb, err)
	return r
}

const benchFailure = "POST https://api.example.com/v1/charges: request timed out after 30 s"

// Patterns take their memory from a pool of package regexp, which the race
// detector empties; see BenchmarkJudge for them.
func TestJudgeAllocatesNothing(t *testing.T) {
	r := testRules(t, []RetryPolicy{{Name: "p", InitialDelayMs: 100, Jitter: 0.5}}, []ErrorRule{{Name: "e", Code: "E42"}})
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Judge("orders", "p", "E42", benchFailure, 3, rand.Float64) }))
}

func BenchmarkJudge(b *testing.B) {
	r := benchRules(b)
	for name, text := range map[string]string{"rules=20": benchFailure, "rules=20/text=1KiB": strings.Repeat("x", 1<<10-9) + "timed out"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if r.Judge("orders", "", "E42", text, 3, rand.Float64).Rule != "last" {
					b.Fatal("another verdict")
				}
			}
		})
	}
	b.Run("policy alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Judge("orders", "p", "", "no rule fits", 3, rand.Float64)
		}
	})
	// The time of a failure with a hostile table, per rule.
	b.Run("steepest pattern", func(b *testing.B) {
		r, err := Compile(nil, []ErrorRule{{Name: "e", Pattern: `(x+x+){1,120}y`}})
		require.NoError(b, err)
		text := strings.Repeat("x", maxMatchedBytes)
		b.ReportAllocs()
		for b.Loop() {
			r.Judge("orders", "", "", text, 1, rand.Float64)
		}
	})
}
