package messagecmd

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

type peekFlags struct {
	only    *command.FilterFlags
	filter  *api.Filter // filter of the flags; nil without flags
	limit   int
	verbose bool
	bytes   int
}

func newPeekCommand(env *command.Env) *cobra.Command {
	var f peekFlags
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show messages of a queue without taking them",
		Long: `Show messages of a queue or a dead letter queue without leasing them, in the order
of arrival, each with its state: ready, blocked (by which gate), delayed (until
when), leased (to whom) or dead (why, after how many attempts, how long ago).

-v prints headers and payloads, up to --payload-bytes, and base64 if it is not text.`,
		Example: `  fila peek orders
  fila peek orders --key acme --limit 100
  fila peek orders --state blocked --gate throttle:stripe
  fila peek orders.dlq --header tenant=acme --error-contains "card declined" --died-after 2h -v
  fila peek orders --json | jq -r '.messages[].id'`,
	}
	f.addTo(env, cmd, "")
	return cmd
}

// addTo adds a command peek. Its first argument is a queue; the suffix may be omitted.
func (f *peekFlags) addTo(env *command.Env, cmd *cobra.Command, suffix string) {
	queue := func(args []string) string { return strings.TrimSuffix(args[0], suffix) + suffix }
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if f.filter, err = f.only.Named(); err != nil {
			return err
		}
		if err := wire.CheckQueueName(queue(args)); err != nil {
			return command.UsageError("%w", err)
		}
		return nil
	}
	cmd.RunE = command.Ask(env, func(ctx context.Context, s *command.Session, args []string) (api.PeekReply, error) {
		return peek(ctx, s, queue(args), *f)
	}, func(reply api.PeekReply, _ []string) string {
		return showPeeked(env, terminal.StyleFor(cmd.OutOrStdout()), reply, *f)
	})
	f.only = env.FilterFlags(cmd, queue)
	flags := cmd.Flags()
	flags.IntVar(&f.limit, "limit", api.DefaultPeekLimit, "show at most this many")
	flags.IntVar(&f.bytes, "payload-bytes", api.DefaultPeekPayload, "cut payloads and headers to this many bytes each, up to 65536")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print headers and payloads")
	command.Bound(cmd, "limit", 1, math.MaxInt, "is 1 and more")
	command.Bound(cmd, "payload-bytes", 0, api.MaxPeekPayload, "")
}

// peek reads pages until it has enough messages.
func peek(ctx context.Context, s *command.Session, queue string, f peekFlags) (api.PeekReply, error) {
	all := api.PeekReply{Queue: queue, Messages: []api.PeekedMessage{}}
	for {
		page, err := s.Peek(ctx, queue, api.PeekRequest{
			Filter: f.filter, Limit: min(f.limit-len(all.Messages), api.MaxPeekLimit), After: all.Next, PayloadBytes: f.bytes,
		})
		if err != nil {
			return all, err
		}
		all.Messages = append(all.Messages, page.Messages...)
		if all.Next = page.Next; all.Next == 0 || len(all.Messages) >= f.limit {
			return all, nil
		}
	}
}

func showPeeked(env *command.Env, paint terminal.Style, reply api.PeekReply, f peekFlags) string {
	if len(reply.Messages) == 0 {
		what := "queue " + reply.Queue + " has no messages"
		if f.filter != nil {
			what += " that match"
		}
		return what + "\n"
	}
	var parts []string
	if f.verbose {
		for i := range reply.Messages {
			parts = append(parts, longPeeked(env, paint, &reply.Messages[i]))
		}
	} else {
		parts = append(parts, peekedTable(env, reply))
	}
	if reply.Next != 0 {
		parts = append(parts, "there are more; see --limit\n")
	}
	return terminal.Sections(parts...)
}

// peekedTable has a line for each message. For dead letters it shows the number of attempts and
// the time since their death.
func peekedTable(env *command.Env, reply api.PeekReply) string {
	header := []string{"ID", "KEY", "STATE", "ATTEMPT", "AGE", "WAITS FOR", "PAYLOAD"}
	dead := wire.IsDLQ(reply.Queue)
	if dead {
		header = []string{"ID", "KEY", "STATE", "ATTEMPTS", "AGE", "DEAD FOR", "WAITS FOR", "PAYLOAD"}
	}
	t := terminal.NewTable(header...)
	for i := range reply.Messages {
		m := &reply.Messages[i]
		waits, payload := terminal.OrDash(waitsFor(env, m)), terminal.Fit(payloadLine(m), 60)
		switch {
		case !dead:
			t.Row(m.ID, m.Key, m.State, m.Attempt, env.Age(m.EnqueuedAt), waits, payload)
		case m.Dead == nil || m.Dead.At == "": // unreadable
			t.Row(m.ID, m.Key, m.State, "-", env.Age(m.EnqueuedAt), "-", waits, payload)
		default:
			t.Row(m.ID, m.Key, m.State, m.Dead.Attempts, env.Age(m.EnqueuedAt), env.Age(m.Dead.At), waits, payload)
		}
	}
	return t.String()
}

// waitsFor describes briefly what a message waits for.
func waitsFor(env *command.Env, m *api.PeekedMessage) string {
	switch {
	case m.State == api.StateLeased:
		return "consumer " + m.Consumer + ", lease ends " + env.Soon(m.LeaseUntil)
	case m.BlockedBy != nil:
		text := m.BlockedBy.Gate + " (" + m.BlockedBy.Kind + ")"
		switch {
		case m.BlockedBy.DeadLetters:
			text += ", becomes a dead letter"
		case m.BlockedBy.AdmitsAt != "":
			text += ", may go " + env.Soon(m.BlockedBy.AdmitsAt)
		}
		return text
	case m.State == api.StateDelayed:
		return "the end of its delay, " + env.Soon(m.ReadyAt)
	case m.Dead != nil:
		return "a redrive: " + deadText(m.Dead)
	}
	return api.WaitsForText(m.WaitsFor)
}

func deadText(d *api.DeadInfo) string {
	text := d.Reason
	if d.ErrorCode != "" {
		text += " [" + d.ErrorCode + "]"
	}
	if d.Error != "" {
		text += ": " + d.Error
	}
	return text
}

// payloadLine formats the payload on one line.
func payloadLine(m *api.PeekedMessage) string {
	switch {
	case m.Unreadable != "":
		return "(unreadable: " + m.Unreadable + ")"
	case m.Payload != nil && printable(*m.Payload):
		return strings.Join(strings.Fields(*m.Payload), " ")
	}
	return "base64:" + base64.StdEncoding.EncodeToString(payloadBytes(m))
}

func payloadBytes(m *api.PeekedMessage) []byte {
	if m.Payload != nil {
		return []byte(*m.Payload)
	}
	return m.PayloadBase64
}

// printable reports whether a terminal can show the text, over several lines.
func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

func longPeeked(env *command.Env, paint terminal.Style, m *api.PeekedMessage) string {
	var b strings.Builder
	attempt, died := fmt.Sprintf("attempt %d", m.Attempt), ""
	if m.Dead != nil && m.Dead.At != "" {
		attempt, died = terminal.Plural(int64(m.Dead.Attempts), "attempt"), ", dead since "+env.When(m.Dead.At)
	}
	facts := []string{m.State, "key " + terminal.Clean(m.Key), attempt, "enqueued " + env.When(m.EnqueuedAt) + died}
	if m.Priority > 0 {
		facts = append(facts, fmt.Sprintf("priority %d", m.Priority))
	}
	if waits := waitsFor(env, m); waits != "" {
		facts = append(facts, "waits for "+terminal.Clean(waits))
	}
	if m.ExpiresAt != "" {
		facts = append(facts, "expires "+env.Soon(m.ExpiresAt))
	}
	fmt.Fprintf(&b, "%s  %s\n", paint.Bold(terminal.Clean(m.ID)), strings.Join(facts, ", "))
	b.WriteString(env.Timeline(m.History))
	b.WriteString(content(paint, m))
	return b.String()
}

// content formats the headers and the payload of a message.
func content(paint terminal.Style, m *api.PeekedMessage) string {
	var b strings.Builder
	writeHeaders(&b, paint, m.Headers)
	if m.HeadersCut {
		b.WriteString("(more headers)\n")
	}
	text := payloadLine(m)
	if m.Payload != nil && printable(*m.Payload) && m.Unreadable == "" {
		text = strings.ReplaceAll(*m.Payload, "\r", "")
	}
	fmt.Fprintf(&b, "\n%s\n", text)
	if m.PayloadCut {
		fmt.Fprintf(&b, "(the first %d of %d bytes)\n", len(payloadBytes(m)), m.PayloadBytes)
	}
	return b.String()
}

// writeHeaders writes a line for each header value, except omitted headers.
func writeHeaders(b *strings.Builder, paint terminal.Style, headers map[string][]string, without ...string) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if slices.Contains(without, name) {
			continue
		}
		for _, value := range headers[name] {
			fmt.Fprintf(b, "%s %s\n", paint.Dim(terminal.Clean(name)+":"), terminal.Clean(value))
		}
	}
}
