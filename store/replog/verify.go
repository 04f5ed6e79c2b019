package replog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Report is what Verify has read of a log.
type Report struct {
	First, Last uint64 // the oldest and the newest record that was read; 0: there is none
	Bytes       int64
	Problem     error // why a record cannot be read, or does not continue the one before; nil: none
	Copies      []Proof
}

// Proof says whether the log contains the newest commit of a copy.
type Proof byte

// The proofs.
const (
	Different Proof = iota // there is another record, or none
	Equal                  // with the same history
	Unproven               // it has no chain: an older fila has written it
	Cut                    // it is before the oldest record
)

// Verify reads the log from its oldest record to the newest that this replica has applied,
// checks that each record continues the one before, and whether the log contains the newest
// commits of copies. Records are read one by one, through the replica of the server that this
// node is connected to if that has one; rate is how many bytes it reads in a second at most, 0
// for any number. A record counts as readCost bytes at least.
func (r *Replica) Verify(ctx context.Context, copies []Mark, rate int) (Report, error) {
	st, err := r.j.state(ctx)
	if err != nil {
		return Report{}, err
	}
	rep := Report{First: st.first, Copies: make([]Proof, len(copies))}
	for i, c := range copies {
		if c.Seq < st.first {
			rep.Copies[i] = Cut
		}
	}
	last := min(st.last, r.Seen().Seq)
	var at mark
	begin, cost := time.Now(), 0
	for seq := st.first; seq != 0 && seq <= last; seq++ {
		data, err := r.j.getNear(ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			if cut, err := r.j.state(ctx); err == nil && cut.first > seq { // meanwhile, behind a snapshot
				for i, c := range copies {
					if c.Seq >= seq && c.Seq < cut.first {
						rep.Copies[i] = Cut
					}
				}
				seq, at, rep.First = cut.first-1, mark{}, cut.first
				continue
			}
			rep.Problem = fmt.Errorf("record %d is not there: %w", seq, err)
			return rep, nil
		}
		if err != nil {
			return rep, fmt.Errorf("replog: reading record %d: %w", seq, err)
		}
		h, next, err := at.verify(data, seq == rep.First)
		if err != nil {
			rep.Problem = fmt.Errorf("record %d: %w", seq, err)
			return rep, nil
		}
		at = next
		rep.Last, rep.Bytes = seq, rep.Bytes+int64(len(data))
		for i, c := range copies {
			if c.Seq == seq && c.Epoch == h.epoch && c.N == h.n {
				rep.Copies[i] = prove(c.Chain, chainOf(h, data))
			}
		}
		cost += max(len(data), readCost)
		if rate > 0 {
			if err := sleep(ctx, time.Duration(float64(cost)/float64(rate)*float64(time.Second))-time.Since(begin)); err != nil {
				return rep, err
			}
		}
	}
	return rep, nil
}

// readCost bounds how many small records are read in a second: each costs about 0.25 ms of a
// processor, at fila and NATS together.
const readCost = 32 << 10

func prove(copied, logged uint64) Proof {
	switch {
	case copied == 0 || logged == 0:
		return Unproven
	case copied == logged:
		return Equal
	}
	return Different
}

// verify checks that a record continues the one of the mark. The oldest record continues any.
func (m mark) verify(record []byte, oldest bool) (head, mark, error) {
	h, _, err := decode(record)
	if err != nil {
		return h, m, err
	}
	if oldest {
		return h, mark{epoch: h.epoch, n: h.n, chain: chainOf(h, record), more: h.more, ended: h.kind == kindResign}, nil
	}
	next, v := m.next(h)
	switch {
	case v == stale:
		return h, m, nil
	case v == broken || v == unknown:
		return h, m, fmt.Errorf("%d of epoch %d comes after %d of %d", h.n, h.epoch, m.n, m.epoch)
	case !m.follows(h):
		return h, m, fmt.Errorf("%d of epoch %d continues another record than the one before it", h.n, h.epoch)
	}
	next.chain = chainOf(h, record)
	return h, next, nil
}

// sleep waits, and ends with its context.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
