package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// stallAfter is how long nothing may move before a load gives up.
const stallAfter = 30 * time.Second

// glance is how often a running phase is looked at. What is counted is counted
// at that moment, so that it bounds the resolution, not the precision.
const glance = 5 * time.Millisecond

// maxRefused is how many more messages may be refused than are confirmed before
// a load gives up.
const maxRefused = 1000

// leastCPU is how much CPU time must have been used for a figure per message:
// the system counts it in ticks of 10 ms.
const leastCPU = 50 * time.Millisecond

// engine runs the phases of a load. The counters go on from phase to phase:
// published - refused - finished is what the queue holds.
type engine struct {
	spec   *loadSpec
	target target
	epoch  time.Time // times in payloads are nanoseconds since then

	published, confirmed, refused, finished atomic.Int64

	// from is when the measured part of the phase began; messages published
	// earlier are left out of latencies.
	from atomic.Int64

	// point takes the figures of an interval.
	point func(Sample)

	notes struct {
		sync.Mutex
		list []string
		seen map[string]bool
	}
}

func newEngine(spec *loadSpec) *engine {
	e := &engine{spec: spec, epoch: time.Now(), point: func(Sample) {}}
	e.notes.seen = map[string]bool{}
	return e
}

func (e *engine) now() int64 { return int64(time.Since(e.epoch)) }

// note keeps a text for the report, once for each kind of event.
func (e *engine) note(kind string, err error) {
	e.notes.Lock()
	defer e.notes.Unlock()
	if !e.notes.seen[kind] {
		e.notes.seen[kind] = true
		e.notes.list = append(e.notes.list, fmt.Sprintf("%s: %v", kind, err))
	}
}

// counts are the counters at one moment.
type counts struct {
	at                                      time.Time
	published, confirmed, refused, finished int64
	server, load                            usage
	busy                                    time.Duration // of all processors; 0 is not known
}

// count reads the counters, those of the processes as well if asked.
func (e *engine) count(processes bool) counts {
	c := counts{
		at: time.Now(), finished: e.finished.Load(), confirmed: e.confirmed.Load(),
		refused: e.refused.Load(), published: e.published.Load(),
	}
	if !processes {
		return c
	}
	for _, p := range []struct {
		who string
		pid int
		u   *usage
	}{{"server", e.spec.ServerPID, &c.server}, {"load process", os.Getpid(), &c.load}} {
		if p.pid == 0 {
			continue
		}
		var err error
		if *p.u, err = readUsage(p.pid); err != nil {
			e.note("no CPU and memory of the "+p.who, err)
		}
	}
	c.busy, _ = machineBusy() // where it is not known, that column stays empty
	return c
}

// held is how many messages the queue holds.
func (c *counts) held() int64 { return c.published - c.refused - c.finished }

// unconfirmed is how many answers producers wait for.
func (c *counts) unconfirmed() int64 { return c.published - c.refused - c.confirmed }

// done is how many messages a phase has brought to where its mode ends.
func (c *counts) done(m mode) int64 {
	if m == modeLife {
		return min(c.confirmed, c.finished)
	}
	return c.confirmed
}

// run goes through all phases.
func (e *engine) run(ctx context.Context) (Sample, error) {
	sample := Sample{}
	for i := range e.spec.Phases {
		p := &e.spec.Phases[i]
		if p.Share > 0 {
			if err := p.shareOf(&e.spec.Phases[i-1], sample); err != nil {
				return nil, err
			}
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

// shareOf sets the rate by what the phase before has reached.
func (p *phase) shareOf(before *phase, reached Sample) error {
	p.Rate = p.Share * reached[before.figure("rate")]
	if p.Rate < 1 {
		return fmt.Errorf("phase %s reached less than a message a second", before.label())
	}
	reached[p.figure("target_rate")] = p.Rate
	return nil
}

func (p *phase) label() string {
	if p.Name != "" {
		return p.Name
	}
	return string(p.Mode)
}

func (p *phase) figure(name string) string {
	if p.Name == "" {
		return name
	}
	return p.Name + "_" + name
}

func (e *engine) phase(ctx context.Context, p *phase, into Sample) (err error) {
	e.from.Store(math.MaxInt64)
	backlog := e.count(false)
	crew := &crew{e: e, p: p, stop: make(chan struct{})}
	defer func() { err = errors.Join(err, crew.end(ctx)) }()
	if err := crew.gather(ctx); err != nil {
		return err
	}
	begin := e.count(true)
	warm := p.warmUp(e.spec.Payload)
	if warm == nil {
		e.from.Store(e.now())
	}
	crew.start()
	if warm != nil {
		if err := e.watch(ctx, func(c counts) bool { return warm(c.at.Sub(begin.at), c.done(p.Mode)-begin.done(p.Mode)) }); err != nil {
			return err
		}
		e.from.Store(e.now())
		begin = e.count(true)
	}
	sampler := newSampler(crew, begin)
	if err := e.watch(ctx, func(c counts) bool {
		sampler.look(ctx, c.at)
		return p.over(c.at.Sub(begin.at), c.done(p.Mode)-begin.done(p.Mode), e.spec.Payload)
	}); err != nil {
		return err
	}
	end := e.count(true)
	crew.halt()
	if err := e.settle(ctx, p, backlog.held() > 0, end, into); err != nil {
		return err
	}
	if p.Follow {
		if err := crew.account(ctx, e.refused.Load()-backlog.refused, into); err != nil {
			return err
		}
	}
	e.figures(p, begin, end, into)
	crew.latencies(p, into)
	return e.memory(ctx, p, into)
}

// warmUp says when the warm-up is over, by its time and its messages; nil is
// none.
func (p *phase) warmUp(payload int) func(time.Duration, int64) bool {
	if p.Mode == modeFill || p.SampleMs > 0 {
		return nil
	}
	short := *p
	for _, limit := range []*int64{&short.Count, &short.DurationMs, &short.MaxBytes} {
		if *limit > 0 { // 0 would be no limit
			*limit = max(int64(warmShare*float64(*limit)), 1)
		}
	}
	return func(d time.Duration, n int64) bool { return short.over(d, n, payload) }
}

// over reports whether the measured part has ended.
func (p *phase) over(d time.Duration, n int64, payload int) bool {
	switch {
	case p.Count > 0 && n >= p.Count:
		return true
	case p.MaxBytes > 0 && n*int64(payload) >= p.MaxBytes:
		return true
	case p.Mode == modeFill:
		return false
	}
	return p.DurationMs > 0 && d >= time.Duration(p.DurationMs)*time.Millisecond
}

// settle waits until the phase has left nothing behind.
func (e *engine) settle(ctx context.Context, p *phase, backlog bool, end counts, into Sample) error {
	if err := e.watch(ctx, func(c counts) bool { return c.unconfirmed() <= 0 }); err != nil {
		return fmt.Errorf("last confirmations: %w", err)
	}
	if p.Mode != modeLife || backlog && !p.Drain {
		return nil
	}
	if err := e.watch(ctx, func(c counts) bool { return c.held() <= 0 }); err != nil {
		return fmt.Errorf("last deliveries: %w", err)
	}
	if p.Drain {
		last := e.count(false)
		into[p.figure("drain_rate")] = float64(last.finished-end.finished) / last.at.Sub(end.at).Seconds()
	}
	return nil
}

// watch looks until reached says so. It fails when nothing moves any more.
func (e *engine) watch(ctx context.Context, reached func(counts) bool) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	last := e.count(false)
	moved := last.at
	for {
		c := e.count(false)
		if reached(c) {
			return nil
		}
		if c.refused > c.confirmed+maxRefused {
			return fmt.Errorf("%d messages were refused and %d confirmed", c.refused, c.confirmed)
		}
		if c.published != last.published || c.confirmed != last.confirmed || c.finished != last.finished {
			last, moved = c, c.at
		}
		if c.at.Sub(moved) > stallAfter {
			return fmt.Errorf("nothing has moved for %s: %d published, %d confirmed, %d refused, %d finished",
				stallAfter, c.published, c.confirmed, c.refused, c.finished)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// figures adds what the measured part tells.
func (e *engine) figures(p *phase, begin, end counts, into Sample) {
	seconds := end.at.Sub(begin.at).Seconds()
	n := float64(end.done(p.Mode) - begin.done(p.Mode))
	into[p.figure("rate")] = n / seconds
	into[p.figure("messages")] = n
	into[p.figure("seconds")] = seconds
	if begin.busy > 0 && begin.server.rss > 0 && begin.load.rss > 0 && seconds >= 10*leastCPU.Seconds() {
		own := end.server.cpu - begin.server.cpu + end.load.cpu - begin.load.cpu
		into[p.figure("others_cpus")] = max((end.busy-begin.busy-own).Seconds()/seconds, 0)
	}
	for _, process := range []struct {
		name       string
		begin, end usage
	}{{"server", begin.server, end.server}, {"load", begin.load, end.load}} {
		if process.begin.rss == 0 || process.end.rss == 0 {
			continue
		}
		cpu := (process.end.cpu - process.begin.cpu).Seconds()
		into[p.figure(process.name+"_cpu_s")] = cpu
		if cpu >= leastCPU.Seconds() {
			into[p.figure(process.name+"_cpu_us")] = cpu / n * 1e6
		}
		process.end.memoryInto(into, p.figure(process.name+"_"))
	}
}

// memory reads the server's memory once more after the phase has come to rest.
func (e *engine) memory(ctx context.Context, p *phase, into Sample) error {
	if p.SettleMs == 0 || e.spec.ServerPID == 0 {
		return nil
	}
	if err := pause(ctx, time.Duration(p.SettleMs)*time.Millisecond); err != nil {
		return err
	}
	c := e.count(true)
	c.server.memoryInto(into, p.figure("server_"))
	return nil
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
