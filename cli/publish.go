package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/client"
)

// maxStdinPayload is more than any NATS server takes.
const maxStdinPayload = 64 << 20

type publishFlags struct {
	headers    []string
	delay, ttl msValue
	dedupeID   string
	noWait     bool
}

func newPublishCommand(a *app) *cobra.Command {
	var f publishFlags
	cmd := &cobra.Command{
		Use:     "publish QUEUE [PAYLOAD]",
		Aliases: []string{"pub"},
		Short:   "Publish a message",
		Long: `Publish one message and print its id when it is safely stored. Without PAYLOAD,
or with -, the payload is all of standard input.`,
		Example: `  fila publish orders '{"id":1}' -H tenant=acme
  fila publish orders --delay 10m --dedupe-id order-1 < order.json`,
		Args: needArgs("QUEUE", "[PAYLOAD]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := f.options(cmd)
			if err != nil {
				return err
			}
			payload, err := payloadArgument(cmd.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			return a.online(cmd, func(ctx context.Context, s *session) error {
				if f.noWait {
					if err := s.Send(args[0], payload, options...); err != nil {
						return err
					}
					return s.flush(ctx)
				}
				receipt, err := s.Publish(ctx, args[0], payload, options...)
				if err != nil {
					return s.explainQueue(ctx, args[0], err)
				}
				return a.printReceipt(cmd, receipt)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.headers, "header", "H", nil, "header as `name=value`; may be repeated")
	flags.Var(&f.delay, "delay", "hold the message back for so long")
	flags.Var(&f.ttl, "ttl", "dead-letter it if it is not delivered within this time, at least 1s")
	flags.StringVar(&f.dedupeID, "dedupe-id", "", "a second message with this `id` within the queue's window is not stored again")
	flags.BoolVar(&f.noWait, "no-wait", false, "do not wait for the confirmation; prints no id")
	return cmd
}

func (f *publishFlags) options(cmd *cobra.Command) ([]client.PublishOption, error) {
	var options []client.PublishOption
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" || strings.ContainsAny(name, ": \t\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, usageError("--header %q: allowed is name=value, on one line, without spaces or colons in the name", header)
		}
		options = append(options, client.Header(name, value))
	}
	if cmd.Flags().Changed("delay") {
		options = append(options, client.Delay(f.delay.duration()))
	}
	if cmd.Flags().Changed("ttl") {
		options = append(options, client.TTL(f.ttl.duration()))
	}
	if cmd.Flags().Changed("dedupe-id") {
		if f.dedupeID == "" {
			return nil, usageError("--dedupe-id is empty")
		}
		options = append(options, client.DedupeID(f.dedupeID))
	}
	return options, nil
}

func payloadArgument(in io.Reader, args []string) ([]byte, error) {
	if len(args) > 0 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	if len(args) == 0 && stdinIsTerminal(in) {
		return nil, usageError(`PAYLOAD is missing: give it as an argument ("" for an empty one) or on standard input`)
	}
	payload, err := io.ReadAll(io.LimitReader(in, maxStdinPayload+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(payload) > maxStdinPayload {
		return nil, usageError("standard input has more than %s: no NATS server takes that", size(maxStdinPayload))
	}
	return payload, nil
}

func (a *app) printReceipt(cmd *cobra.Command, receipt client.Receipt) error {
	if a.json {
		return printJSON(cmd.OutOrStdout(), receipt)
	}
	if receipt.Duplicate {
		complain(cmd.ErrOrStderr(), "a duplicate; the id is that of the first message")
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), receipt.ID)
	return err
}
