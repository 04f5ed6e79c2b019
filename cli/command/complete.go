package command

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
)

// completeWait is how long the completion of a word waits for fila.
const completeWait = time.Second

// Lookup returns what may stand in one place of a command line, after args. It
// may return more than begins with prefix.
type Lookup func(ctx context.Context, s *Session, args []string, prefix string) ([]string, error)

// Complete completes arguments, each by the lookup of its place. Where fila does
// not answer in time, there is nothing to choose from, and no message either: it
// would stand in the middle of what somebody types.
func (env *Env) Complete(places ...Lookup) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(places) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeWait)
		defer cancel()
		found := make(chan []string, 1)
		go func() { found <- env.look(ctx, places[len(args)], args, prefix) }()
		select {
		case names := <-found:
			return choose(names, prefix), cobra.ShellCompDirectiveNoFileComp
		case <-ctx.Done(): // several servers, and the first do not answer
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func (env *Env) look(ctx context.Context, find Lookup, args []string, prefix string) []string {
	s, err := env.Conn.Open(nats.Timeout(completeWait))
	if err != nil {
		return nil
	}
	defer s.Close()
	names, err := find(ctx, s, args, prefix)
	if err != nil {
		return nil
	}
	return names
}

// choose returns the names that begin with prefix. Those that a command line
// cannot hold on one line are left out.
func choose(names []string, prefix string) []string {
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, prefix) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// NamesOf is the lookup of a list that the client gets.
func NamesOf[T any](list func(c *client.Client, ctx context.Context, prefix string) ([]T, error), name func(T) string) Lookup {
	return func(ctx context.Context, s *Session, _ []string, prefix string) ([]string, error) {
		all, err := list(s.Client, ctx, prefix)
		names := make([]string, len(all))
		for i := range all {
			names[i] = name(all[i])
		}
		return names, err
	}
}

// QueueNames are the queues, dead letter queues included.
var QueueNames = NamesOf(func(c *client.Client, ctx context.Context, _ string) ([]client.QueueSummary, error) {
	return c.QueueList(ctx)
}, func(q client.QueueSummary) string { return q.Name })

// FairnessKeys are those of the queue that is the first argument, as many as
// fila tells.
func FairnessKeys(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	info, err := s.QueueInspect(ctx, args[0], 1000)
	var keys []string
	for _, flow := range info.TopFlows {
		keys = append(keys, flow.Key)
	}
	return keys, err
}

// CompleteKeys completes a flag with the fairness keys of the queue that is the
// first argument.
func (env *Env) CompleteKeys(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return env.Complete(nil, FairnessKeys)(cmd, args[:1], prefix)
}

// The shell completes names of files.
var (
	files = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	dirs  = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
)

// CompleteFlag completes the values of a flag. The flag must exist, and have no
// other completion.
func CompleteFlag(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // a mistake in this program
	}
}

// Allow completes a flag with what it may be. Of a flag that takes a list, each
// part is completed.
func Allow(cmd *cobra.Command, flag string, values ...string) {
	list := cmd.Flag(flag).Value.Type() == "stringSlice"
	CompleteFlag(cmd, flag, func(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := ""
		if comma := strings.LastIndexByte(prefix, ','); list && comma >= 0 {
			before = prefix[:comma+1]
		}
		all := make([]string, len(values))
		for i, value := range values {
			all[i] = before + value
		}
		return choose(all, prefix), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeByName completes the first argument and the flags of a command and all
// below it, where their placeholders say what they take.
func (env *Env) completeByName(cmd *cobra.Command) {
	if names := argumentNames(cmd); len(names) > 0 && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = env.completionOf(names[0])
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		placeholder, _ := pflag.UnquoteUsage(f)
		if complete := env.completionOf(placeholder); complete != nil {
			CompleteFlag(cmd, f.Name, func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return complete(cmd, nil, prefix)
			})
		}
	})
	for _, sub := range cmd.Commands() {
		env.completeByName(sub)
	}
}

func (env *Env) completionOf(placeholder string) cobra.CompletionFunc {
	switch placeholder {
	case "file", "FILE", "FILE...", "PATH":
		return files
	case "directory", "DIR":
		return dirs
	case "queue", "QUEUE":
		return env.Complete(QueueNames)
	}
	return nil
}

// completeContexts completes the names of contexts of the nats CLI.
func completeContexts(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return choose(config.NATSContexts(), prefix), cobra.ShellCompDirectiveNoFileComp
}
