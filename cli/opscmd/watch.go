package opscmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/wire"
)

type watchFlags struct {
	types []string
	queue string
	count int
}

func newWatchCommand(env *command.Env) *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Print events as they happen",
		Long: `Print fila's events, one line each, until an interrupt. fila does not store events.
docs/protocol.md explains the types; a wrong --type lists them.`,
		Example: `  fila watch
  fila watch --type dead-lettered,circuit-changed
  fila watch --queue orders --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, typ := range f.types {
				if known := eventTypes(); !slices.Contains(known, typ) {
					return command.UsageError("--type %q: allowed are %s", typ, strings.Join(known, ", "))
				}
			}
			return env.Stay(cmd, func(ctx context.Context, _ func(), s *command.Session) error {
				w := watcher{env: env, flags: f, out: cmd.OutOrStdout(), paint: terminal.StyleFor(cmd.OutOrStdout())}
				return w.watch(ctx, s, cmd.ErrOrStderr())
			}, nats.PermissionErrOnSubscribe(true))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.types, "type", nil, "only events of this `type`; may be repeated")
	command.Allow(cmd, "type", eventTypes()...)
	flags.StringVar(&f.queue, "queue", "", "only events of this `queue`")
	flags.IntVar(&f.count, "count", 0, "end after this many events; 0 is no end")
	command.Bound(cmd, "count", 0, math.MaxInt, "is 0 (no end) and more")
	return cmd
}

func (w *watcher) watch(ctx context.Context, s *command.Session, errOut io.Writer) error {
	subjects, err := wire.NewSubjects(s.Prefix())
	if err != nil {
		return err
	}
	sub, err := s.Conn().SubscribeSync(subjects.Wildcard(wire.KindEvent))
	if err != nil {
		return err
	}
	if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	missed := 0
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrSlowConsumer):
			continue
		case err != nil:
			return s.Explain(fmt.Errorf("subscribe to events: %w", err))
		}
		if dropped, err := sub.Dropped(); err == nil && dropped > missed {
			command.Complain(errOut, fmt.Sprintf("%s missed: they came faster than they could be printed", terminal.Plural(int64(dropped-missed), "event")))
			missed = dropped
		}
		if more, err := w.print(msg.Data); err != nil || !more {
			return err
		}
	}
}

type watcher struct {
	env     *command.Env
	flags   watchFlags
	out     io.Writer
	paint   terminal.Style
	printed int
}

// print prints an event if the flags select it, and reports whether to continue.
func (w *watcher) print(data []byte) (more bool, err error) {
	var e wire.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return true, nil // not from fila: the subject is open to others
	}
	if len(w.flags.types) > 0 && !slices.Contains(w.flags.types, e.Type) || w.flags.queue != "" && e.Queue != w.flags.queue {
		return true, nil
	}
	if w.env.JSON {
		err = terminal.PrintJSONLine(w.out, e)
	} else {
		_, err = fmt.Fprintln(w.out, w.line(e))
	}
	w.printed++
	return w.flags.count == 0 || w.printed < w.flags.count, err
}

func (w *watcher) line(e wire.Event) string {
	at := e.Time
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		at = t.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	known := findEvent(e.Type)
	return w.paint.Dim(terminal.Clean(at)) + "  " + known.paint(w.paint, terminal.Pad(terminal.Clean(e.Type), 20)) + "  " + terminal.Clean(known.sentence(w.env, e))
}

// eventData reads the data of an event; any field may be missing.
type eventData map[string]any

func (d eventData) text(name string) string {
	switch v := d[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		texts := make([]string, len(v))
		for i := range v {
			texts[i] = fmt.Sprint(v[i])
		}
		return strings.Join(texts, "; ")
	case float64:
		return terminal.Number(v)
	default:
		return compactJSON(v)
	}
}

func compactJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil || string(data) == "null" {
		return ""
	}
	return string(data)
}
