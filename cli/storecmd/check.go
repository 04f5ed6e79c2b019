package storecmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/filaq/fila/cli/command"
	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/wire"
)

// problemsListed bounds the problems in a JSON report.
const problemsListed = 10_000

// checkReport is the JSON of fila store check. Sizes are bytes.
type checkReport struct {
	File          string    `json:"file"`
	OK            bool      `json:"ok"`
	Problems      []problem `json:"problems"` // the first problemsListed
	ProblemsTotal int64     `json:"problems_total"`
	storefile.Checked
	Queues int `json:"queues"`
}

// problem is a problem in a store, and its place.
type problem struct {
	Part    string `json:"part"`
	Segment uint64 `json:"segment,omitempty"`
	Offset  *int64 `json:"offset,omitempty"` // within the segment, or, for a page, the file
	Reason  string `json:"reason"`
}

func newStoreCheckCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "check PATH",
		Short: "Read everything in a store and report what is wrong",
		Long: `Read everything in a store, payloads included, and print what is wrong and where.
PATH is a data directory, fila.db or backup. The exit code is 1 if the store is
damaged, and 9 if the last commit may be missing, or if confirmed commits are missing.`,
		Example: `  fila store check /var/lib/fila
  fila store check backup.db --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkStore(env, cmd, config.StoreFile(args[0]))
		},
	}
}

func checkStore(env *command.Env, cmd *cobra.Command, file string) error {
	out := cmd.OutOrStdout()
	r := checkReport{File: file, Problems: []problem{}}
	var writeErr error
	found := func(p problem) {
		r.ProblemsTotal++
		switch {
		case !env.JSON:
			if _, err := fmt.Fprintln(out, terminal.Clean(p.String())); writeErr == nil {
				writeErr = err
			}
		case len(r.Problems) < problemsListed:
			r.Problems = append(r.Problems, p)
		}
	}
	sum, err := store.CheckFile(file, store.Options{}, func(e *store.CorruptError) {
		p := problem{Part: e.Part, Segment: e.Segment, Reason: e.Reason}
		if e.Offset >= 0 {
			p.Offset = &e.Offset
		}
		found(p)
	})
	if err != nil {
		return storeError(file, err)
	}
	for _, p := range queueProblems(sum.Queues) {
		found(p)
	}
	r.OK, r.Checked, r.Queues = r.ProblemsTotal == 0 && !sum.TornMeta && sum.Lost == nil, sum, len(sum.Queues)
	if writeErr == nil {
		writeErr = env.Show(cmd, r, r.text)
	}
	if writeErr != nil {
		return writeErr
	}
	if r.ProblemsTotal > 0 {
		return fmt.Errorf("%s found in %s; docs/operations.md says what to do", terminal.Plural(r.ProblemsTotal, "problem"), file)
	}
	return lastCommit(file, r.TornMeta, r.Lost)
}

func (p problem) String() string {
	s := p.Part
	if p.Segment != 0 {
		s += fmt.Sprintf(" of segment %d", p.Segment)
	}
	if p.Offset != nil {
		s += fmt.Sprintf(" at offset %d", *p.Offset)
	}
	return s + ": " + p.Reason
}

func (r *checkReport) text() string {
	if !r.Structure {
		return "the pages of the file are broken, so their content was not checked\n"
	}
	text := fmt.Sprintf("%s: %s, %s in %s, %s, %s, %s\n", r.File, terminal.Plural(int64(r.Queues), "queue"), terminal.Plural(r.Messages, "message"),
		terminal.Plural(r.Segments, "segment"), terminal.Plural(r.States, "state"), terminal.Plural(r.DedupeIDs, "dedupe id"), terminal.Size(r.FileBytes))
	if r.Lost != nil {
		text += fmt.Sprintf("confirmed commits are missing: the last one is %d, and %d had been confirmed\n", r.Lost.Commit, r.Lost.Confirmed)
	}
	if r.TornMeta {
		text += "one of the two meta pages is damaged: the last commit may be missing\n"
	}
	if r.OK {
		text += "nothing is wrong\n"
	}
	return text
}

// queueProblems finds problems that the store does not know and that prevent a start:
// settings that cannot be read, and queues without dead letter queues.
func queueProblems(queues []store.QueueRecord) []problem {
	var all []problem
	add := func(name, format string, args ...any) {
		all = append(all, problem{Part: "queue " + name, Reason: fmt.Sprintf(format, args...)})
	}
	names := make(map[string]bool, len(queues))
	for _, q := range queues {
		names[q.Name] = true
		if err := wire.CheckQueueName(q.Name); err != nil {
			add(q.Name, "%v", err)
		}
		if err := readSettings(q.Settings); err != nil {
			add(q.Name, "its settings cannot be read: %v", err)
		}
	}
	for _, q := range queues {
		switch {
		case wire.IsDLQ(q.Name) && !names[wire.Source(q.Name)]:
			add(q.Name, "is a dead letter queue, but its queue %s does not exist", wire.Source(q.Name))
		case !wire.IsDLQ(q.Name) && !names[wire.DLQ(q.Name)]:
			add(q.Name, "its dead letter queue does not exist")
		}
	}
	return all
}

func readSettings(data []byte) error {
	var settings wire.QueueSettings
	if len(data) == 0 {
		return errors.New("there are none")
	}
	return json.Unmarshal(data, &settings)
}

// storeReport is the JSON of fila store stats. Sizes are bytes.
type storeReport struct {
	File string `json:"file"`
	storefile.Stats
	PagesFree int64         `json:"pages_free"`
	CreatedAt time.Time     `json:"created_at"`
	Queues    []queueReport `json:"queues"`
}

type queueReport struct {
	storefile.QueueStats
	Oldest *time.Time `json:"oldest,omitempty"`
}

func newStoreStatsCommand(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "stats PATH",
		Short: "Show the size and contents of a store",
		Long:  `Show the size and contents of a store. PATH is a data directory, fila.db or backup.`,
		Example: `  fila store stats /var/lib/fila
  fila store stats backup.db --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := config.StoreFile(args[0])
			f, err := store.OpenFile(file, storeOptions(env))
			if err != nil {
				return storeError(file, err)
			}
			st, err := f.Stats()
			if err = errors.Join(err, f.Close()); err != nil {
				return storeError(file, err)
			}
			r := newStoreReport(file, st)
			return env.Show(cmd, r, func() string { return r.text(env.Now()) })
		},
	}
}

func newStoreReport(file string, st storefile.Stats) storeReport {
	r := storeReport{File: file, Stats: st, PagesFree: st.Pages - st.UsedPages, CreatedAt: time.Unix(0, st.CreatedAt).UTC(), Queues: []queueReport{}}
	for _, q := range st.Queues {
		one := queueReport{QueueStats: q}
		if q.Messages > 0 {
			one.Oldest = new(time.Unix(0, q.OldestAt).UTC())
		}
		r.Queues = append(r.Queues, one)
	}
	return r
}

func (r *storeReport) text(now time.Time) string {
	facts := &terminal.Table{}
	facts.Row("file", r.File)
	facts.Row("size", fmt.Sprintf("%s, %d of %d pages free", terminal.Size(r.FileBytes), r.PagesFree, r.Pages))
	facts.Row("created", r.CreatedAt.Format(time.RFC3339))
	facts.Row("commits", r.Commits)
	facts.Row("segments", r.Segments)
	facts.Row("messages", fmt.Sprintf("%d with %s", r.Messages, terminal.Size(r.Bytes)))
	facts.Row("finished, not yet compacted", fmt.Sprintf("%d with %s", r.StoredMessages-r.Messages, terminal.Size(r.StoredBytes-r.Bytes)))
	facts.Row("states", r.States)
	facts.Row("dedupe ids", r.DedupeIDs)
	facts.Row("consumers", r.Consumers)
	facts.Row("configuration entries", r.Config)
	queues := terminal.NewTable("QUEUE", "MESSAGES", "SIZE", "LEASED", "DELAYED", "RETRIED", "DEDUPE IDS", "CONSUMERS", "OLDEST")
	for _, q := range r.Queues {
		oldest := "-"
		if q.Oldest != nil {
			oldest = terminal.Age(now.Sub(*q.Oldest).Milliseconds())
		}
		queues.Row(q.Name, q.Messages, terminal.Size(q.Bytes), q.Leased, q.Delayed, q.Retried, q.DedupeIDs, q.Consumers, oldest)
	}
	return terminal.Sections(facts.String(), queues.Or(""))
}
