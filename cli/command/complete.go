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
	"github.com/filaq/fila/wire/api"
)

// completeWait bounds the time of a completion.
const completeWait = time.Second

// Lookup returns the possible words at one place of a command line, given the arguments before
// it. It may return words without the prefix. A word may have an explanation ([Described]).
type Lookup func(ctx context.Context, s *Session, args []string, prefix string) ([]string, error)

// Complete completes arguments, each with the lookup of its place. If fila does not answer in
// time, it returns no words and no message, which would disturb the user's input.
func (env *Env) Complete(places ...Lookup) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(places) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completeWait)
		defer cancel()
		found := make(chan []string, 1)
		go func() { found <- env.lookUp(ctx, places[len(args)], args, prefix) }()
		select {
		case names := <-found:
			return choose(names, prefix), cobra.ShellCompDirectiveNoFileComp
		case <-ctx.Done(): // with several servers, the first may not answer
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func (env *Env) lookUp(ctx context.Context, find Lookup, args []string, prefix string) []string {
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

// Described is a word with an explanation that shells show.
func Described(word, about string) string {
	return cobra.CompletionWithDesc(word, terminal.Fit(terminal.Clean(about), 60))
}

// choose returns the names that begin with prefix, except names that do not fit on one line.
func choose(names []string, prefix string) []string {
	names = slices.DeleteFunc(names, func(name string) bool {
		word, _, _ := strings.Cut(name, "\t")
		return !strings.HasPrefix(name, prefix) || strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) })
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Words completes fixed words.
func Words(all []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return choose(slices.Clone(all), prefix), cobra.ShellCompDirectiveNoFileComp
}

// NamesOf makes a lookup of a list that the client returns.
func NamesOf[T any](list func(c *client.Client, ctx context.Context, prefix string) ([]T, error), name func(T) string) Lookup {
	return func(ctx context.Context, s *Session, _ []string, prefix string) ([]string, error) {
		all, err := list(s.Client, ctx, prefix)
		return words(all, name), err
	}
}

// QueueNames completes queues, including dead letter queues.
var QueueNames = NamesOf(func(c *client.Client, ctx context.Context, _ string) ([]api.QueueSummary, error) {
	return c.QueueList(ctx)
}, func(q api.QueueSummary) string { return q.Name })

// FairnessKeys completes the keys of the queue in the first argument, as far as fila lists
// them.
func FairnessKeys(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	info, err := s.QueueInspect(ctx, args[0], 1000)
	return words(info.TopFlows, func(f api.FlowInfo) string { return f.Key }), err
}

// words returns the names of things, except names with a tab, which separates a word from its
// explanation.
func words[T any](all []T, name func(T) string) (names []string) {
	for _, one := range all {
		if word := name(one); !strings.Contains(word, "\t") {
			names = append(names, word)
		}
	}
	return names
}

// consumers completes the consumers of the queue in the first argument.
func consumers(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	info, err := s.QueueInspect(ctx, args[0], 0)
	return words(info.ConsumerList, func(c api.ConsumerInfo) string { return c.Name }), err
}

// gates completes throttle and circuit keys, with their kinds.
func gates(ctx context.Context, s *Session, _ []string, prefix string) (names []string, err error) {
	kind, key, _ := strings.Cut(prefix, ":")
	if strings.HasPrefix(api.PauseThrottle, kind) {
		all, err := s.ThrottleList(ctx, key)
		if err != nil {
			return nil, err
		}
		names = words(all, func(t api.ThrottleInfo) string { return api.PauseThrottle + ":" + t.Key })
	}
	if strings.HasPrefix(api.PauseCircuit, kind) {
		all, err := s.CircuitList(ctx, key)
		if err != nil {
			return nil, err
		}
		names = append(names, words(all, func(c api.CircuitInfo) string { return api.PauseCircuit + ":" + c.Key })...)
	}
	return names, nil
}

// ErrorGroups completes the groups of dead letters of the queue in the first argument, with
// their errors.
func ErrorGroups(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	all, err := s.DeadGroups(ctx, wire.DeadLetters(args[0]), api.MaxDeadGroups)
	var names []string
	for i := range all.Groups {
		g := &all.Groups[i]
		names = append(names, Described(g.Group, terminal.Plural(g.Messages, "message")+": "+strings.TrimSpace(g.ErrorCode+" "+g.Error)))
	}
	return names, err
}

// errorCodes completes the codes of these groups.
func errorCodes(ctx context.Context, s *Session, args []string, _ string) ([]string, error) {
	all, err := s.DeadGroups(ctx, wire.DeadLetters(args[0]), api.MaxDeadGroups)
	codes := words(all.Groups, func(g api.DeadGroup) string { return g.ErrorCode })
	return slices.DeleteFunc(codes, func(code string) bool { return code == "" }), err
}

// OfQueue completes a flag with a lookup for a queue. queue returns the queue of the arguments;
// nil means the first argument.
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

// The shell completes file names.
var (
	files = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	dirs  = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
)

// CompleteFlag completes the values of a flag. The flag must exist and have no other
// completion.
func CompleteFlag(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // a bug in this program
	}
}

// Allow completes a flag with fixed values. In a flag with a list, it completes each part.
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

// completeByName completes the first argument and the flags of a command and its subcommands
// according to their placeholders.
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

// completeContexts completes contexts of the nats CLI.
func completeContexts(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return choose(config.NATSContexts(), prefix), cobra.ShellCompDirectiveNoFileComp
}
