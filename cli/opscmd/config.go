package opscmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

func newConfigCommand(env *command.Env) *cobra.Command {
	cmd := command.Group(&cobra.Command{
		Use:   "config",
		Short: "Read and change the runtime configuration",
		Long: `The runtime configuration is a persisted map of strings. Hooks read it with
fila.get(key); a change acts at once. What fila serve is started with is another
thing: see docs/configuration.md.`,
	})
	cmd.AddCommand(newConfigSetCommand(env), newConfigGetCommand(env), newConfigListCommand(env),
		newConfigDeleteCommand(env), newConfigLogCommand(env))
	return cmd
}

func newConfigSetCommand(env *command.Env) *cobra.Command {
	var ifValue string
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Set a key",
		Example: `  fila config set feature:new-router on
  fila config set feature:new-router off --if-value on
  fila config set offset -- -5`,
		Args:              command.Args("KEY", "VALUE"),
		ValidArgsFunction: env.Complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			var condition *string
			if cmd.Flags().Changed("if-value") {
				condition = &ifValue
			}
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				reply, err := s.ConfigSet(ctx, args[0], args[1], condition)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), reply)
				}
				was := "new"
				if reply.Previous != nil {
					was = "was " + terminal.Clean(*reply.Previous)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s = %s (%s)\n", terminal.Clean(reply.Key), terminal.Clean(reply.Value), was)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&ifValue, "if-value", "", "set it only if this is the present `value`; otherwise exit code 5")
	return cmd
}

func newConfigGetCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "get KEY",
		Short:             "Print the value of a key",
		Example:           `  fila config get feature:new-router`,
		Args:              command.Args("KEY"),
		ValidArgsFunction: env.Complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				entry, err := s.ConfigGet(ctx, args[0])
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), entry)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), entry.Value)
				return err
			})
		},
	}
}

func newConfigListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list [KEY-PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List keys with their values",
		Example: `  fila config list
  fila config list throttle:`,
		Args:              command.Args("[KEY-PREFIX]"),
		ValidArgsFunction: env.Complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				entries, err := s.ConfigList(ctx, prefix)
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), client.ConfigList{Total: len(entries), Entries: entries})
				}
				t := terminal.NewTable("KEY", "VALUE")
				for _, entry := range entries {
					t.Row(entry.Key, entry.Value)
				}
				return t.Print(cmd.OutOrStdout())
			})
		},
	}
}

func newConfigDeleteCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:               "delete KEY",
		Aliases:           []string{"rm"},
		Short:             "Delete a key",
		Example:           `  fila config delete feature:new-router`,
		Args:              command.Args("KEY"),
		ValidArgsFunction: env.Complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			return env.Online(cmd, func(ctx context.Context, s *command.Session) error {
				entry, err := s.ConfigDelete(ctx, args[0])
				if err != nil {
					return err
				}
				if env.JSON {
					return terminal.PrintJSON(cmd.OutOrStdout(), entry)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s deleted (was %s)\n", terminal.Clean(entry.Key), terminal.Clean(entry.Value))
				return err
			})
		},
	}
}

var configKeys = command.NamesOf(func(s *command.Session, ctx context.Context, prefix string) ([]client.ConfigEntry, error) {
	return s.ConfigList(ctx, prefix)
}, func(one client.ConfigEntry) string { return one.Key })
