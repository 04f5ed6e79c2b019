package storecmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
)

const (
	importRecords = 4096    // messages in one batch, about
	importBytes   = 4 << 20 // of them
	importLine    = 1 << 30 // bytes of the longest line
)

func newStoreImportCommand(env *command.Env) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Make a store of an export",
		Long: `Make a store of an export, in a data directory that holds none; it is made if it
is missing. Nothing of the store is there until all of it is: a line that is
wrong is named, and leaves nothing behind. Run it as the user that fila runs as.

Ids, order, attempts, delays, leases, reasons of dead letters, fairness keys,
weights and dedupe ids are those of the export. Without the key of an
"export --all", acks of deliveries that were out are refused, and their messages
are delivered again when their leases end.`,
		Example: `  fila store import /var/lib/fila --from store.jsonl
  gunzip -c store.jsonl.gz | fila store import /var/lib/fila`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if from != "" && from != "-" {
				f, err := os.Open(from)
				if err != nil {
					return fmt.Errorf("--from %s: %w", from, command.PathReason(err))
				}
				defer f.Close() //nolint:errcheck // it was only read
				in = f
			} else if terminal.IsTerminalInput(in) {
				return command.UsageError("nothing to import: name a file with --from, or pipe one in")
			}
			r, err := importStore(args[0], in, storeOptions(env))
			if err != nil {
				return err
			}
			return env.Show(cmd, r, func() string {
				return fmt.Sprintf("%s: %s, %s, %s, %s, %s\n", r.File, terminal.Plural(r.Queues, "queue"), terminal.Plural(r.Messages, "message"),
					terminal.Plural(r.Consumers, "consumer"), terminal.Plural(r.DedupeIDs, "dedupe id"), terminal.Plural(r.Config, "configuration key"))
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the export; - or nothing is standard input (`file`)")
	return cmd
}

// importReport is the JSON of fila store import.
type importReport struct {
	File      string `json:"file"`
	Queues    int64  `json:"queues"`
	Messages  int64  `json:"messages"`
	Consumers int64  `json:"consumers"`
	DedupeIDs int64  `json:"dedupe_ids"`
	Config    int64  `json:"config_entries"`
}

// importer reads the lines of one export.
type importer struct {
	report importReport
	opts   store.Options
	b      *store.Builder
	line   int64 // the number of the latest line
	ended  bool

	queues  map[string]store.QueueID
	records []store.QueueRecord
	seen    map[string]bool // configuration keys and consumers

	batch *store.Batch
	lines []int64 // of batch.Add
	size  int
}

// importStore makes a store in dir, or leaves everything as it was.
func importStore(dir string, in io.Reader, o store.Options) (importReport, error) {
	im := &importer{opts: o, queues: make(map[string]store.QueueID), seen: make(map[string]bool), batch: &store.Batch{}}
	cfg := config.Config{DataDir: dir}
	im.report.File = cfg.StorePath()
	if _, err := os.Lstat(im.report.File); err == nil {
		return im.report, command.Exit(command.ExitConflict, fmt.Errorf("%s is there: import into a directory without a store", im.report.File))
	}
	err := os.Mkdir(dir, 0o750)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return im.report, fmt.Errorf("%s: %w", dir, command.PathReason(err))
	}
	err = im.run(in)
	if err == nil {
		err = im.b.Finish()
	} else if im.b != nil {
		err = errors.Join(err, im.b.Discard())
	}
	if err != nil && made {
		err = errors.Join(err, os.Remove(dir))
	}
	switch {
	case errors.Is(err, store.ErrLocked):
		err = command.Exit(command.ExitRefused, fmt.Errorf("another import into %s is under way", dir))
	case errors.Is(err, fs.ErrExist):
		err = command.Exit(command.ExitConflict, err)
	}
	return im.report, err
}

func (im *importer) run(in io.Reader) error {
	for line, err := range command.Lines(in, importLine) {
		im.line++
		switch {
		case errors.Is(err, command.ErrLineTooLong):
			return fmt.Errorf("line %d is longer than %s", im.line, terminal.Size(importLine))
		case err != nil:
			return fmt.Errorf("reading line %d: %w", im.line, err)
		}
		if err := im.take(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			return err
		}
	}
	if !im.ended {
		return fmt.Errorf("the export ends after line %d without its end line: it was cut off", im.line)
	}
	if err := im.flush(); err != nil {
		return err
	}
	for _, p := range queueProblems(im.records) {
		return fmt.Errorf("%s: %s", p.Part, p.Reason)
	}
	return nil
}

// wrong says which line is wrong.
func (im *importer) wrong(err error) error { return fmt.Errorf("line %d: %w", im.line, err) }

// take reads one line.
func (im *importer) take(b []byte) error {
	kind, err := lineType(b)
	switch {
	case err != nil:
	case im.ended:
		err = errors.New("comes after the end line")
	case im.b == nil && kind != lineHeader:
		err = errors.New("comes before the header line: this is no export of fila")
	default:
		err = im.takeAs(kind, b)
	}
	var done *placedError
	if err == nil || errors.As(err, &done) {
		return err
	}
	return im.wrong(err)
}

// lineType returns the type field of a line, mostly without decoding it.
func lineType(b []byte) (string, error) {
	if bytes.HasPrefix(b, []byte(`{"type":"message",`)) {
		return lineMessage, nil
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return "", errors.New("is empty")
	}
	var head struct {
		Type string `json:"type"`
	}
	err := json.Unmarshal(b, &head)
	return head.Type, err
}
