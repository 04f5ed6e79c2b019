package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go"

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

// Run is a load process: it reads a [Spec] as JSON from in and writes each [Result] as a line
// of JSON to out. Errors of the load are part of the result; Run itself returns an error only
// if it cannot write one.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec Spec
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return fmt.Errorf("the load's instructions: %w", err)
	}
	answers := json.NewEncoder(out)
	e := newEngine(&spec)
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
	admin, err := e.spec.Access.Connect("admin")
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if e.target, err = e.spec.target(admin); err != nil {
		return nil, err
	}
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

func (s *Spec) target(admin *nats.Conn) (system.Target, error) {
	queue := s.Queue
	queue.Unread = s.Phases[0].Mode != ModeLife
	return system.NewTarget(s.System, &queue, admin, s.Access.Prefix)
}

// AllThere checks that the queue of a load holds all that its phases put into it.
func AllThere(ctx context.Context, s *Spec) error {
	nc, err := s.Access.Connect("check")
	if err != nil {
		return err
	}
	defer nc.Close()
	target, err := s.target(nc)
	if err != nil {
		return err
	}
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
