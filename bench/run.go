package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/filaq/fila/bench/load"
	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/report"
)

// Run runs a benchmark and returns the report, which includes failed measurements. An error
// means that there is no report. When ctx ends, the report has the measurements so far.
func Run(ctx context.Context, o Options) (*report.Report, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	r := &bench{o: &o, runner: runner{exe: o.Executable, peers: o.Peers}}
	if o.Target == nil && !o.adapt() {
		var err error
		if r.runner.dir, err = os.MkdirTemp(o.Dir, "fila-bench-"); err != nil {
			return nil, fmt.Errorf("directory for data: %w", err)
		}
		defer func() { _ = os.RemoveAll(r.runner.dir) }() // otherwise files are left behind
	}
	env, err := describe(o.Version, r.runner.dir)
	if err != nil {
		return nil, err
	}
	result := &report.Report{Started: time.Now().UTC().Truncate(time.Second), Environment: env, Settings: report.Settings{
		Rounds: o.Rounds, DurationMs: o.Duration.Milliseconds(), Count: o.Count, Backlog: o.Backlog,
		Payload: o.Payload, Batch: o.Batch, Quick: o.Quick, Soak: o.soak(), Simulated: o.adapt(), Running: o.Target != nil,
	}}
	var plan [][]lane
	for _, w := range o.selected() {
		plan = append(plan, o.lanesOf(w))
		r.total += len(plan[len(plan)-1]) * o.Rounds
	}
	if r.total == 0 {
		return nil, errors.New("nothing is left to measure: no chosen workload has a measurement for the chosen systems")
	}
	begin := time.Now()
	for i, w := range o.selected() {
		if len(plan[i]) > 0 && !result.Interrupted {
			result.Workloads = append(result.Workloads, r.workload(ctx, w, plan[i]))
			result.Interrupted = ctx.Err() != nil
		}
	}
	result.Seconds = time.Since(begin).Seconds()
	result.Conclude()
	if o.adapt() {
		result.Timeline = AdaptTimeline()
	}
	return result, nil
}

// bench is a running benchmark.
type bench struct {
	o      *Options
	runner runner

	total, done int // measurements
}

// workload runs all rounds of a workload. Each round starts with another lane, so that no lane
// always follows the same one.
func (b *bench) workload(ctx context.Context, w *workload, lanes []lane) report.Group {
	group := report.NewGroup(&w.Workload)
	for _, l := range lanes {
		group.Lanes = append(group.Lanes, report.Lane{Case: l.Case, System: string(l.spec.System), Promise: l.spec.System.Promise()})
	}
	for round := range b.o.Rounds {
		for i := range lanes {
			if ctx.Err() != nil {
				return group
			}
			at := (i + round) % len(lanes)
			of := &group.Lanes[at]
			sample, notes, err := b.measure(ctx, w, lanes[at], func(point measure.Sample) {
				of.Series = append(of.Series, point)
				b.interval(w, point, len(of.Series))
			})
			if ctx.Err() != nil {
				return group // an interrupted measurement does not count
			}
			line := "failed: "
			if err == nil {
				maps.Copy(sample, report.Thirds(of.Series))
				line = report.Line(w.Columns, sample, 3)
			} else {
				line += err.Error()
			}
			of.Add(sample, notes, err)
			b.done++
			b.progress("[%d/%d] %s: %s: %s, round %d: %s\n", b.done, b.total, w.Name, of.Case, of.System, round+1, line)
		}
	}
	return group
}

func (b *bench) progress(format string, args ...any) {
	if b.o.Progress != nil {
		_, _ = fmt.Fprintf(b.o.Progress, format, args...)
	}
}

// interval logs the progress of a long measurement from time to time.
func (b *bench) interval(w *workload, point measure.Sample, n int) {
	const someIntervals, someFigures = 6, 9
	if n%someIntervals == 0 {
		at := time.Duration(point["at_s"] * float64(time.Second)).Round(time.Second)
		b.progress("%s: %s of %s: %s\n", w.Name, at, b.o.Duration, report.Line(report.SteadyColumns, point, someFigures))
	}
}

// measure runs one measurement, with its own server unless there is a target. point gets the
// figures of its intervals.
func (b *bench) measure(ctx context.Context, w *workload, l lane, point func(measure.Sample)) (sample measure.Sample, notes []string, err error) {
	if l.simulate != nil {
		return l.simulate(), nil, nil
	}
	spec := l.spec
	spec.Queue.Name = queueName()
	if b.o.Target != nil {
		spec.Access, spec.Remove = *b.o.Target, true
		result, err := b.loads(ctx, l, &spec, point)
		return result.Sample, result.Notes, err
	}
	if spec.DataDir, err = os.MkdirTemp(b.runner.dir, ""); err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spec.DataDir)) }()
	sample = measure.Sample{}
	begin := func(figure, memory string) (*Server, error) {
		srv, err := b.runner.server(ctx, spec.System, spec.DataDir, l.ownGC)
		if err != nil {
			return nil, err
		}
		spec.Access.URL, spec.ServerPID = srv.URL, srv.cmd.Process.Pid
		sample[figure] = float64(srv.took.Microseconds()) / 1e3
		if u, err := measure.ReadUsage(spec.ServerPID); err == nil && w.ownServer { // without it the column stays empty
			u.MemoryInto(sample, memory)
		}
		return srv, nil
	}
	srv, err := begin("start_ms", "idle_")
	if err != nil {
		return nil, nil, err
	}
	defer func() { srv.kill() }()
	result, err := b.loads(ctx, l, &spec, point)
	if err != nil {
		srv.kill()
		return nil, nil, fmt.Errorf("%w (the server said: %s)", err, srv.LastLines())
	}
	maps.Copy(sample, result.Sample)
	perMessage(sample, spec.Payload)
	if l.syncs {
		srv.kill() // alone on the disk
		if err := syncs(spec.DataDir, sample); err != nil {
			return nil, result.Notes, err
		}
	}
	if l.restart {
		srv.kill()
		again, err := begin("recovery_ms", "recovered_")
		if err != nil {
			return nil, result.Notes, fmt.Errorf("restart: %w", err)
		}
		srv = again
		if err := load.AllThere(ctx, &spec); err != nil {
			return nil, result.Notes, err
		}
	}
	return sample, result.Notes, nil
}

func queueName() string { return "bench-" + strings.ToLower(rand.Text()[:10]) }

// loads runs the load of a lane and the load beside it, if there is one.
func (b *bench) loads(ctx context.Context, l lane, spec *load.Spec, point func(measure.Sample)) (load.Result, error) {
	if l.beside == nil {
		return b.runner.load(ctx, spec, point)
	}
	beside := *l.beside
	beside.Queue.Name = queueName()
	beside.Access, beside.Remove = spec.Access, spec.Remove
	type outcome struct {
		load.Result
		err error
	}
	other := make(chan outcome, 1)
	go func() {
		r, err := b.runner.load(ctx, &beside, func(measure.Sample) {})
		other <- outcome{r, err}
	}()
	result, err := b.runner.load(ctx, spec, point)
	o := <-other
	if err = errors.Join(err, o.err); err != nil {
		return result, err
	}
	maps.Copy(result.Sample, o.Sample)
	result.Notes = append(result.Notes, o.Notes...)
	return result, nil
}

// The size of a commit that a store bounds, on a disk that writes 400 MiB a second and syncs in
// less than half a millisecond.
const (
	boundedCommit = 4 << 20
	syncRounds    = 15
)

// syncs measures the time to write and sync a bounded commit, and how many such times the
// confirmations of a sample took.
func syncs(dir string, into measure.Sample) (err error) {
	into["commit_us"], err = syncTime(dir, boundedCommit, syncRounds)
	into["confirm_p99_commits"] = into["confirm_p99_us"] / into["commit_us"]
	return err
}

// cacheBytes is more than the default cache of payloads of any server.
const cacheBytes = 64 << 20

// perMessage adds the memory of a pending message: the growth between two backlogs without
// mapped files. Memory that any backlog needs, such as caches, does not count; a backlog that
// does not fill the caches tells nothing.
func perMessage(s measure.Sample, payload int) {
	small, okSmall := s["tenth_server_anon_mb"]
	large, okLarge := s["full_server_anon_mb"]
	n := s["full_messages"]
	if okSmall && okLarge && n > 0 && s["tenth_messages"]*float64(payload) >= cacheBytes {
		s["per_message_bytes"] = (large - small) * (1 << 20) / n
	}
}
