package opscmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/cli/terminal"
	"github.com/filaq/fila/client"
	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// The demo of shared circuits: two filas call a vendor that fails for a while.
const (
	sharedVendor    = "vendor" // its circuit key, and the header that names it
	sharedQueue     = "calls"
	sharedThreshold = 5
	sharedProbes    = 3 // half_open_max_calls
	sharedWorkers   = 2 // concurrent calls of each fila; together one more than the probes
)

// sharedFilas are the filas of the demo with their messages per second. The first one has the
// NATS server. The second one sends so few messages that the first one detects the failure.
var sharedFilas = []struct {
	name string // also its subject prefix
	rate int
}{{"east", 20}, {"west", 2}}

// sharedConfig returns the configuration of fila i; url is the address of the NATS server of
// the first one.
func sharedConfig(dir, url string, i int, cooldown time.Duration) config.Config {
	name := sharedFilas[i].name
	cfg := demoConfig(filepath.Join(dir, name))
	cfg.NATS.URL, cfg.NATS.SubjectPrefix, cfg.NATS.Embedded.JetStream = url, name, url == ""
	cfg.Shared.Enabled, cfg.Shared.Instance = true, name
	cfg.CircuitDefaults.Threshold, cfg.CircuitDefaults.CooldownMs = sharedThreshold, max(1, cooldown.Milliseconds())
	cfg.CircuitDefaults.HalfOpenMaxCalls, cfg.CircuitDefaults.HalfOpenSuccesses = sharedProbes, 1
	return cfg
}

// sharedDemo runs the demo of shared circuits. The vendor works for a quarter of the time, then
// fails until the circuit has been open for 3/10; the probes take 1/10; the rest is for the
// blocked messages.
func sharedDemo(ctx context.Context, s *demoStage, length time.Duration) error {
	var servers []*demoServer
	url := ""
	for i := range sharedFilas {
		server, err := s.start(ctx, sharedConfig(s.dir, url, i, 3*length/10))
		if err != nil {
			return err
		}
		servers = append(servers, server)
		url = servers[0].url
	}
	s.write(`Two filas, each with its own queues and workers, call one vendor
and share its circuit: %d failures open it, %d probes may try.
Look inside meanwhile:
  fila circuit list -s %s --subject-prefix west

`, sharedThreshold, sharedProbes, url)
	d := newSharedPlay(s)
	if err := d.play(ctx, servers, length); err != nil {
		return err
	}
	report := d.report()
	report.Result = report.words()
	return s.result(report, report.Result)
}

// sharedPlay is the vendor and the state of the filas.
type sharedPlay struct {
	*demoStage
	answer chan struct{} // closed when the vendor answers probes

	mu struct {
		sync.Mutex
		vendor vendorState
		filas  []*sharedFila
	}
}

// vendorState is how the vendor answers calls.
type vendorState int

const (
	vendorWorks vendorState = iota
	vendorFails
	vendorTried // works again, but delays the answers to probes
)

// sharedFila is the result of one fila.
type sharedFila struct {
	Name      string `json:"name"`
	Sent      int    `json:"sent"`
	Done      int    `json:"done"`
	Failed    int    `json:"failed"` // calls before the circuit opened
	WhileOpen int    `json:"while_open"`
	Probes    int    `json:"probes"`
	HeldBack  int    `json:"held_back"` // blocked messages when the last probe arrived
	Waiting   int    `json:"waiting"`
	Circuit   string `json:"circuit"`             // state according to the fila's events
	OpenedBy  string `json:"opened_by,omitempty"` // instance
}

// sharedReport is what fila demo --shared --json prints.
type sharedReport struct {
	ProbesAllowed int          `json:"probes_allowed"`
	Filas         []sharedFila `json:"filas"`
	Moments       []demoMoment `json:"moments"`
	Result        string       `json:"result"` // summary in words
}

func newSharedPlay(s *demoStage) *sharedPlay {
	d := &sharedPlay{demoStage: s, answer: make(chan struct{})}
	for _, f := range sharedFilas {
		d.mu.filas = append(d.mu.filas, &sharedFila{Name: f.name, Circuit: "closed"})
	}
	s.table = func() []string { return d.report().lines(s.paint) }
	return d
}

// play runs the demo step by step; each step waits for the previous one.
func (d *sharedPlay) play(ctx context.Context, servers []*demoServer, length time.Duration) error {
	d.begin = time.Now()
	var sending sync.WaitGroup
	defer sending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, s := range servers {
		if err := d.serve(ctx, i, s); err != nil {
			return err
		}
		sending.Go(func() { d.sendFrom(ctx, i, s.c) })
	}
	d.say("the vendor works")
	d.pass(ctx, d.begin, length/4)
	d.vendor(vendorFails, "the vendor fails")
	d.until(ctx, "the circuit to open at both", d.all("open"))
	d.pass(ctx, time.Now(), length/10)
	d.vendor(vendorTried, "the vendor is well again, which nobody knows")
	d.until(ctx, "the probes", func() bool { return d.sum(func(f *sharedFila) int { return f.Probes }) >= sharedProbes })
	d.pass(ctx, time.Now(), length/10) // time for one probe too many to arrive
	d.held()
	d.vendor(vendorWorks, "the vendor answers them")
	close(d.answer)
	d.until(ctx, "the circuit to close at both", d.all("closed"))
	// Wait for messages from before the circuit closed. Newer ones arrive all the time, but few
	// are under way.
	d.until(ctx, "what has waited to go", func() bool {
		return d.sum(func(f *sharedFila) int { return max(0, f.Sent-f.Done-sharedWorkers) }) == 0
	})
	d.say("all that waited has gone")
	d.pass(ctx, d.begin, length)
	if err := d.failed(nil); err != nil {
		return err
	}
	d.draw(true)
	return nil
}

// all is the condition that all filas have reported a state of the circuit.
func (d *sharedPlay) all(state string) func() bool {
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return !slices.ContainsFunc(d.mu.filas, func(f *sharedFila) bool { return f.Circuit != state })
	}
}

// sum adds a figure of all filas.
func (d *sharedPlay) sum(figure func(f *sharedFila) int) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.mu.filas {
		n += figure(f)
	}
	return n
}

// serve subscribes to the circuit events of a fila and consumes its messages.
func (d *sharedPlay) serve(ctx context.Context, i int, s *demoServer) error {
	subjects, err := wire.NewSubjects(s.c.Prefix())
	if err != nil {
		return err
	}
	if _, err := s.nc.Subscribe(subjects.Event(wire.EventCircuitChanged, sharedVendor), func(m *nats.Msg) { d.changed(i, m.Data) }); err != nil {
		return err
	}
	settings := client.QueueSettings{CircuitHeader: sharedVendor, RetryInitialMs: new(int64(100)), RetryMaxMs: new(int64(100))}
	if _, err := s.c.QueueCreate(ctx, sharedQueue, settings); err != nil {
		return err
	}
	_, err = d.consume(ctx, s.c, sharedQueue, func(ctx context.Context, _ *client.Message) error { return d.call(ctx, i) },
		client.ConsumerName("workers"), client.MaxInFlight(sharedWorkers), client.Concurrency(sharedWorkers))
	return err
}

// changed handles an event of a fila.
func (d *sharedPlay) changed(i int, data []byte) {
	var e struct {
		Data struct {
			New      string
			By       string
			Cause    string
			Failures int `json:"consecutive_failures"`
		}
	}
	if json.Unmarshal(data, &e) != nil {
		return
	}
	d.mu.Lock()
	f := d.mu.filas[i]
	f.Circuit = e.Data.New
	text := fmt.Sprintf("%s: %s", f.Name, e.Data.New)
	if e.Data.New == "open" {
		f.OpenedBy = e.Data.By
		text += fmt.Sprintf(" by %s, after %s of its own", e.Data.By, terminal.Plural(int64(f.Failed), "failure"))
	}
	d.mu.Unlock()
	d.say("%s", text)
}

// vendor changes the state of the vendor.
func (d *sharedPlay) vendor(state vendorState, text string) {
	d.mu.Lock()
	d.mu.vendor = state
	d.mu.Unlock()
	d.say("%s", text)
}

// held records the number of blocked messages.
func (d *sharedPlay) held() {
	var probes []string
	d.mu.Lock()
	all, held := 0, 0
	for _, f := range d.mu.filas {
		f.HeldBack = f.Sent - f.Done - f.Probes
		all, held = all+f.Probes, held+f.HeldBack
		probes = append(probes, fmt.Sprintf("%s %d", f.Name, f.Probes))
	}
	d.mu.Unlock()
	d.say("%s: %s; %d messages wait", terminal.Plural(int64(all), "probe"), strings.Join(probes, ", "), held)
}

func (d *sharedPlay) sendFrom(ctx context.Context, i int, c *client.Client) {
	d.send(ctx, sharedFilas[i].rate, func(int) error {
		_, err := c.PublishAsync(ctx, sharedQueue, []byte("call"), client.Header(sharedVendor, sharedVendor))
		d.mu.Lock()
		defer d.mu.Unlock()
		if err == nil {
			d.mu.filas[i].Sent++
		}
		return err
	})
}

var errVendorDown = errors.New("the vendor is down")

// call is a call of the vendor by a worker of fila i.
func (d *sharedPlay) call(ctx context.Context, i int) error {
	d.mu.Lock()
	f, state := d.mu.filas[i], d.mu.vendor
	switch {
	case state == vendorTried:
		f.Probes++
	case state == vendorFails && f.Circuit == "open":
		f.WhileOpen++ // it was under way when the circuit opened
	case state == vendorFails:
		f.Failed++
	}
	d.mu.Unlock()
	d.wake()
	var soon <-chan time.Time
	var answer <-chan struct{}
	if state == vendorTried {
		answer = d.answer
	} else {
		soon = time.After(demoCall)
	}
	select {
	case <-soon:
	case <-answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	if state == vendorFails {
		return errVendorDown // fila retries it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f.Done++
	return nil
}

// report returns the present state.
func (d *sharedPlay) report() sharedReport {
	r := sharedReport{ProbesAllowed: sharedProbes, Moments: d.moments()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.mu.filas {
		f.Waiting = max(0, f.Sent-f.Done)
		r.Filas = append(r.Filas, *f)
	}
	return r
}

func (r sharedReport) lines(paint terminal.Style) []string {
	lines := []string{"", paint.Dim(fmt.Sprintf("%-6s %6s %6s %7s %7s %8s  %s", "FILA", "SENT", "DONE", "FAILED", "PROBES", "WAITING", "CIRCUIT"))}
	for _, f := range r.Filas {
		state := paint.Green(f.Circuit)
		switch f.Circuit {
		case "open":
			state = paint.Red(f.Circuit)
		case "half-open":
			state = paint.Yellow(f.Circuit)
		}
		lines = append(lines, fmt.Sprintf("%-6s %6d %6d %7d %7d %8d  %s", f.Name, f.Sent, f.Done, f.Failed+f.WhileOpen, f.Probes, f.Waiting, state))
	}
	return append(lines, "")
}

// words returns a summary computed from the figures alone.
func (r sharedReport) words() string {
	first, second := r.Filas[0], r.Filas[1]
	text := fmt.Sprintf("%s had seen the vendor fail %d times and %s %d times when %s opened the circuit, for both: %s held its messages back, too.",
		first.Name, first.Failed, second.Name, second.Failed, first.OpenedBy, second.Name)
	text += fmt.Sprintf(" While it was open the vendor got %s.", terminal.Plural(int64(first.WhileOpen+second.WhileOpen), "call"))
	text += fmt.Sprintf(" Then %d probes tried, of %d that are allowed to both together (%s %d, %s %d), while %d and %d messages waited; when they had gone well, all went.",
		first.Probes+second.Probes, r.ProbesAllowed, first.Name, first.Probes, second.Name, second.Probes, first.HeldBack, second.HeldBack)
	return text + " All that it takes is [shared] enabled = true in the configuration of both."
}
