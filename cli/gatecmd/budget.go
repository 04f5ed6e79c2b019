package gatecmd

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

func newBudgetCommand(env *command.Env) *cobra.Command {
	return env.KeyGroup(&cobra.Command{
		Use:     "budget",
		Aliases: []string{"budgets"},
		Short:   "Show and top up what throttle keys may cost in a period",
		Long: `A throttle key with a budget admits messages and calls up to a cost in each hour, day,
week or month; then its messages wait for the next period. "fila throttle set" sets and
removes budgets, and these commands show and change what is used of the present period.`,
	}, budgetKeys,
		&cobra.Command{
			Use:     "list [KEY-PREFIX]",
			Aliases: []string{"ls"},
			Short:   "List budgets that were used in their present period",
			Example: `  fila budget list
  fila budget list tenant:`,
			RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.BudgetList, error) {
				all, err := s.BudgetList(ctx, strings.Join(args, ""))
				return api.BudgetList{Total: len(all), Budgets: all}, err
			}, func(list api.BudgetList, _ []string) string {
				t := terminal.NewTable("KEY", "USED", "LEFT", "BEGINS AGAIN")
				for i := range list.Budgets {
					b := &list.Budgets[i]
					t.Row(b.Key, b.Text(), api.CostText(b.Left), env.When(b.EndsAt))
				}
				return t.Or("no budget was used; set one with `fila throttle set KEY --budget 1000 --period day`")
			}),
		},
		budgetCommand(env, &cobra.Command{
			Use: "show KEY", Aliases: []string{"get"}, Short: "Show the budget of a throttle key and what is used",
			Example: `  fila budget show tenant:acme
  fila budget show tenant:acme --json`,
		}, (*client.Client).BudgetShow),
		newBudgetTopUpCommand(env),
		budgetCommand(env, &cobra.Command{
			Use: "reset KEY", Short: "Begin the present period of a budget anew",
			Long: `Begin the present period of a budget anew: nothing is used and nothing added. Messages in
flight do not count. It also ends a period that lies ahead because the clock was wrong.`,
			Example: `  fila budget reset tenant:acme`,
		}, (*client.Client).BudgetReset))
}

func newBudgetTopUpCommand(env *command.Env) *cobra.Command {
	var amount float64
	return &cobra.Command{
		Use:   "top-up KEY AMOUNT",
		Short: "Add to the present period of a budget",
		Long: `Add a cost to the present period of a budget. Messages that wait for it go at once. The
next period has the budget alone.`,
		Example: `  fila budget top-up tenant:acme 500000`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if amount, err = strconv.ParseFloat(args[1], 64); err != nil {
				return command.UsageError("AMOUNT %q: allowed is a number from 0.001 to %d", args[1], api.MaxBudget)
			}
			return nil
		},
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.BudgetInfo, error) {
			return s.BudgetTopUp(ctx, args[0], amount)
		}, func(b api.BudgetInfo, _ []string) string { return showBudget(env, b) }),
	}
}

// budgetCommand makes a command that shows a budget after a call.
func budgetCommand(env *command.Env, cmd *cobra.Command, call func(c *client.Client, ctx context.Context, key string) (api.BudgetInfo, error)) *cobra.Command {
	return command.One(env, cmd, call, func(b api.BudgetInfo) string { return showBudget(env, b) })
}

func showBudget(env *command.Env, b api.BudgetInfo) string {
	t := terminal.NewTable("budget", terminal.Clean(b.Key))
	terms := api.ThrottleLimits{Budget: &b.Budget, Period: &b.Period}
	if b.Zone != "" {
		terms.Zone = &b.Zone
	}
	if b.OnEmpty != "" {
		terms.OnEmpty = &b.OnEmpty
	}
	t.Row("limit", terms.Text())
	if b.Added != 0 {
		t.Row("added", api.CostText(b.Added))
	}
	t.Row("used", api.CostText(b.Used))
	t.Row("left", api.CostText(b.Left))
	t.Row("began", env.When(b.StartedAt))
	t.Row("begins again", env.When(b.EndsAt))
	if len(b.WarnAt) > 0 {
		t.Row("warns at", api.PartsText(b.WarnAt))
	}
	return t.String()
}

var budgetKeys = command.NamesOf((*client.Client).BudgetList, func(one api.BudgetInfo) string { return one.Key })
