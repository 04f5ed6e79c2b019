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

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// completeWait is how long the completion of a word waits for fila.
const completeWait = time.Second

// Lookup returns what may stand in one place of a command line, after args. It
// may return more than begins with prefix. A word may have an explanation ([Described]).
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

// Described is a word with what a shell shows beside it.
func Described(word, about string) string {
	return cobra.CompletionWithDesc(word, terminal.Fit(terminal.Clean(about), 60))
}

// choose returns the names that begin with prefix. Those that a command line
// cannot hold on one line are left out.
func choose(names []string, prefix string) []string {
	names = slices.DeleteFunc(names, func(name string) bool {
		word, _, _ := strings.Cut(name, "\t")
		return !strings.HasPrefix(name, prefix) || strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) })
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Words completes with words that need no fila.
func Words(all []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return choose(slices.Clone(all), prefix), cobra.ShellCompDirectiveNoFileComp
}

// NamesOf is the lookup of a list that the client gets.
func NamesOf[T any](list func(c *client.Client, ctx context.Context, prefix string) ([]T, error), name func(T) string) Lookup {
	return func(ctx context.Context, s *Session, _ []string, prefix string) ([]string, error) {
		all, err := list(s.Client, ctx, prefix)
		names := make([]string, len(all))
		for i := range all {
			names[i] = name(all[i])
		}
		return oneWord(names), err
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
	return oneWord(keys), err
}

// oneWord leaves out names with a tab, behind which a shell would see an explanation.
func oneWord(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "\t") })
}

// consumers are those that the queue that is the first argument has registered.
func consumers(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	info, err := s.QueueInspect(ctx, args[0], 0)
	var names []string
	for _, c := range info.ConsumerList {
		names = append(names, c.Name)
	}
	return oneWord(names), err
}

// gates are all throttle and circuit keys, with their kinds.
func gates(ctx context.Context, s *Session, _ []string, prefix string) ([]string, error) {
	kind, key, _ := strings.Cut(prefix, ":")
	var names []string
	if strings.HasPrefix(wire.PauseThrottle, kind) {
		all, err := s.ThrottleList(ctx, key)
		if err != nil {
			return nil, err
		}
		for i := range all {
			names = append(names, wire.PauseThrottle+":"+all[i].Key)
		}
	}
	if strings.HasPrefix(wire.PauseCircuit, kind) {
		all, err := s.CircuitList(ctx, key)
		if err != nil {
			return nil, err
		}
		for i := range all {
			names = append(names, wire.PauseCircuit+":"+all[i].Key)
		}
	}
	return oneWord(names), nil
}

// ErrorGroups are the groups of the dead letters of the queue that is the first argument,
// each with its error.
func ErrorGroups(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	all, err := s.DeadGroups(ctx, wire.DeadLetters(args[0]), wire.MaxDeadGroups)
	var names []string
	for i := range all.Groups {
		g := &all.Groups[i]
		names = append(names, Described(g.Group, terminal.Plural(g.Messages, "message")+": "+strings.TrimSpace(g.ErrorCode+" "+g.Error)))
	}
	return names, err
}

// errorCodes are the codes of these groups.
func errorCodes(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	all, err := s.DeadGroups(ctx, wire.DeadLetters(args[0]), wire.MaxDeadGroups)
	var codes []string
	for i := range all.Groups {
		if code := all.Groups[i].ErrorCode; code != "" {
			codes = append(codes, code)
		}
	}
	return oneWord(codes), err
}

// OfQueue completes a flag with what a lookup finds of the queue that is the first
// argument. queue says which that is; nil: the argument itself.
func (env *Env) OfQueue(find Lookup, queue func(args []string) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		name := args[0]
		if queue != nil {
			name = queue(args)
		}
		return env.Complete(nil, find)(cmd, []string{name}, prefix)
	}
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
