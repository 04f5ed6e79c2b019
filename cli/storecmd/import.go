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
	"github.com/filaq/fila/wire"
)

const (
	importRecords = 4096    // records of a batch
	importBytes   = 4 << 20 // bytes of a batch, approximately
	importLine    = 1 << 30 // bytes of the longest line
)

func newStoreImportCommand(env *command.Env) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Make a store from an export",
		Long: `Make a store from an export in the data directory DIR, which must have no store and is
created if missing. If a line is wrong, the command names it and leaves nothing behind.
Run it as fila's user.

The store has the export's ids, order, attempts, delays, leases, reasons, keys,
weights and dedupe ids. Without the key of an "export --all", fila refuses acks of
deliveries under way, and delivers their messages again when their leases end.`,
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
	cmd.Flags().StringVar(&from, "from", "", "the export `file` (default standard input, also -)")
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
	line   int64 // number of the current line
	ended  bool

	queues  map[string]store.QueueID
	records []store.QueueRecord
	seen    map[string]bool // configuration keys and consumers

	batch *store.Batch
	lines []int64 // of batch.Add
	size  int
}

// importStore makes a store in dir, or changes nothing.
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
		err = command.Exit(command.ExitRefused, fmt.Errorf("another import into %s is running", dir))
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

// wrong adds the number of the line to an error.
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

// placedError is an error with the number of its line.
type placedError struct {
	line int64
	err  error
}

func (e *placedError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

func (e *placedError) Unwrap() error { return e.err }

// decoded decodes a line and passes it to take.
func decoded[T any](b []byte, take func(line T) error) error {
	var line T
	if refused := wire.DecodeStrict(b, &line); refused != nil {
		return errors.New(refused.Description)
	}
	return take(line)
}

func (im *importer) takeAs(kind string, b []byte) error {
	switch kind {
	case lineHeader:
		return decoded(b, im.header)
	case lineQueue:
		return decoded(b, im.queue)
	case lineConfig:
		return decoded(b, im.config)
	case lineConsumer:
		return decoded(b, im.consumer)
	case lineMessage:
		return decoded(b, im.message)
	case lineDedupe:
		return decoded(b, im.dedupe)
	case lineEnd:
		return decoded(b, im.end)
	}
	return fmt.Errorf("type %q: allowed are header, queue, config, consumer, message, dedupe and end", terminal.Clean(kind))
}

func (im *importer) end(l endLine) error {
	if l.Lines != im.line-1 {
		return fmt.Errorf("%s should come before it: the export is not complete", terminal.Plural(l.Lines, "line"))
	}
	im.ended = true
	return nil
}

func (im *importer) header(l headerLine) (err error) {
	switch {
	case im.b != nil:
		return errors.New("a second header")
	case l.Format != exportFormat || l.Version != exportVersion:
		return fmt.Errorf("format %q of version %d: this fila reads %q of version %d", terminal.Clean(l.Format), l.Version, exportFormat, exportVersion)
	case l.Secret != nil && len(l.Secret) != 32:
		return fmt.Errorf("secret of %d bytes: allowed are 32", len(l.Secret))
	}
	if im.b, err = store.Build(im.report.File, l.Secret, im.opts); err != nil {
		return &placedError{im.line, err}
	}
	return nil
}

func (im *importer) queue(l queueLine) error {
	if err := wire.CheckQueueName(l.Name); err != nil {
		return err
	}
	if im.queues[l.Name] != 0 {
		return fmt.Errorf("queue %s is there twice", l.Name)
	}
	if err := readSettings(l.Settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	rec := store.QueueRecord{ID: store.QueueID(len(im.records) + 1), Name: l.Name, Settings: l.Settings}
	if err := (&store.Batch{PutQueues: []store.QueueRecord{rec}}).Check(); err != nil {
		return err
	}
	im.queues[l.Name] = rec.ID
	im.records = append(im.records, rec)
	im.batch.PutQueues = append(im.batch.PutQueues, rec)
	im.report.Queues++
	return nil
}

// known finds the queue that a line names.
func (im *importer) known(name string) (store.QueueID, error) {
	if q := im.queues[name]; q != 0 {
		return q, nil
	}
	return 0, fmt.Errorf("there is no line for queue %q before it", terminal.Clean(name))
}

// once refuses duplicates.
func (im *importer) once(what string) error {
	if im.seen[what] {
		return fmt.Errorf("%s is there twice", terminal.Clean(what))
	}
	im.seen[what] = true
	return nil
}

func (im *importer) config(l configLine) error {
	if err := im.once("configuration key " + string(l.Key)); err != nil {
		return err
	}
	entry := store.Entry{Key: string(l.Key), Value: string(l.Value)}
	if err := (&store.Batch{PutConfig: []store.Entry{entry}}).Check(); err != nil {
		return err
	}
	im.batch.PutConfig = append(im.batch.PutConfig, entry)
	im.report.Config++
	return im.more(len(entry.Value))
}

func (im *importer) consumer(l consumerLine) error {
	if err := wire.CheckConsumerName(l.Name); err != nil {
		return err
	}
	q, err := im.known(l.Queue)
	if err == nil {
		err = im.once("consumer " + l.Name + " of queue " + l.Queue)
	}
	if err != nil {
		return err
	}
	im.batch.PutConsumers = append(im.batch.PutConsumers, store.ConsumerRecord{
		Queue: q, Name: l.Name, MaxInFlight: l.MaxInFlight, ExpiresAt: int64(l.ExpiresAt), Reg: l.Reg,
		Form: store.DeliveryForm{MinHeaders: l.MinHeaders, Batch: l.Batch, BatchBytes: l.BatchBytes},
	})
	im.report.Consumers++
	return im.more(0)
}

func (im *importer) message(l messageLine) error {
	q, err := im.known(l.Queue)
	if err != nil {
		return err
	}
	m, st, err := l.message(q)
	if err != nil {
		return err
	}
	// A queue continues after its highest number.
	if m.Seq > store.MaxSeq/2 {
		return fmt.Errorf("seq %d: allowed is up to %d", m.Seq, uint64(store.MaxSeq/2))
	}
	if m.ExpiresAt != 0 && wire.IsDLQ(l.Queue) {
		return errors.New("expires_at: dead letters have none")
	}
	one := store.Batch{Add: []store.Message{m}}
	if st != nil {
		one.State = []store.State{*st}
	}
	for _, record := range l.History {
		one.History = append(one.History, store.Attempt{Ref: m.Ref, Record: record})
	}
	if err := one.Check(); err != nil {
		return err
	}
	im.batch.Add = append(im.batch.Add, one.Add...)
	im.batch.State = append(im.batch.State, one.State...)
	im.batch.History = append(im.batch.History, one.History...)
	im.lines = append(im.lines, im.line)
	im.report.Messages++
	return im.more(len(m.Headers) + len(m.Payload))
}

func (im *importer) dedupe(l dedupeLine) error {
	q, err := im.known(l.Queue)
	if err != nil {
		return err
	}
	d := store.Dedupe{Queue: q, DedupeID: string(l.DedupeID), ID: store.ID(l.ID), Until: int64(l.Until)}
	if err := (&store.Batch{Dedupe: []store.Dedupe{d}}).Check(); err != nil {
		return err
	}
	im.batch.Dedupe = append(im.batch.Dedupe, d)
	im.report.DedupeIDs++
	return im.more(0)
}

// more counts a record of the batch, and writes the batch when it is large enough.
func (im *importer) more(bytes int) error {
	im.size += bytes
	n := len(im.batch.Add) + len(im.batch.Dedupe) + len(im.batch.PutConfig) + len(im.batch.PutConsumers)
	if n < importRecords && im.size < importBytes {
		return nil
	}
	return im.flush()
}

// flush writes the batch. Each line was checked, so the store refuses only contradictions
// between lines.
func (im *importer) flush() error {
	batch, lines := im.batch, im.lines
	im.batch, im.lines, im.size = &store.Batch{}, nil, 0
	err := im.b.Add(batch)
	if err == nil {
		return nil
	}
	if rest := im.b.Add(&store.Batch{PutQueues: batch.PutQueues}); rest != nil {
		return &placedError{im.line, rest}
	}
	for i := range batch.Add { // find the line
		one := im.b.Add(&store.Batch{Add: batch.Add[i : i+1]})
		if errors.Is(one, store.ErrDuplicate) {
			m := &batch.Add[i]
			one = fmt.Errorf("queue %s has a message with seq %d already", im.records[m.Queue-1].Name, m.Seq)
		}
		if one != nil {
			return &placedError{lines[i], one}
		}
	}
	return &placedError{im.line, err}
}
