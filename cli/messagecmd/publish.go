package messagecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
)

// Commands returns the commands that move or show messages.
func Commands(env *command.Env) []*cobra.Command {
	return []*cobra.Command{newPublishCommand(env), newConsumeCommand(env), newPeekCommand(env), newMessageCommand(env), newDeadCommand(env), newRedriveCommand(env), newJobCommand(env), newScheduleCommand(env)}
}

// publishRetry is how long a temporarily refused message is retried.
const publishRetry = time.Hour

type publishFlags struct {
	file         string
	lines, jsonl bool
	count        int64
	rate         float64
	window       int
	headers      []string
	delay, ttl   terminal.Millis
	dedupeID     string
	noConfirm    bool
	noRetry      bool
	quiet        bool
}

func newPublishCommand(env *command.Env) *cobra.Command {
	var f publishFlags
	cmd := &cobra.Command{
		Use:     "publish QUEUE [TEXT]",
		Aliases: []string{"pub"},
		Short:   "Publish one message or many",
		Long: `Publish a message, and print its id when it is on disk. The payload is TEXT, --file,
or standard input. For many messages, --count repeats one, --lines makes one of
every line, and --jsonl reads one from every line:

  {"payload":"text","headers":{"tenant":"acme"}}

A payload that is not a string is sent as JSON; payload_base64 holds bytes; in
header values \xNN is a byte, and \x5c a backslash before an x. dedupe_id, delay and
ttl mean the same as the flags; other fields are ignored, so the output of fila consume --json
can be published. Flags are for all messages, and a line's header replaces a flag's.

After many messages the last line has their number. The first refusal ends the
command, and the error has its line number. If fila refuses for now (429, 503), the
command waits as long as the refusal says, up to an hour, and retries, unless
--no-retry is given; a single message is not retried. After an interrupt it sends no
more messages and waits for confirmations.`,
		Example: `  fila publish orders '{"id":1}' -H tenant=acme
  fila publish orders --delay 10m --dedupe-id order-1 < order.json
  fila publish orders --file order.json --count 1000 --rate 50
  tail -F access.log | fila publish lines --lines
  fila consume orders.dlq --json --timeout 1s | fila publish orders --jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error { return publish(env, cmd, &f, args[0], args[1:]) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "read the payload, or the lines, from this `file`")
	flags.BoolVar(&f.lines, "lines", false, "publish every line as a message")
	flags.BoolVar(&f.jsonl, "jsonl", false, "publish a JSON object from every line")
	flags.Int64Var(&f.count, "count", 1, "publish the message this many times")
	flags.Float64Var(&f.rate, "rate", 0, "messages per second, at most; 0 is no limit")
	flags.IntVar(&f.window, "window", 1000, "messages that may wait for confirmation")
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header `name=value`; may be repeated")
	flags.Var(&f.delay, "delay", "delay the message")
	flags.Var(&f.ttl, "ttl", "dead-letter it if undelivered after this time, at least 1s")
	flags.StringVar(&f.dedupeID, "dedupe-id", "", "do not store a second message with this `id` within the queue's window; many messages get id-1, id-2")
	flags.BoolVar(&f.noConfirm, "no-confirm", false, "do not wait for confirmations: print neither ids nor refusals")
	flags.BoolVar(&f.noRetry, "no-retry", false, "with many messages: fail if fila refuses for now, instead of waiting")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print neither id nor summary nor progress")
	command.Bound(cmd, "count", 1, math.MaxInt64, "is 1 and more")
	command.Bound(cmd, "window", 1, 65_536, "")
	return cmd
}

// check refuses flags that contradict each other.
func (f *publishFlags) check(cmd *cobra.Command, text []string) error {
	flags := cmd.Flags()
	switch {
	case f.lines && f.jsonl:
		return command.UsageError("--lines and --jsonl: one of them is allowed")
	case (f.lines || f.jsonl) && flags.Changed("count"):
		return command.UsageError("--count repeats one message: not with --lines or --jsonl")
	case !(f.rate >= 0 && f.rate <= 1e9) || flags.Changed("rate") && f.rate == 0:
		return command.UsageError("--rate %v: allowed is more than 0, up to 1000000000", f.rate)
	case flags.Changed("file") && len(text) > 0:
		return command.UsageError("TEXT and --file: one of them is allowed")
	case (f.lines || f.jsonl) && len(text) > 0 && text[0] != "-":
		return command.UsageError("TEXT with --lines or --jsonl: the messages come from --file or standard input")
	}
	return nil
}

func publish(env *command.Env, cmd *cobra.Command, f *publishFlags, queue string, text []string) error {
	if err := f.check(cmd, text); err != nil {
		return err
	}
	common, err := f.message(cmd)
	if err != nil {
		return err
	}
	in, err := f.input(cmd.InOrStdin(), text)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only reads
	var messages source
	if f.lines || f.jsonl {
		messages = common.perLine(in, f.jsonl)
	} else {
		if common.payload, err = readPayload(in); err != nil {
			return err
		}
		messages = common.times(f.count)
	}
	return env.Stay(cmd, func(ctx context.Context, restore func(), s *command.Session) error {
		if !f.lines && !f.jsonl && f.count == 1 {
			return publishOne(ctx, env, cmd, s, f, queue, common.outgoing(0, common.payload))
		}
		p, err := newPipeline(env, cmd, s, f, queue)
		if err != nil {
			return err
		}
		return p.run(ctx, restore, messages)
	})
}

func publishOne(ctx context.Context, env *command.Env, cmd *cobra.Command, s *command.Session, f *publishFlags, queue string, m outgoing) error {
	if f.noConfirm {
		if err := s.Send(queue, m.payload, m.options...); err != nil {
			return s.Explain(err)
		}
		return s.Flush(ctx)
	}
	receipt, err := s.Publish(ctx, queue, m.payload, m.options...)
	if err != nil {
		return s.ExplainFor(context.WithoutCancel(ctx), queue, err)
	}
	if f.quiet {
		return nil
	}
	if receipt.Duplicate && !env.JSON {
		command.Complain(cmd.ErrOrStderr(), "a duplicate; the id belongs to the first message")
	}
	return env.Show(cmd, receipt, func() string {
		if receipt.Schedule != "" {
			return "schedule " + receipt.Schedule + ", next " + receipt.Next + "\n"
		}
		return receipt.ID + "\n"
	})
}

// refusedForNow reports whether a retry makes sense.
func refusedForNow(err error) bool {
	var refused *client.Error
	return errors.As(err, &refused) && (refused.Code == 429 || refused.Code == 503)
}

// input opens the source of messages.
func (f *publishFlags) input(in io.Reader, text []string) (io.ReadCloser, error) {
	switch {
	case len(text) > 0 && text[0] != "-":
		return io.NopCloser(strings.NewReader(text[0])), nil
	case f.file != "" && f.file != "-":
		file, err := os.Open(f.file)
		if err != nil {
			return nil, command.UsageError("--file %s: %w", f.file, command.PathReason(err))
		}
		return file, nil
	case len(text) == 0 && f.file == "" && !f.lines && !f.jsonl && terminal.IsTerminalInput(in):
		return nil, command.UsageError(`TEXT is missing: give it as an argument ("" for an empty one), as --file or on standard input`)
	}
	return io.NopCloser(in), nil
}

func readPayload(in io.Reader) ([]byte, error) {
	payload, err := io.ReadAll(io.LimitReader(in, maxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", command.PathReason(err))
	}
	if len(payload) > maxPayload {
		return nil, command.UsageError("the payload has more than %s: no NATS server takes that", terminal.Size(maxPayload))
	}
	return payload, nil
}
