package command

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/filaq/fila/wire"
)

// mostMeant bounds the suggestions.
const mostMeant = 3

// queuesNamed returns the queues in a command line, found by the placeholders of arguments and
// flags.
func queuesNamed(cmd *cobra.Command) (names []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if placeholder, _ := pflag.UnquoteUsage(f); placeholder == "queue" {
			names = append(names, f.Value.String())
		}
	})
	if len(names) > 0 {
		return names
	}
	args := cmd.Flags().Args()
	for i, placeholder := range argumentNames(cmd) {
		if strings.HasPrefix(placeholder, "QUEUE") && i < len(args) {
			names = append(names, args[i])
		}
	}
	return names
}

// meant returns the question whether a queue with a similar name is meant; empty if there is none
// or fila does not answer.
func (s *Session) meant() string {
	ctx, cancel := context.WithTimeout(context.Background(), completeWait)
	defer cancel()
	queues, err := s.QueueList(ctx)
	if err != nil {
		return ""
	}
	all := make([]string, len(queues))
	for i := range queues {
		all[i] = queues[i].Name
	}
	var names []string
	for _, name := range s.named {
		names = append(names, Near(name, all)...)
	}
	return DidYouMean(names)
}

// DidYouMean returns the question whether one of some names is meant; empty if there is none.
func DidYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(names, " or ") + "? "
}

// Near returns suggestions for a name: the names with the smallest edit distance, if that is
// small, or else the names that begin with it.
func Near(name string, all []string) []string {
	if slices.Contains(all, name) {
		return nil
	}
	given, least := strings.ToLower(name), 1+len(name)/4
	var names, longer []string
	for _, other := range all {
		text := strings.ToLower(other)
		if strings.HasPrefix(text, given) && wire.IsDLQ(other) == wire.IsDLQ(name) {
			longer = append(longer, other)
		}
		far := distance(given, text)
		if far < least {
			least, names = far, nil
		}
		if far == least {
			names = append(names, other)
		}
	}
	if len(names) == 0 {
		names = longer
	}
	return names[:min(len(names), mostMeant)]
}

// distance is the edit distance of a and b, in bytes: insertions, deletions, changes, and swaps
// of neighbours.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
