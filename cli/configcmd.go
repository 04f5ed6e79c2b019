package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/client"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "config",
		Short: "Read and change the runtime configuration",
		Long: `The runtime configuration is a persisted map of strings. Hooks read it with
fila.get(key); a change acts at once. What fila serve is started with is another
thing: see docs/configuration.md.`,
	})
	cmd.AddCommand(newConfigSetCommand(a), newConfigGetCommand(a), newConfigListCommand(a),
		newConfigDeleteCommand(a), newConfigLogCommand(a))
	return cmd
}

func newConfigSetCommand(a *app) *cobra.Command {
	var ifValue string
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Set a key",
		Example: `  fila config set feature:new-router on
  fila config set feature:new-router off --if-value on
  fila config set offset -- -5`,
		Args:              needArgs("KEY", "VALUE"),
		ValidArgsFunction: a.complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			var condition *string
			if cmd.Flags().Changed("if-value") {
				condition = &ifValue
			}
			return a.online(cmd, func(ctx context.Context, s *session) error {
				reply, err := s.ConfigSet(ctx, args[0], args[1], condition)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), reply)
				}
				was := "new"
				if reply.Previous != nil {
					was = "was " + clean(*reply.Previous)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s = %s (%s)\n", clean(reply.Key), clean(reply.Value), was)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&ifValue, "if-value", "", "set it only if this is the present `value`; otherwise exit code 5")
	return cmd
}

func newConfigGetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "get KEY",
		Short:             "Print the value of a key",
		Example:           `  fila config get feature:new-router`,
		Args:              needArgs("KEY"),
		ValidArgsFunction: a.complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				entry, err := s.ConfigGet(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), entry)
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), entry.Value)
				return err
			})
		},
	}
}

func newConfigListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list [KEY-PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List keys with their values",
		Example: `  fila config list
  fila config list throttle:`,
		Args:              needArgs("[KEY-PREFIX]"),
		ValidArgsFunction: a.complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			return a.online(cmd, func(ctx context.Context, s *session) error {
				entries, err := s.ConfigList(ctx, prefix)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), client.ConfigList{Total: len(entries), Entries: entries})
				}
				t := newTable("KEY", "VALUE")
				for _, entry := range entries {
					t.row(entry.Key, entry.Value)
				}
				return t.print(cmd.OutOrStdout())
			})
		},
	}
}

func newConfigDeleteCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "delete KEY",
		Aliases:           []string{"rm"},
		Short:             "Delete a key",
		Example:           `  fila config delete feature:new-router`,
		Args:              needArgs("KEY"),
		ValidArgsFunction: a.complete(configKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.online(cmd, func(ctx context.Context, s *session) error {
				entry, err := s.ConfigDelete(ctx, args[0])
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), entry)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s deleted (was %s)\n", clean(entry.Key), clean(entry.Value))
				return err
			})
		},
	}
}

var configKeys = namesOf(func(s *session, ctx context.Context, prefix string) ([]client.ConfigEntry, error) {
	return s.ConfigList(ctx, prefix)
}, func(one client.ConfigEntry) string { return one.Key })
