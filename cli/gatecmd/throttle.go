package gatecmd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Commands returns the commands about flow control.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newThrottleCommand(env), newBudgetCommand(env), newCircuitCommand(env), newPauseCommand(env), newResumeCommand(env), newExplainCommand(env), newGuardCommand(env)}
}

func newThrottleCommand(env *command.Env) *cobra.Command {
	return env.KeyGroup(&cobra.Command{
		Use:     "throttle",
		Aliases: []string{"throttles"},
		Short:   "Limit rate and concurrency by throttle key",
		Long: `A message gets its throttle keys, such as tenant or vendor, from on_enqueue or
throttle_headers. It waits until all its keys admit it; messages with other keys
pass. A key has up to four limits: a rate with a burst, a number of messages in
flight, a number in any window of time, and a budget of cost for each hour, day, week or
month. Changes act at once.

A key that ends in * is a prefix: each key that begins with it gets these limits of its
own.`,
	}, throttleKeys, newThrottleSetCommand(env),
		command.Owned(throttleCommand(env, &cobra.Command{
			Use: "clear KEY", Aliases: []string{"delete", "rm"}, Short: "Remove all limits of a throttle key",
			Long: `Remove all limits of a throttle key, including an override; its blocked messages can
go then. If a prefix covers the key, the limits of the prefix apply.`,
			Example: `  fila throttle clear stripe
  fila throttle clear 'tenant:*'`,
		}, (*client.Client).ThrottleClear)),
		throttleCommand(env, &cobra.Command{
			Use: "show KEY", Aliases: []string{"get"}, Short: "Show the limits of a throttle key and their usage",
			Example: `  fila throttle show stripe
  fila throttle show stripe --json`,
		}, (*client.Client).ThrottleShow),
		newThrottleAdaptCommand(env), newThrottleListCommand(env))
}

// limits are the names of the limits.
var limits = []string{"rate", "burst", "concurrency", "limit", "window", "adapt", "level", "budget", "period", "zone", "warn-at", "on-empty"}

// throttleFlags are the flags of fila throttle set.
type throttleFlags struct {
	rate               string
	burst, level       float64
	adapt              string
	concurrency, limit int64
	window, forMs      terminal.Millis
	budget             float64
	period, zone       string
	warnAt             []float64
	onEmpty            string
	unset              []string
	expect             map[string]*string // of the --if flags, by limit
}

func (f *throttleFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.rate, "rate", "", "messages per second, `n` such as 10, 0.5 or 1/3")
	fs.Float64Var(&f.burst, "burst", 0, "messages that may go at once (default the larger of 1 and the rate)")
	fs.Int64Var(&f.concurrency, "concurrency", 0, "messages in flight, at most")
	fs.Int64Var(&f.limit, "limit", 0, "messages in any window, at most")
	fs.Var(&f.window, "window", "length of the window of --limit")
	fs.StringVar(&f.adapt, "adapt", "", "learn concurrency, or the rate, below it: `settings` such as overload,min=4,backoff=0.7")
	fs.Float64Var(&f.level, "level", 0, "fix what --adapt learns")
	fs.Float64Var(&f.budget, "budget", 0, "cost in each --period, at most")
	fs.StringVar(&f.period, "period", "", "period of --budget: hour, day, week or month")
	fs.StringVar(&f.zone, "zone", "", "time `zone` of --period, such as Europe/Berlin (default UTC)")
	fs.Float64SliceVar(&f.warnAt, "warn-at", nil, "`part` of --budget at whose use to publish a warning, such as 0.8; may be repeated")
	fs.StringVar(&f.onEmpty, "on-empty", "", "what becomes of messages that cost more than is left of --budget: hold (the default), dead_letter or refuse")
	fs.StringSliceVar(&f.unset, "unset", nil, "remove this `limit`: "+strings.Join(limits, ", ")+"; may be repeated")
	fs.Var(&f.forMs, "for", "make it an override that ends after this time; 0 is a lasting change")
	const only = "exit code 5 unless %s is now this `value`, or none"
	f.expect = map[string]*string{}
	for _, limit := range limits {
		f.expect[limit] = fs.String("if-"+limit, "", fmt.Sprintf(only, limit))
	}
}

// change builds the request from the flags.
func (f *throttleFlags) change(fs *pflag.FlagSet, key string) (api.ThrottleSetRequest, error) {
	change := api.ThrottleSetRequest{Key: key, ForMs: int64(f.forMs), ThrottleLimits: api.ThrottleLimits{
		Rate:        given(fs, "rate", wire.Rate(f.rate)),
		Burst:       given(fs, "burst", f.burst),
		Concurrency: given(fs, "concurrency", f.concurrency),
		Limit:       given(fs, "limit", f.limit),
		WindowMs:    given(fs, "window", int64(f.window)),
		Level:       given(fs, "level", f.level),
		Budget:      given(fs, "budget", f.budget),
		Period:      given(fs, "period", f.period),
		Zone:        given(fs, "zone", f.zone),
		WarnAt:      given(fs, "warn-at", f.warnAt),
		OnEmpty:     given(fs, "on-empty", f.onEmpty),
	}}
	if fs.Changed("adapt") {
		a, err := api.ReadAdapt(f.adapt)
		if err != nil {
			return change, command.UsageError("--adapt %q: %w", f.adapt, err)
		}
		change.Adapt = a
	}
	for _, name := range f.unset {
		switch name {
		case "window":
			name = "window_ms"
		case "warn-at":
			name = "warn_at"
		case "on-empty":
			name = "on_empty"
		}
		change.Unset = append(change.Unset, name)
	}
	expected, err := f.expected(fs)
	if err != nil {
		return change, err
	}
	change.If = expected
	if len(change.Names())+len(change.Unset) == 0 {
		return change, command.UsageError("nothing to set: give at least one of --rate, --burst, --concurrency, --limit, --window, --adapt, --level, --budget, --period, --zone, --warn-at, --on-empty and --unset")
	}
	if bad := change.Validate(); bad != nil {
		return change, command.UsageError("%s", bad.Description)
	}
	return change, nil
}

// given returns the value of a flag, or nil if it was not given.
func given[T any](fs *pflag.FlagSet, flag string, value T) *T {
	if !fs.Changed(flag) {
		return nil
	}
	return &value
}

// expected returns the values of the --if flags, or nil without them.
func (f *throttleFlags) expected(fs *pflag.FlagSet) (l *api.ThrottleLimits, err error) {
	for _, name := range limits {
		if !fs.Changed("if-" + name) {
			continue
		}
		if l == nil {
			l = &api.ThrottleLimits{}
		}
		text := *f.expect[name]
		number := text
		if text == "none" { // 0 in the protocol, and empty for a rate
			text, number = "", "0"
		}
		switch name {
		case "rate":
			l.Rate = new(wire.Rate(text))
		case "burst":
			l.Burst, err = parsed(number, parseNumber)
		case "level":
			l.Level, err = parsed(number, parseNumber)
		case "adapt":
			if l.Adapt = new(api.ThrottleAdapt); text != "" {
				l.Adapt, err = api.ReadAdapt(text)
			}
		case "budget":
			l.Budget, err = parsed(number, parseNumber)
		case "period":
			l.Period = &text
		case "zone":
			l.Zone = &text
		case "on-empty":
			l.OnEmpty = &text
		case "warn-at":
			l.WarnAt, err = parsed(text, api.ParseParts)
		case "concurrency":
			l.Concurrency, err = parsed(number, parseWhole)
		case "limit":
			l.Limit, err = parsed(number, parseWhole)
		case "window":
			if l.WindowMs, err = parsed(number, terminal.ParseMs); err != nil && number != "" {
				return nil, command.UsageError("--if-window %w, or none", err)
			}
		}
		if err != nil {
			return nil, command.UsageError("--if-%s %q: allowed is a value of the limit, or none", name, number)
		}
	}
	return l, nil
}

func parsed[T any](text string, parse func(string) (T, error)) (*T, error) {
	value, err := parse(text)
	return &value, err
}

func parseNumber(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

func parseWhole(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func newThrottleSetCommand(env *command.Env) *cobra.Command {
	var f throttleFlags
	var change api.ThrottleSetRequest
	cmd := &cobra.Command{
		Use:   "set KEY",
		Short: "Set limits of a throttle key",
		Long: `Set the limits whose flags are given; the others stay. With --for it is an override:
when it ends, the limits from before apply again. At the next start config.toml
restores the limits of its keys.

A lasting change of the limits of another owner is a conflict (exit code 5), unless
--force or a flag --if-... is given. A change of limits that another owner or client has
set warns.`,
		Example: `  fila throttle set stripe --rate 10 --burst 20 --concurrency 5
  fila throttle set stripe --rate 2 --for 10m
  fila throttle set 'tenant:*' --limit 1000 --window 1m
  fila throttle set 'tenant:*' --budget 5000000 --period month --zone Europe/Berlin --warn-at 0.8
  fila throttle set stripe --rate 20 --if-rate 10
  fila throttle set stripe --unset burst,concurrency
  fila throttle set llm:openai --concurrency 60 --adapt overload,min=4
  fila throttle set stripe --rate 10 --owner billing --force`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ThrottleInfo, error) {
			info, err := client.Call(ctx, s.Client, api.VerbThrottleSet, change.Key, change)
			return info, command.Hint(err, wire.CodeThrottleMismatch, "see what is set with `fila throttle show "+args[0]+"`")
		}, func(i api.ThrottleInfo, _ []string) string { return showThrottle(env, i) }),
	}
	f.add(cmd.Flags())
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		change, err = f.change(cmd.Flags(), args[0])
		return err
	}
	command.Allow(cmd, "unset", limits...)
	command.Allow(cmd, "on-empty", api.OnEmpty...)
	return command.Owned(cmd)
}

// throttleCommand makes a command that shows a throttle key after a call.
func throttleCommand(env *command.Env, cmd *cobra.Command, call func(c *client.Client, ctx context.Context, key string) (api.ThrottleInfo, error)) *cobra.Command {
	return command.One(env, cmd, call, func(i api.ThrottleInfo) string { return showThrottle(env, i) })
}

func newThrottleListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list [KEY-PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List throttle keys with their limits and usage",
		Example: `  fila throttle list
  fila throttle list tenant:`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ThrottleList, error) {
			infos, err := s.ThrottleList(ctx, strings.Join(args, ""))
			return api.ThrottleList{Total: len(infos), Throttles: infos}, err
		}, func(list api.ThrottleList, _ []string) string {
			t := terminal.NewTable("KEY", "LIMITS", "SET BY", "NOW", "ADMITS", "TOKENS", "IN FLIGHT", "WAITING QUEUES")
			for _, i := range list.Throttles {
				if isPrefix(i.Key) {
					now := "-"
					if i.Unused {
						now = neverUsed
					}
					t.Row(i.Key, i.ThrottleLimits.Text(), i.Source, now, "-", "-", "-", "-")
					continue
				}
				tokens := "-"
				if i.Rate != nil {
					tokens = terminal.Number(i.Tokens)
				}
				source := i.Source
				if i.Shared != nil {
					source += ", shared"
				}
				t.Row(i.Key, i.ThrottleLimits.Text(), source, gateNow(i), env.Soon(i.AdmitsAt), tokens, i.InFlight, i.Waiting)
			}
			return t.Or("no throttle keys; limit one with `fila throttle set KEY --rate 10`")
		}),
	}
}

// isPrefix reports whether a throttle key stands for all keys with a prefix. Such a key has no
// gate of its own.
func isPrefix(key string) bool { return strings.HasSuffix(key, "*") }

// neverUsed is the hint about limits that have not applied to any message or call since fila
// started: the key may be misspelled.
const neverUsed = "never used"

// gateNow describes whether a throttle admits messages, or what blocks them.
func gateNow(i api.ThrottleInfo) string {
	if i.Unused {
		return neverUsed
	}
	if i.Admits || i.State == "open" || i.State == "" {
		return "admits"
	}
	return "blocks: " + i.State
}

func showThrottle(env *command.Env, i api.ThrottleInfo) string {
	t := terminal.NewTable("throttle", terminal.Clean(i.Key))
	t.Row("limits", i.ThrottleLimits.Text())
	if i.Learned != nil {
		t.Row("learned", terminal.Clean(i.Learned.Text()))
	}
	t.Row("set by", terminal.OrDash(i.Source))
	if i.Owner != "" {
		t.Row("owner", terminal.Clean(i.Owner))
	}
	for _, warning := range i.Warnings {
		t.Row("warning", terminal.Clean(warning))
	}
	if i.OverrideUntil != "" {
		t.Row("override ends", env.When(i.OverrideUntil))
	}
	if i.PausedUntil == "resumed" {
		t.Row("paused", "until `fila resume throttle "+i.Key+"`")
	} else if i.PausedUntil != "" {
		t.Row("paused until", env.When(i.PausedUntil))
	}
	if isPrefix(i.Key) {
		if i.Unused {
			t.Row("now", neverUsed)
		}
		return terminal.Sections(t.String(), env.Sources(i.Sources))
	}
	now := gateNow(i)
	if i.AdmitsAt != "" {
		now += ", admits " + env.When(i.AdmitsAt)
	}
	t.Row("now", now)
	if i.Rate != nil {
		t.Row("tokens", terminal.Number(i.Tokens))
	}
	if i.Limit != nil && i.WindowMs != nil {
		t.Row("in the window", fmt.Sprintf("%d of %d", i.InWindow, *i.Limit))
	}
	if i.Spending != nil {
		t.Row("budget used", i.Spending.Text())
		t.Row("begins again", env.When(i.Spending.EndsAt))
	}
	t.Row("in flight", i.InFlight)
	t.Row("waiting queues", waitingText(i.Waiting, i.WaitingMessages))
	t.Row("admitted", i.Admitted)
	t.Row("blocked", i.Blocked)
	if i.Shared != nil {
		showShared(env, t, i)
	}
	return terminal.Sections(t.String(), learnedSteps(env, i.Learned), env.Sources(i.Sources))
}

// learnedSteps lists the last steps of a limit that learns, the latest first.
func learnedSteps(env *command.Env, l *api.ThrottleLearned) string {
	if l == nil || len(l.Steps) == 0 {
		return ""
	}
	t := terminal.NewTable("STEP", "FROM", "TO", "BECAUSE")
	for _, s := range slices.Backward(l.Steps) {
		cause := "it succeeded"
		if s.Cause != "" {
			cause = terminal.Clean(s.Cause)
		}
		t.Row(env.When(s.At), terminal.Number(s.From), terminal.Number(s.To), cause)
	}
	return t.String()
}

// showShared describes how filas share a throttle key.
func showShared(env *command.Env, t *terminal.Table, i api.ThrottleInfo) {
	s := i.Shared
	switch {
	case s.Alone:
		t.Row("shared", "no other fila uses it")
	case s.Degraded:
		t.Row("shared", "degraded: this fila uses its leases and its part of the rate")
	default:
		var users []string
		for _, name := range slices.Sorted(maps.Keys(s.Users)) {
			user := terminal.Clean(name)
			if i.Concurrency != nil {
				user += fmt.Sprintf(" (%s)", terminal.Plural(s.Users[name], "permit"))
			}
			users = append(users, user)
		}
		t.Row("shared", "by "+strings.Join(users, ", "))
		if i.Rate != nil {
			t.Row("tokens of all", terminal.Number(s.Tokens))
		}
		if i.Limit != nil && i.WindowMs != nil {
			t.Row("window of all", fmt.Sprintf("%d of %d", s.InWindow, *i.Limit))
		}
	}
	if s.Own != nil {
		when := ""
		if s.ChangedAt != "" {
			when = " " + env.When(s.ChangedAt)
		}
		t.Row("set here", fmt.Sprintf("%s; fila %s set others later%s", s.Own.Text(), terminal.Clean(s.By), when))
	}
}

// waitingText returns the number of waiting queues, and of their messages if known.
func waitingText(queues int, messages int64) string {
	if messages == 0 {
		return strconv.Itoa(queues)
	}
	return fmt.Sprintf("%d, with %s", queues, terminal.Plural(messages, "message"))
}

var throttleKeys = command.NamesOf((*client.Client).ThrottleList, func(one api.ThrottleInfo) string { return one.Key })
