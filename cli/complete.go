package cli

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
)

// completeWait is how long the completion of a word waits for fila.
const completeWait = time.Second

// lookup returns what may stand in one place of a command line, after args. It
// may return more than begins with prefix.
type lookup func(ctx context.Context, s *session, args []string, prefix string) ([]string, error)

// complete completes arguments, each by the lookup of its place. Where fila does
// not answer in time, there is nothing to choose from, and no message either: it
// would stand in the middle of what somebody types.
func (a *app) complete(places ...lookup) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(places) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeWait)
		defer cancel()
		found := make(chan []string, 1)
		go func() { found <- a.look(ctx, places[len(args)], args, prefix) }()
		select {
		case names := <-found:
			return choose(names, prefix), cobra.ShellCompDirectiveNoFileComp
		case <-ctx.Done(): // several servers, and the first do not answer
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func (a *app) look(ctx context.Context, find lookup, args []string, prefix string) []string {
	s, err := a.conn.open(nats.Timeout(completeWait))
	if err != nil {
		return nil
	}
	defer s.close()
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

// namesOf is the lookup of a list.
func namesOf[T any](list func(s *session, ctx context.Context, prefix string) ([]T, error), name func(T) string) lookup {
	return func(ctx context.Context, s *session, _ []string, prefix string) ([]string, error) {
		all, err := list(s, ctx, prefix)
		names := make([]string, len(all))
		for i := range all {
			names[i] = name(all[i])
		}
		return names, err
	}
}

var queueNames = namesOf(func(s *session, ctx context.Context, _ string) ([]client.QueueSummary, error) {
	return s.QueueList(ctx)
},
	func(q client.QueueSummary) string { return q.Name })

// fairnessKeys are those of the queue that is the first argument, as many as
// fila tells.
func fairnessKeys(ctx context.Context, s *session, args []string, _ string) ([]string, error) {
	info, err := s.QueueInspect(ctx, args[0], 1000)
	var keys []string
	for _, flow := range info.TopFlows {
		keys = append(keys, flow.Key)
	}
	return keys, err
}

// completeKeys completes a flag with the fairness keys of the queue that is the
// first argument.
func (a *app) completeKeys(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(nil, fairnessKeys)(cmd, args[:1], prefix)
}

// completeFiles and completeDirs let the shell complete names of files.
var (
	completeFiles = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	completeDirs  = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
)

// completeFlag completes the values of a flag. The flag must exist, and have no
// other completion.
func completeFlag(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // a mistake in this program
	}
}

// allow completes a flag with what it may be. Of a flag that takes a list, each
// part is completed.
func allow(cmd *cobra.Command, flag string, values ...string) {
	list := cmd.Flag(flag).Value.Type() == "stringSlice"
	completeFlag(cmd, flag, func(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
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

// completeFlags completes the flags of a command and all below it whose
// placeholder says what they take.
func (a *app) completeFlags(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch placeholder, _ := pflag.UnquoteUsage(f); placeholder {
		case "file":
			completeFlag(cmd, f.Name, completeFiles)
		case "directory":
			completeFlag(cmd, f.Name, completeDirs)
		case "queue":
			queues := a.complete(queueNames)
			completeFlag(cmd, f.Name, func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return queues(cmd, nil, prefix)
			})
		}
	})
	for _, sub := range cmd.Commands() {
		a.completeFlags(sub)
	}
}

// completeContexts completes the names of contexts of the nats CLI.
func (a *app) completeContexts(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if a.conn.contexts == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return choose(a.conn.contexts.Names(), prefix), cobra.ShellCompDirectiveNoFileComp
}
