package opscmd

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

func newConfigCommand(env *command.Env) *cobra.Command {
	return env.KeyGroup(&cobra.Command{
		Use:   "config",
		Short: "Read and change the runtime configuration",
		Long: `The runtime configuration is a persistent map of strings that hooks read with
fila.get(key). Changes act at once.`,
	}, configKeys, newConfigSetCommand(env),
		command.One(env, &cobra.Command{
			Use: "get KEY", Short: "Print the value of a key",
			Example: `  fila config get feature:new-router`,
		}, (*client.Client).ConfigGet, func(entry api.ConfigEntry) string { return entry.Value + "\n" }),
		newConfigListCommand(env),
		command.Owned(command.One(env, &cobra.Command{
			Use: "delete KEY", Aliases: []string{"rm"}, Short: "Delete a key",
			Example: `  fila config delete feature:new-router`,
		}, (*client.Client).ConfigDelete, func(entry api.ConfigEntry) string {
			return fmt.Sprintf("%s deleted (was %s)\n%s", terminal.Clean(entry.Key), terminal.Clean(entry.Value), command.Warnings(entry.Warnings))
		})),
		newConfigLogCommand(env))
}

func newConfigSetCommand(env *command.Env) *cobra.Command {
	var ifValue string
	cmd := &cobra.Command{
		Use:   "set KEY VALUE",
		Short: "Set a key",
		Example: `  fila config set feature:new-router on
  fila config set feature:new-router off --if-value on
  fila config set offset -- -5`,
	}
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ConfigSetReply, error) {
		var condition *string
		if cmd.Flags().Changed("if-value") {
			condition = &ifValue
		}
		return s.ConfigSet(ctx, args[0], args[1], condition)
	}, func(reply api.ConfigSetReply, _ []string) string {
		was := "new"
		if reply.Previous != nil {
			was = "was " + terminal.Clean(*reply.Previous)
		}
		return fmt.Sprintf("%s = %s (%s)\n%s", terminal.Clean(reply.Key), terminal.Clean(reply.Value), was, command.Warnings(reply.Warnings))
	})
	cmd.Flags().StringVar(&ifValue, "if-value", "", "exit code 5 unless the key has this `value` now")
	return command.Owned(cmd)
}

func newConfigListCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:     "list [KEY-PREFIX]",
		Aliases: []string{"ls"},
		Short:   "List keys with their values",
		Example: `  fila config list
  fila config list throttle:`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ConfigList, error) {
			entries, err := s.ConfigList(ctx, strings.Join(args, ""))
			return api.ConfigList{Total: len(entries), Entries: entries}, err
		}, func(list api.ConfigList, _ []string) string {
			t := terminal.NewTable("KEY", "VALUE")
			for _, entry := range list.Entries {
				t.Row(entry.Key, entry.Value)
			}
			return t.Or("no keys")
		}),
	}
}

var configKeys = command.NamesOf((*client.Client).ConfigList, func(one api.ConfigEntry) string { return one.Key })

func newConfigLogCommand(env *command.Env) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "log [KEY-PREFIX]",
		Short: "Show who changed what, newest first",
		Long: `Show the audit log, newest first: changes of the runtime configuration, throttles,
circuits, pauses, queues, messages and jobs, with their author and the beginning of the
old and new values (up to 1 KiB with --json). fila keeps the newest 10,000
changes.`,
		Example: `  fila config log
  fila config log throttle:stripe --limit 0`,
		RunE: command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.ConfigLog, error) {
			return s.ConfigLogPage(ctx, strings.Join(args, ""), limit)
		}, func(log api.ConfigLog, _ []string) string {
			t := terminal.NewTable("SEQ", "TIME", "KEY", "OLD", "NEW", "BY")
			for _, e := range log.Entries {
				t.Row(e.Seq, env.When(e.Time), e.Key, change(e.Old), changed(e), asked(e))
			}
			rest := ""
			if more := log.Total - len(log.Entries); limit > 0 && more > 0 {
				rest = terminal.Plural(int64(more), "change") + " more; see --limit\n"
			}
			return terminal.Sections(t.Or("no changes"), rest)
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "show at most this many; 0 is all")
	command.Bound(cmd, "limit", 0, math.MaxInt, "is 0 (all) and more")
	return cmd
}

// asked returns the cause of a change, such as a verb, the requester with owner and reason, and the
// other owner whose value it has changed.
func asked(e api.ConfigLogEntry) string {
	text := e.By
	if author := e.Author(); author != "" {
		text += " (" + author + ")"
	}
	if e.OwnedBy != "" {
		text += ", of " + e.OwnedBy
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// changed returns the new value of an audit entry; for a job, its action and reason.
func changed(e api.ConfigLogEntry) string {
	if strings.HasPrefix(e.Key, "job:") && e.New != nil {
		if words := jobWords(*e.New); words != "" {
			return terminal.Fit(words, changeWidth)
		}
	}
	return change(e.New)
}

// jobWords describes a job briefly. The log has the beginning of its JSON, which may be cut
// anywhere.
func jobWords(text string) string {
	said := map[string]string{}
	from := json.NewDecoder(strings.NewReader(text))
	for _, err := from.Token(); err == nil && from.More(); {
		var name json.Token
		if name, err = from.Token(); err != nil {
			break
		}
		var value any
		err = from.Decode(&value)
		if text, ok := value.(string); ok {
			said[fmt.Sprint(name)] = terminal.Clean(text)
		}
	}
	if said["op"] == "" {
		return ""
	}
	words := said["op"] + " " + said["queue"]
	if to := said["to"]; to != "" {
		words += " to " + to
	}
	if reason := said["reason"]; reason != "" {
		words += ": " + reason
	}
	return words
}

// change prints a value of the audit log. A dash means that there is none, so the empty value
// needs another text.
func change(value *string) string {
	switch {
	case value == nil:
		return "-"
	case *value == "" || *value == "-":
		return strconv.Quote(*value)
	}
	return terminal.Fit(*value, changeWidth)
}

// changeWidth is the maximum width of a shown value: the value of a queue has all its settings.
const changeWidth = 60
