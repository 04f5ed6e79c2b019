package cli

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/sidecar/rules"
	"github.com/filaq/fila/wire"
)

// shownDelays is the number of retries that `fila rules test` shows.
const shownDelays = 6

// newRulesCommand makes fila rules, which reads the configuration file as fila serve does: its
// output applies after the next start or reload.
func newRulesCommand(a *app) *cobra.Command {
	group := &cobra.Command{Use: "rules", Short: "Show and try the error rules and retry policies of the configuration file"}
	return command.Group(group, newRulesListCommand(a), newRulesTestCommand(a))
}

// rulesFile adds the flag that names the file, and returns a function that reads it.
func rulesFile(cmd *cobra.Command) func() (*config.Loaded, error) {
	path := cmd.Flags().String("config", "", "configuration `file` (default as fila serve)")
	return func() (*config.Loaded, error) {
		if cmd.Flags().Changed("config") && *path == "" {
			return nil, command.UsageError("--config is empty: name a file")
		}
		loaded, err := config.Load(config.Sources{File: *path, Search: command.ConfigFiles, Environ: os.Environ()})
		if err != nil {
			return nil, command.Exit(command.ExitUsage, err)
		}
		return loaded, nil
	}
}

// ruleList is what `fila rules list --json` prints: the rules and policies with their defaults.
type ruleList struct {
	File     string              `json:"file"`
	Rules    []rules.ErrorRule   `json:"error_rules"`
	Policies []rules.RetryPolicy `json:"retry_policies"`
}

func newRulesListCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the error rules, in the order in which they are tried, and the retry policies",
		Example: "  fila rules list\n  fila rules list --json",
	}
	load := rulesFile(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		list := listRules(loaded)
		return a.Show(cmd, list, list.String)
	}
	return cmd
}

func listRules(c *config.Loaded) *ruleList {
	list := &ruleList{File: c.File, Rules: []rules.ErrorRule{}, Policies: []rules.RetryPolicy{}}
	for _, r := range c.ErrorRules {
		r.Severity = cmp.Or(r.Severity, rules.Medium)
		list.Rules = append(list.Rules, r)
	}
	for _, p := range c.RetryPolicies {
		p.Retry = new(p.Retry == nil || *p.Retry)
		p.MaxDelayMs, p.Multiplier = cmp.Or(p.MaxDelayMs, wire.MaxSettingMs), cmp.Or(p.Multiplier, 2)
		list.Policies = append(list.Policies, p)
	}
	return list
}

func (l *ruleList) String() string {
	t := terminal.NewTable("RULE", "QUEUE", "CODE", "PATTERN", "SEVERITY", "POLICY", "RETRY", "DESCRIPTION")
	for _, r := range l.Rules {
		retry := "as the policy"
		switch {
		case r.Severity == rules.Critical:
			retry = "never"
		case r.Retry != nil:
			retry = map[bool]string{true: "yes", false: "never"}[*r.Retry]
		}
		t.Row(r.Name, cmp.Or(r.Queue, "any"), cmp.Or(r.Code, "any"), cmp.Or(r.Pattern, "any"), r.Severity,
			cmp.Or(r.RetryPolicy, "the queue's"), retry, terminal.OrDash(r.Description))
	}
	p := terminal.NewTable("POLICY", "RETRIES", "FIRST DELAY", "MULTIPLIER", "LONGEST", "JITTER")
	for _, l := range l.Policies {
		retries := "as max_deliveries"
		switch {
		case !*l.Retry:
			retries = "none"
		case l.MaxRetries > 0:
			retries = fmt.Sprint(l.MaxRetries)
		}
		p.Row(l.Name, retries, wire.FormatMs(l.InitialDelayMs), l.Multiplier, wire.FormatMs(l.MaxDelayMs), l.Jitter)
	}
	return terminal.Sections(t.Or("no error rules"), p.Or("no retry policies"))
}

// failureTest is what `fila rules test --json` prints.
type failureTest struct {
	Rule         string       `json:"rule"` // empty if none matches
	Description  string       `json:"description"`
	Severity     string       `json:"severity"`
	Policy       string       `json:"retry_policy"` // empty: the default backoff of the queue
	MessageFault bool         `json:"message_fault"`
	Retry        bool         `json:"retry"` // of the first failure
	Delays       []delayRange `json:"delays"`
	Ends         bool         `json:"ends"` // ends with a dead letter after those delays

	named string // description of the policy
}

// delayRange is the range of a delay with jitter.
type delayRange struct {
	MinMs float64 `json:"min_ms"`
	MaxMs float64 `json:"max_ms"`
}

func newRulesTestCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Say which rule and policy a failure meets, and when it would be retried",
		Long: `Show which error rule of the configuration file matches a failure, with severity, retry
policy and the delays of the next retries. on_failure or the delay of a nack would
decide first. A queue that is not in the file has the default settings.`,
		Example: `  fila rules test --code 429 --error "too many requests"
  fila rules test --queue mail --error "451 try again later"`,
	}
	load := rulesFile(cmd)
	queue := cmd.Flags().String("queue", "", "`name` of the queue in which it fails")
	code := cmd.Flags().String("code", "", "error code of the nack")
	text := cmd.Flags().String("error", "", "error text of the nack")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		test, err := testFailure(loaded, *queue, *code, *text)
		if err != nil {
			return err
		}
		return a.Show(cmd, test, test.String)
	}
	return cmd
}

func testFailure(c *config.Loaded, queue, code, text string) (*failureTest, error) {
	compiled, err := rules.Compile(c.RetryPolicies, c.ErrorRules)
	if err != nil {
		return nil, command.Exit(command.ExitUsage, err)
	}
	settings := wire.DefaultQueueSettings(queue)
	if i := slices.IndexFunc(c.Queues, func(q wire.QueueSettings) bool { return q.Name == queue }); i >= 0 {
		settings = c.Queues[i]
	}
	judge := func(attempts uint32, chance float64) (v rules.Verdict, delay int64) {
		rnd := func() float64 { return chance }
		v = compiled.Judge(queue, settings.RetryPolicy, code, text, attempts, rnd)
		if v.Retry && v.Policy == "" {
			return v, rules.Backoff(&settings, attempts, rnd)
		}
		return v, v.Delay
	}
	first, _ := judge(1, 0)
	test := &failureTest{
		Rule: first.Rule, Severity: cmp.Or(first.Severity, rules.Medium), Policy: first.Policy, MessageFault: first.MessageFault,
		Retry: first.Retry, Delays: []delayRange{}, named: cmp.Or(first.Policy, "none, the backoff of the queue"),
	}
	if i := slices.IndexFunc(c.ErrorRules, func(r rules.ErrorRule) bool { return r.Name == first.Rule }); i >= 0 {
		test.Description = c.ErrorRules[i].Description
	}
	limit := settings.DeliveryLimit(false)
	for n := uint32(1); n <= shownDelays; n++ {
		v, one := judge(n, 0)
		if !v.Retry || limit > 0 && int64(n) >= limit {
			test.Ends = true
			break
		}
		_, other := judge(n, math.Nextafter(1, 0))
		test.Delays = append(test.Delays, delayRange{roundMs(min(one, other)), roundMs(max(one, other))})
	}
	return test, nil
}

// roundMs converts nanoseconds to milliseconds, rounded.
func roundMs(ns int64) float64 {
	return float64(time.Duration(ns).Round(time.Millisecond).Milliseconds())
}

func (f *failureTest) String() string {
	t := terminal.NewTable("rule", cmp.Or(f.Rule, "none fits"))
	t.Fact("description", f.Description)
	t.Row("severity", f.Severity)
	t.Row("retry policy", f.named)
	if f.MessageFault {
		t.Row("circuit", "does not count it")
	}
	var delays []string
	for _, d := range f.Delays {
		text := wire.FormatMs(int64(d.MaxMs))
		if d.MinMs != d.MaxMs {
			text = wire.FormatMs(int64(d.MinMs)) + " to " + text
		}
		delays = append(delays, text)
	}
	switch end := strings.Join(delays, ", "); {
	case len(delays) == 0:
		t.Row("retries", "none: a dead letter at once")
	case f.Ends:
		t.Row("retries", "after "+end+", then a dead letter")
	default:
		t.Row("retries", "after "+end+", ...")
	}
	return t.String()
}
