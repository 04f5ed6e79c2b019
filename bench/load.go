package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// loadResult is what a load process answers, as JSON on its standard output:
// one for each interval as it ends, with a Point alone, and the result in the
// end.
type loadResult struct {
	Point  Sample   `json:"point,omitempty"`
	Sample Sample   `json:"sample,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// RunLoad is a load process: it reads what to do as JSON from in and writes the
// result as JSON to out. What goes wrong with the load is part of the result;
// an error is returned when there is nobody to tell.
func RunLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec loadSpec
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return fmt.Errorf("the load's instructions: %w", err)
	}
	answers := json.NewEncoder(out)
	e := newEngine(&spec)
	e.point = func(s Sample) {
		if err := answers.Encode(loadResult{Point: s}); err != nil {
			e.note("an interval was not reported", err)
		}
	}
	return answers.Encode(e.result(ctx))
}

// result is what the load comes to.
func (e *engine) result(ctx context.Context) (result loadResult) {
	sample, err := e.whole(ctx)
	e.notes.Lock()
	defer e.notes.Unlock()
	result.Notes = e.notes.list
	if err != nil {
		result.Error = err.Error()
		return result
	}
	result.Sample = sample
	return result
}

// whole is a load from the set-up to the clean-up.
func (e *engine) whole(ctx context.Context) (sample Sample, err error) {
	if err := e.spec.check(); err != nil {
		return nil, err
	}
	admin, err := e.spec.Access.connect("admin")
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if e.target, err = newTarget(e.spec, admin); err != nil {
		return nil, err
	}
	if e.spec.Remove {
		// An interrupted load cleans up as well.
		defer func() { err = errors.Join(err, e.target.tearDown(context.WithoutCancel(ctx))) }()
	}
	if !e.spec.Keep {
		if err := e.target.setUp(ctx); err != nil {
			return nil, err
		}
	}
	return e.run(ctx)
}
