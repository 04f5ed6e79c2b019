package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire"
)

type peekFlags struct {
	key     string
	limit   int
	verbose bool
	bytes   int
}

func newPeekCommand(a *app) *cobra.Command {
	var f peekFlags
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show messages of a queue without taking them",
		Long: `Show messages of a queue, dead letters included, without leasing them: nothing
changes, no attempt is counted, and nobody waits. The oldest come first, which
need not be the order in which they will be delivered. Each is shown with its
state: pending, parked (and by which gate), delayed (and until when), leased
(and to whom) or dead (and why).

A payload is cut to fit the line; with -v headers and payloads are printed, too,
up to --payload-bytes. What is not text is printed as base64.`,
		Example: `  fila peek orders
  fila peek orders --key acme --limit 100
  fila peek orders.dlq -v
  fila peek orders --json | jq -r '.messages[].id'`,
		Args:              needArgs("QUEUE"),
		ValidArgsFunction: a.complete(queueNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.limit < 1 {
				return usageError("--limit %d: allowed is 1 and more", f.limit)
			}
			if f.bytes < 0 || f.bytes > wire.MaxPeekPayload {
				return usageError("--payload-bytes %d: allowed are 0 to %d", f.bytes, wire.MaxPeekPayload)
			}
			return a.online(cmd, func(ctx context.Context, s *session) error {
				reply, err := s.peek(ctx, args[0], f)
				if err != nil {
					return hintQueue(err)
				}
				if a.json {
					return printJSON(cmd.OutOrStdout(), reply)
				}
				return a.printPeeked(cmd.OutOrStdout(), reply, f)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.key, "key", "", "only messages of this fairness `key`")
	completeFlag(cmd, "key", a.completeKeys)
	flags.IntVar(&f.limit, "limit", wire.DefaultPeekLimit, "show at most so many")
	flags.IntVar(&f.bytes, "payload-bytes", wire.DefaultPeekPayload, "cut payloads, and headers, to so many bytes each; up to 65536")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print headers and payloads")
	return cmd
}

// peek asks page by page until it has enough.
func (s *session) peek(ctx context.Context, queue string, f peekFlags) (wire.PeekReply, error) {
	all := wire.PeekReply{Queue: queue, Messages: []wire.PeekedMessage{}}
	for {
		page := wire.PeekReply{}
		err := s.ask(ctx, wire.VerbPeek, queue, wire.PeekRequest{
			Key: f.key, Limit: min(f.limit-len(all.Messages), wire.MaxPeekLimit), After: all.Next, PayloadBytes: f.bytes,
		}, &page)
		if err != nil {
			return all, err
		}
		all.Messages = append(all.Messages, page.Messages...)
		if all.Next = page.Next; all.Next == 0 || len(all.Messages) >= f.limit {
			return all, nil
		}
	}
}

// ask makes an admin request about a queue.
func (s *session) ask(ctx context.Context, verb, queue string, body, into any) error {
	if err := wire.CheckQueueName(queue); err != nil {
		return usageError("%w", err)
	}
	subjects, err := wire.NewSubjects(s.Prefix())
	if err != nil {
		return err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	reply, err := s.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subjects.Admin(verb, queue), Data: data})
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrNoResponders):
		return client.ErrNoFila
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", client.ErrNoReply, err)
	default:
		return err
	}
	if refused := wire.ParseError(reply.Header, reply.Data); refused != nil {
		return refused
	}
	return json.Unmarshal(reply.Data, into)
}

func (a *app) printPeeked(w io.Writer, reply wire.PeekReply, f peekFlags) error {
	if len(reply.Messages) == 0 {
		what := "queue " + reply.Queue + " has no messages"
		if f.key != "" {
			what += " of key " + clean(f.key)
		}
		_, err := fmt.Fprintln(w, what)
		return err
	}
	var err error
	if f.verbose {
		err = a.printPeekedLong(w, reply.Messages)
	} else {
		t := newTable("ID", "KEY", "STATE", "ATTEMPT", "AGE", "WAITS FOR", "PAYLOAD")
		for i := range reply.Messages {
			m := &reply.Messages[i]
			t.row(m.ID, m.Key, m.State, m.Attempt, a.soon(m.EnqueuedAt), orDash(a.waitsFor(m)), fit(payloadLine(m), 60))
		}
		err = t.print(w)
	}
	if err == nil && reply.Next != 0 {
		_, err = fmt.Fprintf(w, "\nthere are more: fila peek %s --limit %d\n", reply.Queue, 10*f.limit)
	}
	return err
}

// waitsFor says what a message waits for, in a few words.
func (a *app) waitsFor(m *wire.PeekedMessage) string {
	switch {
	case m.State == wire.StateLeased:
		return "consumer " + m.Consumer + ", lease ends " + a.soon(m.LeaseUntil)
	case m.BlockedBy != nil:
		text := m.BlockedBy.Gate + " (" + m.BlockedBy.Kind + ")"
		if m.BlockedBy.OpensAt != "" {
			text += ", opens " + a.soon(m.BlockedBy.OpensAt)
		}
		return text
	case m.State == wire.StateDelayed:
		return "its time, " + a.soon(m.ReadyAt)
	case m.Dead != nil:
		return "a redrive: " + deadText(m.Dead)
	}
	return ""
}

func deadText(d *wire.DeadInfo) string {
	text := d.Reason
	if d.ErrorCode != "" {
		text += " [" + d.ErrorCode + "]"
	}
	if d.Error != "" {
		text += ": " + d.Error
	}
	return text
}

// payloadLine is the payload on one line.
func payloadLine(m *wire.PeekedMessage) string {
	switch {
	case m.Unreadable != "":
		return "(unreadable: " + m.Unreadable + ")"
	case m.Payload != nil && printable(*m.Payload):
		return strings.Join(strings.Fields(*m.Payload), " ")
	}
	return "base64:" + base64.StdEncoding.EncodeToString(payloadBytes(m))
}

func payloadBytes(m *wire.PeekedMessage) []byte {
	if m.Payload != nil {
		return []byte(*m.Payload)
	}
	return m.PayloadBase64
}

// printable reports whether text can go to a terminal, over several lines.
func printable(text string) bool {
	for _, r := range text {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

func (a *app) printPeekedLong(w io.Writer, messages []wire.PeekedMessage) error {
	paint := styleFor(w)
	for i := range messages {
		m := &messages[i]
		var b strings.Builder
		if i > 0 {
			b.WriteString("\n")
		}
		facts := []string{m.State, "key " + clean(m.Key), fmt.Sprintf("attempt %d", m.Attempt), "enqueued " + a.when(m.EnqueuedAt)}
		if waits := a.waitsFor(m); waits != "" {
			facts = append(facts, "waits for "+clean(waits))
		}
		if m.ExpiresAt != "" {
			facts = append(facts, "expires "+a.soon(m.ExpiresAt))
		}
		fmt.Fprintf(&b, "%s  %s\n", paint.bold(clean(m.ID)), strings.Join(facts, ", "))
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			for _, value := range m.Headers[name] {
				fmt.Fprintf(&b, "%s %s\n", paint.dim(clean(name)+":"), clean(value))
			}
		}
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
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}
