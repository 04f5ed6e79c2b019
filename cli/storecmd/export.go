package storecmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
)

func newStoreExportCommand(env *command.Env) *cobra.Command {
	var to string
	e := &exporter{opts: storeOptions(env)}
	cmd := &cobra.Command{
		Use:   "export PATH",
		Short: "Print a store as JSON lines",
		Long: `Print a store as JSON lines, for "fila store import" and other programs: queues,
runtime configuration, consumers, messages with headers and payload, attempts,
leases, reasons of dead letters, and dedupe ids. PATH is a data directory, fila.db
or backup.

--all adds fila's own state (pauses, overrides, open circuits, the audit log) and
the key of the ack tokens. Keep such an export as safe as a key.

An unreadable entry ends the export. --skip-broken leaves such entries out and names
them on standard error; the exit code is then 1. It is 9 if the last commit may be
missing, which standard error says.`,
		Example: `  fila store export /var/lib/fila > store.jsonl
  fila store export backup.db --all --to store.jsonl
  fila store export /var/lib/fila | jq -c 'select(.type == "message" and .dead)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.errOut = cmd.ErrOrStderr()
			return e.run(config.StoreFile(args[0]), to, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "write and sync a new `file` (default standard output)")
	cmd.Flags().BoolVar(&e.all, "all", false, "include fila's own state and the key of the ack tokens")
	cmd.Flags().BoolVar(&e.skip, "skip-broken", false, "leave out what cannot be read")
	return cmd
}

// exporter writes the lines of one store.
type exporter struct {
	all, skip bool
	errOut    io.Writer
	opts      store.Options

	out     *bufio.Writer
	enc     *json.Encoder
	lines   int64
	skipped int64
	names   map[store.QueueID]string
}

func (e *exporter) run(file, to string, stdout io.Writer) (err error) {
	f, err := store.OpenFile(file, e.opts)
	if err != nil {
		return storeError(file, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if to == "" {
		err = e.write(f, stdout)
	} else {
		err = e.writeFile(f, to)
	}
	if err != nil {
		return storeError(file, err)
	}
	doubt := lastCommit(file, f.TornMeta(), f.Lost())
	if e.skipped > 0 {
		if doubt != nil {
			command.Complain(e.errOut, doubt.Error())
		}
		return fmt.Errorf("the export leaves out %s that could not be read", terminal.Plural(e.skipped, "record"))
	}
	return doubt
}

// writeFile writes a complete, synced new file, or none.
func (e *exporter) writeFile(f *storefile.File, to string) error {
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = e.write(f, target); err == nil {
		err = target.Sync()
	}
	if err = errors.Join(err, target.Close()); err != nil {
		err = errors.Join(err, os.Remove(to))
	}
	return err
}

func (e *exporter) write(f *storefile.File, out io.Writer) error {
	e.out = bufio.NewWriterSize(out, 1<<20)
	e.enc = json.NewEncoder(e.out)
	e.enc.SetEscapeHTML(false)
	snap, err := f.Snapshot()
	if err != nil {
		return err
	}
	if err := e.head(&snap); err != nil {
		return err
	}
	var broken func(*store.CorruptError)
	if e.skip {
		broken = func(ce *store.CorruptError) {
			e.skipped++
			command.Complain(e.errOut, "left out: "+terminal.Clean(ce.Error()))
		}
	}
	err = f.Messages(broken, func(m *store.Message, st *store.State, history [][]byte) error {
		name, ok := e.names[m.Queue]
		if !ok {
			return fmt.Errorf("message %d is of queue %d, which does not exist", m.Seq, m.Queue)
		}
		return e.line(newMessageLine(name, m, st, history))
	})
	if err != nil {
		return err
	}
	err = f.Dedupes(broken, func(d store.Dedupe) error {
		return e.line(dedupeLine{lineDedupe, e.names[d.Queue], rawText(d.DedupeID), id(d.ID), stamp(d.Until)})
	})
	if err != nil {
		return err
	}
	if err := e.line(endLine{lineEnd, e.lines}); err != nil {
		return err
	}
	return e.out.Flush()
}

func (e *exporter) line(v any) error {
	e.lines++
	return e.enc.Encode(v)
}

// keySchedule is the prefix of the keys of schedules, which are exported with their queues.
const keySchedule = "\x00schedule/"

// head writes everything but messages and dedupe ids.
func (e *exporter) head(snap *store.Snapshot) error {
	head := headerLine{Type: lineHeader, Format: exportFormat, Version: exportVersion}
	if e.all {
		head.Secret = snap.Secret
	}
	if err := e.line(head); err != nil {
		return err
	}
	e.names = make(map[store.QueueID]string, len(snap.Queues))
	for _, q := range snap.Queues {
		e.names[q.ID] = q.Name
		if err := readSettings(q.Settings); err != nil {
			return fmt.Errorf("the settings of queue %s cannot be read: %w", q.Name, err)
		}
		if err := e.line(queueLine{lineQueue, q.Name, q.Settings}); err != nil {
			return err
		}
	}
	for _, c := range snap.Config {
		if strings.HasPrefix(c.Key, "\x00") && !strings.HasPrefix(c.Key, keySchedule) && !e.all {
			continue
		}
		if err := e.line(configLine{lineConfig, rawText(c.Key), rawText(c.Value)}); err != nil {
			return err
		}
	}
	for _, c := range snap.Consumers {
		if err := e.line(consumerLine{lineConsumer, e.names[c.Queue], c.Name, c.MaxInFlight, stamp(c.ExpiresAt), c.Reg, c.Form.MinHeaders, c.Form.Batch, c.Form.BatchBytes}); err != nil {
			return err
		}
	}
	return nil
}
