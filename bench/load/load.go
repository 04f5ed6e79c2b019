package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/filaq/fila/bench/measure"
	"github.com/filaq/fila/bench/system"
)

// Result is a line of a load process's output, as JSON: one with a Point for each interval, and
// the final result.
type Result struct {
	Point  measure.Sample `json:"point,omitempty"`
	Sample measure.Sample `json:"sample,omitempty"`
	Notes  []string       `json:"notes,omitempty"`
	Error  string         `json:"error,omitempty"`
}

// Open opens the target of a load. failed gets asynchronous errors of connections.
type Open func(name system.Name, access *system.Access, q *system.Queue, failed func(error)) (system.Target, error)

// Run is a load process: it reads a [Spec] as JSON from in and writes each [Result] as a line
// of JSON to out. Errors of the load are part of the result; Run itself returns an error only
// if it cannot write one. open opens the target; system.Open opens systems behind NATS.
func Run(ctx context.Context, in io.Reader, out io.Writer, open Open) error {
	var spec Spec
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return fmt.Errorf("the load's instructions: %w", err)
	}
	answers := json.NewEncoder(out)
	e := newEngine(&spec, open)
	e.point = func(s measure.Sample) {
		if err := answers.Encode(Result{Point: s}); err != nil {
			e.note("an interval was not reported", err)
		}
	}
	return answers.Encode(e.result(ctx))
}

// result runs the load.
func (e *engine) result(ctx context.Context) (result Result) {
	sample, err := e.whole(ctx)
	if err != nil {
		sample, result.Error = nil, err.Error()
	}
	e.notes.Lock()
	defer e.notes.Unlock()
	result.Sample, result.Notes = sample, e.notes.list
	return result
}

// whole runs a load from its set-up to its clean-up.
func (e *engine) whole(ctx context.Context) (sample measure.Sample, err error) {
	if err := e.spec.Check(); err != nil {
		return nil, err
	}
	if e.target, err = e.open(e.spec.System, &e.spec.Access, e.spec.queue(), func(err error) { e.note("connection", err) }); err != nil {
		return nil, err
	}
	defer e.target.Close()
	if e.spec.Remove {
		// An interrupted load cleans up as well.
		defer func() { err = errors.Join(err, e.target.TearDown(context.WithoutCancel(ctx))) }()
	}
	if !e.spec.Keep {
		if err := e.target.SetUp(ctx); err != nil {
			return nil, err
		}
	}
	return e.run(ctx)
}

func (s *Spec) queue() *system.Queue {
	queue := s.Queue
	queue.Unread = s.Phases[0].Mode != ModeLife
	return &queue
}

// AllThere checks that the queue of a load behind NATS holds all that its phases put into it.
func AllThere(ctx context.Context, s *Spec) error {
	target, err := system.Open(s.System, &s.Access, s.queue(), func(error) {}) // Held reports errors
	if err != nil {
		return err
	}
	defer target.Close()
	held, err := target.Held(ctx)
	if err != nil {
		return fmt.Errorf("count messages after the restart: %w", err)
	}
	var filled int64
	for _, p := range s.Phases {
		filled += p.Count
	}
	if held.Messages != filled {
		return fmt.Errorf("of %d confirmed messages %d are there after the restart", filled, held.Messages)
	}
	return nil
}
