package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

const (
	// stallAfter is the time without progress after which a load gives up.
	stallAfter = 30 * time.Second
	// glance is the interval between two checks of a running phase. Counts are taken at the
	// check, so it bounds the resolution, not the precision.
	glance = 5 * time.Millisecond
	// maxRefused is by how much refused messages may exceed confirmed ones before a load gives
	// up.
	maxRefused = 1000
	// leastCPU is the CPU time that a figure per message needs: the system counts in ticks of 10
	// ms.
	leastCPU = 50 * time.Millisecond
	// warmShare is the length of the warm-up as a share of the measured part.
	warmShare = 0.2
)

// engine runs the phases of a load. Counters continue from phase to phase: published - refused
// - finished is the content of the queue.
type engine struct {
	spec   *Spec
	open   Open
	target system.Target
	epoch  time.Time // zero of the times in payloads

	published, confirmed, refused, finished atomic.Int64

	// from is the start of the measured part; latencies of earlier messages do not count.
	from atomic.Int64

	// point takes the figures of an interval.
	point func(measure.Sample)

	notes struct {
		sync.Mutex
		list []string
	}
}

func newEngine(spec *Spec, open Open) *engine {
	return &engine{spec: spec, open: open, epoch: time.Now(), point: func(measure.Sample) {}}
}

func (e *engine) now() int64 { return int64(time.Since(e.epoch)) }

// note adds a text to the report, once for each kind of event.
func (e *engine) note(kind string, err error) {
	e.notes.Lock()
	defer e.notes.Unlock()
	if !slices.ContainsFunc(e.notes.list, func(one string) bool { return strings.HasPrefix(one, kind+": ") }) {
		e.notes.list = append(e.notes.list, fmt.Sprintf("%s: %v", kind, err))
	}
}

// counts are the counters at one moment.
type counts struct {
	at                                      time.Time
	published, confirmed, refused, finished int64
	server, load                            measure.Usage // of the processes; zero if unknown
	busy                                    time.Duration // of all processors; zero if unknown
}

func (e *engine) count() counts {
	return counts{
		at: time.Now(), finished: e.finished.Load(), confirmed: e.confirmed.Load(),
		refused: e.refused.Load(), published: e.published.Load(),
	}
}

// countAll also reads the usage of the processes.
func (e *engine) countAll() counts {
	c := e.count()
	read := func(process string, pid int) measure.Usage {
		if pid == 0 {
			return measure.Usage{}
		}
		u, err := measure.ReadUsage(pid)
		if err != nil {
			e.note("no CPU and memory of the "+process, err)
		}
		return u
	}
	c.server, c.load = read("server", e.spec.ServerPID), read("load process", os.Getpid())
	c.busy, _ = measure.MachineBusy() // if unknown, the column stays empty
	return c
}

// held returns the number of messages in the queue.
func (c *counts) held() int64 { return c.published - c.refused - c.finished }

// unconfirmed returns the number of pending confirmations.
func (c *counts) unconfirmed() int64 { return c.published - c.refused - c.confirmed }

// done returns the number of messages that have reached the end of a mode.
func (c *counts) done(m Mode) int64 {
	if m == ModeLife {
		return min(c.confirmed, c.finished)
	}
	return c.confirmed
}

// run runs all phases.
func (e *engine) run(ctx context.Context) (measure.Sample, error) {
	sample := measure.Sample{}
	for i := range e.spec.Phases {
		p := &e.spec.Phases[i]
		if p.Share > 0 {
			before := &e.spec.Phases[i-1]
			if p.Rate = p.Share * sample[before.figure("rate")]; p.Rate < 1 {
				return nil, fmt.Errorf("phase %s reached less than a message a second", before.label())
			}
			sample[p.figure("target_rate")] = p.Rate
		}
		if err := e.phase(ctx, p, sample); err != nil {
			return nil, fmt.Errorf("phase %s: %w", p.label(), err)
		}
	}
	if n := e.refused.Load(); n > 0 {
		sample["refused"] = float64(n)
	}
	return sample, nil
}

func (p *Phase) label() string {
	if p.Name != "" {
		return p.Name
	}
	return string(p.Mode)
}

func (p *Phase) figure(name string) string {
	if p.Name == "" {
		return name
	}
	return p.Name + "_" + name
}

func (e *engine) phase(ctx context.Context, p *Phase, into measure.Sample) (err error) {
	e.from.Store(math.MaxInt64)
	before := e.count()
	crew := newCrew(e, p)
	defer func() { err = errors.Join(err, crew.end(ctx)) }()
	if err := crew.gather(ctx); err != nil {
		return err
	}
	begin, warm := e.countAll(), p.warmUp()
	if warm == nil {
		e.from.Store(e.now())
	}
	crew.start()
	if warm != nil {
		if err := e.watch(ctx, func(c counts) bool { return warm.over(begin, c, e.spec.Payload) }); err != nil {
			return err
		}
		e.from.Store(e.now())
		begin = e.countAll()
	}
	sampler := newSampler(crew, begin)
	if err := e.watch(ctx, func(c counts) bool {
		sampler.sampleDue(ctx, c.at)
		return p.over(begin, c, e.spec.Payload)
	}); err != nil {
		return err
	}
	end := e.countAll()
	crew.halt()
	if err := e.settle(ctx, p, before.held() > 0, end, into); err != nil {
		return err
	}
	if p.Follow {
		if err := crew.account(ctx, e.refused.Load()-before.refused, into); err != nil {
			return err
		}
	}
	e.figures(p, begin, end, into)
	crew.latencies(into)
	return e.memory(ctx, p, into)
}

// warmUp returns the warm-up, a shorter phase, or nil.
func (p *Phase) warmUp() *Phase {
	if p.Mode == ModeFill || p.SampleMs > 0 {
		return nil
	}
	short := *p
	for _, limit := range []*int64{&short.Count, &short.DurationMs, &short.MaxBytes} {
		if *limit > 0 { // 0 would be no limit
			*limit = max(int64(warmShare*float64(*limit)), 1)
		}
	}
	return &short
}

// over reports whether the phase has ended.
func (p *Phase) over(begin, now counts, payload int) bool {
	n := now.done(p.Mode) - begin.done(p.Mode)
	switch {
	case p.Count > 0 && n >= p.Count:
		return true
	case p.MaxBytes > 0 && n*int64(payload) >= p.MaxBytes:
		return true
	case p.Mode == ModeFill:
		return false
	}
	return p.DurationMs > 0 && now.at.Sub(begin.at) >= time.Duration(p.DurationMs)*time.Millisecond
}

// settle waits until no message of the phase is in flight.
func (e *engine) settle(ctx context.Context, p *Phase, backlog bool, end counts, into measure.Sample) error {
	if err := e.watch(ctx, func(c counts) bool { return c.unconfirmed() <= 0 }); err != nil {
		return fmt.Errorf("last confirmations: %w", err)
	}
	if p.Mode != ModeLife || backlog && !p.Drain {
		return nil
	}
	if err := e.watch(ctx, func(c counts) bool { return c.held() <= 0 }); err != nil {
		return fmt.Errorf("last deliveries: %w", err)
	}
	if p.Drain {
		last := e.count()
		into[p.figure("drain_rate")] = float64(last.finished-end.finished) / last.at.Sub(end.at).Seconds()
	}
	return nil
}

// watch checks the counts until reached returns true. It fails without progress.
func (e *engine) watch(ctx context.Context, reached func(counts) bool) error {
	for last := e.count(); ; {
		c := e.count()
		if reached(c) {
			return nil
		}
		if c.refused > c.confirmed+maxRefused {
			return fmt.Errorf("messages refused: %d, confirmed: %d", c.refused, c.confirmed)
		}
		if c.published != last.published || c.confirmed != last.confirmed || c.finished != last.finished {
			last = c
		}
		if c.at.Sub(last.at) > stallAfter {
			return fmt.Errorf("nothing has moved for %s: %d published, %d confirmed, %d refused, %d finished",
				stallAfter, c.published, c.confirmed, c.refused, c.finished)
		}
		if err := pause(ctx, glance); err != nil {
			return err
		}
	}
}

// figures adds the figures of the measured part.
func (e *engine) figures(p *Phase, begin, end counts, into measure.Sample) {
	seconds := end.at.Sub(begin.at).Seconds()
	n := float64(end.done(p.Mode) - begin.done(p.Mode))
	into[p.figure("rate")] = n / seconds
	into[p.figure("messages")] = n
	into[p.figure("seconds")] = seconds
	if begin.busy > 0 && begin.server.RSS > 0 && begin.load.RSS > 0 && seconds >= 10*leastCPU.Seconds() {
		own := end.server.CPU - begin.server.CPU + end.load.CPU - begin.load.CPU
		into[p.figure("others_cpus")] = max((end.busy-begin.busy-own).Seconds()/seconds, 0)
	}
	process := func(name string, begin, end measure.Usage) {
		if begin.RSS == 0 || end.RSS == 0 {
			return
		}
		cpu := (end.CPU - begin.CPU).Seconds()
		into[p.figure(name+"_cpu_s")] = cpu
		if cpu >= leastCPU.Seconds() && n > 0 {
			into[p.figure(name+"_cpu_us")] = cpu / n * 1e6
		}
		end.MemoryInto(into, p.figure(name+"_"))
	}
	process("server", begin.server, end.server)
	process("load", begin.load, end.load)
}

// memory reads the server's memory again after the phase has settled.
func (e *engine) memory(ctx context.Context, p *Phase, into measure.Sample) error {
	if p.SettleMs == 0 || e.spec.ServerPID == 0 {
		return nil
	}
	if err := pause(ctx, time.Duration(p.SettleMs)*time.Millisecond); err != nil {
		return err
	}
	c := e.countAll()
	c.server.MemoryInto(into, p.figure("server_"))
	return nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
