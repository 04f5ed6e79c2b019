package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Run runs what o says and returns the report. Measurements that fail are in
// the report; an error means that there is none. When ctx ends, the report has
// what was measured until then.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	r := &bench{o: &o, runner: runner{exe: o.Executable}}
	if o.Target == nil {
		var err error
		if r.runner.dir, err = os.MkdirTemp(o.Dir, "fila-bench-"); err != nil {
			return nil, fmt.Errorf("directory for data: %w", err)
		}
		defer func() { _ = os.RemoveAll(r.runner.dir) }() // only leaves files behind
	}
	env, err := describe(o.Version, r.runner.dir)
	if err != nil {
		return nil, err
	}
	report := &Report{Started: time.Now().UTC().Truncate(time.Second), Environment: env, Settings: Settings{
		Rounds: o.Rounds, DurationMs: o.Duration.Milliseconds(), Count: o.Count, Backlog: o.Backlog,
		Payload: o.Payload, Quick: o.Quick, Soak: o.soak(), Running: o.Target != nil,
	}}
	for _, w := range o.selected() {
		if lanes := o.lanesOf(w); len(lanes) > 0 {
			r.plan = append(r.plan, planned{w, lanes})
			r.total += len(lanes) * o.Rounds
		}
	}
	if r.total == 0 {
		return nil, errors.New("nothing is left to measure: no chosen workload has a measurement for the chosen systems")
	}
	begin := time.Now()
	for _, p := range r.plan {
		report.Workloads = append(report.Workloads, r.workload(ctx, p))
		if ctx.Err() != nil {
			report.Interrupted = true
			break
		}
	}
	report.Seconds = time.Since(begin).Seconds()
	report.conclude()
	return report, nil
}

// bench is a run.
type bench struct {
	o      *Options
	runner runner
	plan   []planned

	total, done int // measurements
}

type planned struct {
	w     *workload
	lanes []lane
}

// workload runs all rounds of a workload. In each round every lane has its turn;
// the first one is another one each time, so that none is always the one after
// the same other.
func (b *bench) workload(ctx context.Context, p planned) WorkloadReport {
	report := WorkloadReport{Name: p.w.name, About: p.w.about, of: p.w, Lanes: make([]LaneReport, len(p.lanes))}
	for i, l := range p.lanes {
		report.Lanes[i].Case, report.Lanes[i].System = l.Case, string(l.sys)
	}
	for round := range b.o.Rounds {
		for i := range p.lanes {
			if ctx.Err() != nil {
				return report
			}
			at := (i + round) % len(p.lanes)
			series := &report.Lanes[at].Series
			sample, notes, err := b.measure(ctx, p.w, p.lanes[at], func(point Sample) {
				*series = append(*series, point)
				b.interval(p.w, point, len(*series))
			})
			if ctx.Err() != nil {
				return report // an interrupted measurement is none
			}
			if err == nil {
				sample = mergeSamples(sample, thirds(*series))
			}
			report.Lanes[at].add(sample, notes, err)
			b.progress(p.w, &p.lanes[at], round, sample, err)
		}
	}
	return report
}

func (b *bench) progress(w *workload, l *lane, round int, s Sample, err error) {
	b.done++
	if b.o.Progress == nil {
		return
	}
	result := someOf(w.columns, s, 3)
	if err != nil {
		result = "failed: " + err.Error()
	}
	_, _ = fmt.Fprintf(b.o.Progress, "[%d/%d] %s: %s: %s, round %d: %s\n", b.done, b.total, w.name, l.Case, l.sys, round+1, result)
}

// interval says now and then how a long measurement goes.
func (b *bench) interval(w *workload, point Sample, n int) {
	const someIntervals, someFigures = 6, 9
	if b.o.Progress == nil || n%someIntervals != 0 {
		return
	}
	at := time.Duration(point["at_s"] * float64(time.Second)).Round(time.Second)
	_, _ = fmt.Fprintf(b.o.Progress, "%s: %s of %s: %s\n", w.name, at, b.o.Duration, someOf(steadyColumns, point, someFigures))
}

// someOf prints the first n figures that a sample has.
func someOf(columns []column, s Sample, n int) string {
	var parts []string
	for _, c := range columns {
		if v, ok := s[c.metric]; ok && len(parts) < n {
			parts = append(parts, c.title+" "+c.show(v))
		}
	}
	return strings.Join(parts, ", ")
}

// measure is one measurement, with a server of its own if there is no target.
// point gets the figures of its intervals.
func (b *bench) measure(ctx context.Context, w *workload, l lane, point func(Sample)) (sample Sample, notes []string, err error) {
	spec := l.spec
	spec.Queue = "bench-" + strings.ToLower(rand.Text()[:10])
	if b.o.Target != nil {
		spec.Access, spec.Remove = *b.o.Target, true
		result, err := b.runner.load(ctx, &spec, point)
		return result.Sample, result.Notes, err
	}
	dir, err := os.MkdirTemp(b.runner.dir, "")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	srv, err := b.runner.server(ctx, l.sys, dir, l.ownGC)
	if err != nil {
		return nil, nil, err
	}
	defer func() { srv.kill() }()
	sample = Sample{"start_ms": float64(srv.took.Microseconds()) / 1e3}
	if w.ownServer {
		if u, err := readUsage(srv.cmd.Process.Pid); err == nil { // without it the column stays empty
			u.memoryInto(sample, "idle_")
		}
	}
	spec.Access = Access{URL: srv.url}
	spec.ServerPID, spec.DataDir = srv.cmd.Process.Pid, dir
	result, err := b.runner.load(ctx, &spec, point)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (the server said: %s)", err, srv.tail)
	}
	sample = mergeSamples(sample, result.Sample)
	perMessage(sample, spec.Payload)
	if l.restart {
		srv.kill()
		again, err := b.runner.server(ctx, l.sys, dir, l.ownGC)
		if err != nil {
			return nil, result.Notes, fmt.Errorf("restart: %w", err)
		}
		srv = again
		spec.Access.URL = srv.url
		if err := allThere(ctx, &spec); err != nil {
			return nil, result.Notes, err
		}
		sample["recovery_ms"] = float64(srv.took.Microseconds()) / 1e3
		if u, err := readUsage(srv.cmd.Process.Pid); err == nil {
			u.memoryInto(sample, "recovered_")
		}
	}
	return sample, result.Notes, nil
}

// allThere checks that a queue holds all that was put into it.
func allThere(ctx context.Context, spec *loadSpec) error {
	nc, err := spec.Access.connect("check")
	if err != nil {
		return err
	}
	defer nc.Close()
	target, err := newTarget(spec, nc)
	if err != nil {
		return err
	}
	held, err := target.held(ctx)
	if err != nil {
		return fmt.Errorf("count messages after the restart: %w", err)
	}
	var filled int64
	for _, p := range spec.Phases {
		filled += p.Count
	}
	if held.messages != filled {
		return fmt.Errorf("of %d confirmed messages %d are there after the restart", filled, held.messages)
	}
	return nil
}

// cacheBytes is more than servers keep of payloads in memory by default.
const cacheBytes = 64 << 20

// perMessage adds how many bytes of memory a pending message takes: what grew
// between two backlogs, mapped files left out. What is there with any backlog,
// such as caches, does not count; a smaller backlog that does not fill them
// tells nothing.
func perMessage(s Sample, payload int) {
	small, okSmall := s["tenth_server_anon_mb"]
	large, okLarge := s["full_server_anon_mb"]
	n := s["full_messages"]
	if okSmall && okLarge && n > 0 && s["tenth_messages"]*float64(payload) >= cacheBytes {
		s["per_message_bytes"] = (large - small) * (1 << 20) / n
	}
}
