package store

import (
	"fmt"
	"math"

	"github.com/filaq/fila/store/storefile"
)

const maxName = 4096 // bytes of the name of a queue, consumer or configuration key

// Check checks the limits of a batch that do not depend on the store, and returns
// [ErrTooBig] or [ErrInvalid]. Implementations of [Store] call it. It does not change the
// batch.
func (b *Batch) Check() error {
	var total int64
	for i := range b.Add {
		m := &b.Add[i]
		size := int64(len(m.Headers)) + int64(len(m.Payload))
		total += size
		if size > MaxMessageBytes {
			return fmt.Errorf("%w: message %d of queue %d has %d bytes, %d are allowed", ErrTooBig, m.Seq, m.Queue, size, MaxMessageBytes)
		}
		if err := checkEntry(m); err != nil {
			return err
		}
	}
	if total > MaxBatchBytes {
		return fmt.Errorf("%w: batch of %d bytes, %d are allowed", ErrTooBig, total, MaxBatchBytes)
	}
	for i := range b.Move {
		if err := checkEntry(&b.Move[i].To); err != nil {
			return err
		}
	}
	for i := range b.State {
		if n := storefile.StateSize(&b.State[i]); n > MaxHeaderBytes {
			return fmt.Errorf("%w: state of %d bytes, %d are allowed", ErrTooBig, n, MaxHeaderBytes)
		}
	}
	for i := range b.History {
		switch n := len(b.History[i].Record); {
		case n == 0:
			return fmt.Errorf("%w: an empty record of a history", ErrInvalid)
		case n > MaxAttemptBytes:
			return fmt.Errorf("%w: record of a history of %d bytes, %d are allowed", ErrTooBig, n, MaxAttemptBytes)
		}
	}
	for i := range b.Dedupe {
		if err := checkName("dedupe id", b.Dedupe[i].DedupeID); err != nil {
			return err
		}
	}
	return b.checkRecords()
}

func (b *Batch) checkRecords() error {
	for i := range b.PutQueues {
		q := &b.PutQueues[i]
		if q.ID == 0 {
			return fmt.Errorf("%w: queue id 0", ErrInvalid)
		}
		if len(q.Settings) > MaxMessageBytes {
			return fmt.Errorf("%w: settings of %d bytes, %d are allowed", ErrTooBig, len(q.Settings), MaxMessageBytes)
		}
		if err := checkName("queue name", q.Name); err != nil {
			return err
		}
	}
	for i := range b.PutConsumers {
		if err := checkName("consumer name", b.PutConsumers[i].Name); err != nil {
			return err
		}
	}
	for _, e := range b.PutConfig {
		if err := checkName("configuration key", e.Key); err != nil {
			return err
		}
		if len(e.Value) > MaxHeaderBytes {
			return fmt.Errorf("%w: value of %d bytes, %d are allowed", ErrTooBig, len(e.Value), MaxHeaderBytes)
		}
	}
	return nil
}

func checkEntry(m *Message) error {
	if len(m.Routes) > MaxRoutes {
		return fmt.Errorf("%w: %d routes, up to %d are allowed", ErrInvalid, len(m.Routes), MaxRoutes)
	}
	for i := range m.Routes {
		if w := m.Routes[i].Weight; w > math.MaxInt32 {
			return fmt.Errorf("%w: weight %d of a route, up to %d is allowed", ErrInvalid, w, math.MaxInt32)
		}
	}
	if m.Priority > MaxPriority {
		return fmt.Errorf("%w: priority %d, up to %d is allowed", ErrInvalid, m.Priority, MaxPriority)
	}
	if m.Seq > MaxSeq {
		return fmt.Errorf("%w: sequence number %d of queue %d, up to %d is allowed", ErrInvalid, m.Seq, m.Queue, uint64(MaxSeq))
	}
	if n := storefile.EntrySize(m); n > MaxHeaderBytes {
		return fmt.Errorf("%w: header of %d bytes, %d are allowed", ErrTooBig, n, MaxHeaderBytes)
	}
	return nil
}

func checkName(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: empty %s", ErrInvalid, what)
	case len(s) > maxName:
		return fmt.Errorf("%w: %s of %d bytes, %d are allowed", ErrTooBig, what, len(s), maxName)
	}
	return nil
}
