package gatecmd

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

func newThrottleAdaptCommand(env *command.Env) *cobra.Command {
	var freeze, release bool
	var level float64
	var forMs terminal.Millis
	cmd := &cobra.Command{
		Use:   "adapt KEY",
		Short: "Freeze, set or release the level that a throttle key has learned",
		Long: `Fix the level of a limit that learns (--adapt of fila throttle set): where it is, or at
a number. With --for that ends by itself, and the limit learns on from there. --release
ends it now. An override with --for replaces an earlier override of the key.`,
		Example: `  fila throttle adapt llm:openai --freeze --for 10m
  fila throttle adapt llm:openai --level 12 --for 1h
  fila throttle adapt llm:openai --release`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ThrottleInfo, error) {
			req := api.ThrottleSetRequest{Key: args[0], ForMs: int64(forMs)}
			switch {
			case release:
				req.Unset = []string{"level"}
			case freeze:
				info, err := s.ThrottleShow(ctx, args[0])
				if err != nil {
					return info, err
				}
				if info.Learned == nil {
					return info, command.UsageError("%s does not learn its limit: see `fila throttle set --adapt`", terminal.Clean(args[0]))
				}
				req.Level = &info.Learned.Level
			default:
				req.Level = &level
			}
			return client.Call(ctx, s.Client, api.VerbThrottleSet, req.Key, req)
		}, func(i api.ThrottleInfo, _ []string) string { return showThrottle(env, i) }),
	}
	fs := cmd.Flags()
	fs.BoolVar(&freeze, "freeze", false, "fix the level where it is")
	fs.Float64Var(&level, "level", 0, "fix the level at this `number`, at once or a second")
	fs.BoolVar(&release, "release", false, "let the limit learn again")
	fs.Var(&forMs, "for", "release it by itself after this time")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		given := slices.DeleteFunc([]string{"freeze", "level", "release"}, func(name string) bool { return !fs.Changed(name) })
		switch {
		case len(given) != 1:
			return command.UsageError("allowed is exactly one of --freeze, --level and --release, given: %s", strings.Join(given, ", "))
		case release && fs.Changed("for"):
			return command.UsageError("--for goes with --freeze and --level")
		}
		return nil
	}
	return command.Owned(cmd)
}
