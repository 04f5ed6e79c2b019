package shard

import (
	"errors"
	"slices"
	"strings"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Finder looks for the messages of one queue that are as a filter says. What a machine
// knows of them is asked first, in pieces of bounded size, and what the store knows is
// read outside of it.
type Finder struct {
	q       *Queue
	match   queue.Match
	f       wire.Filter
	headers map[string]string // by name; nil: none is asked for
	died    struct{ since, before int64 }
}

// Finder returns what looks for messages of q as f says, which has been checked. With
// last it does not look beyond that sequence; 0 is no bound.
func (q *Queue) Finder(f wire.Filter, last uint64) (*Finder, *wire.Error) {
	if err := f.For(q.name); err != nil {
		return nil, err
	}
	fd := &Finder{q: q, f: f, match: queue.Match{
		States: statesOf(f.State, q.IsDLQ()), AttemptsMin: f.AttemptsMin, Consumer: f.Consumer, Last: last,
	}}
	if q.IsDLQ() {
		fd.match.AttemptsMin = 0 // those before it died are the store's
	} else if fd.asksError() {
		fd.match.AttemptsMin = max(fd.match.AttemptsMin, 1) // others have failed at nothing
	}
	for _, key := range f.Keys {
		fd.match.Keys = append(fd.match.Keys, wire.NamedKey(key))
	}
	if len(f.IDs) > 0 {
		fd.match.IDs = make(map[store.ID]bool, len(f.IDs))
		for _, text := range f.IDs {
			if id, ok := wire.ParseID(text); ok {
				fd.match.IDs[id] = true
			}
		}
	}
	fd.match.Since, fd.match.Before = f.Enqueued()
	fd.died.since, fd.died.before = f.Died()
	fd.match.Throttle, fd.match.Circuit = f.Gates()
	if len(f.Header) > 0 {
		fd.headers = make(map[string]string, len(f.Header))
		for name, value := range f.Header {
			fd.headers[name] = wire.NamedKey(value)
		}
	}
	return fd, nil
}

// statesOf is in which states of a machine messages are that have one for people.
func statesOf(state string, dead bool) []queue.MessageState {
	switch state {
	case wire.StatePending:
		return []queue.MessageState{queue.StatePending, queue.StateFailing}
	case wire.StateParked:
		return []queue.MessageState{queue.StateBlocked, queue.StateOrdered}
	case wire.StateDelayed:
		return []queue.MessageState{queue.StateDelayed}
	case wire.StateLeased:
		return []queue.MessageState{queue.StateLeased}
	case wire.StateDead:
		return []queue.MessageState{queue.StateDelayed, queue.StatePending, queue.StateBlocked, queue.StateOrdered, queue.StateFailing}
	}
	return nil
}

// findReads is how many messages are read of the store at a time.
const findReads = 512

// Find looks at up to slots messages, from the sequence from on in the order of sequences,
// and returns up to limit of those that are meant, as [queue.Queue.Select] does. next is
// where to go on, 0 at the end: there may be more although none were found. What cannot be
// read is as no filter says that asks for what is in the store.
func (fd *Finder) Find(from uint64, limit, slots int) (found []queue.MessageView, next uint64, werr *wire.Error) {
	return fd.find(from, limit, slots, nil)
}

// find is Find into list, whose contents are over: who looks again and again makes no
// garbage.
func (fd *Finder) find(from uint64, limit, slots int, list []queue.MessageView) (found []queue.MessageView, next uint64, werr *wire.Error) {
	may := limit
	if fd.reads() {
		may = slots // most may be others
	}
	ok := fd.q.View(func(m *queue.Queue, side queue.Role, now int64) {
		found, next = m.Select(side, &fd.match, from, may, slots, list[:0], now)
	})
	if !ok {
		return nil, 0, fd.q.Gone()
	}
	if !fd.reads() {
		return found, next, nil
	}
	candidates, n := found, 0
	for len(candidates) > 0 {
		piece := candidates[:min(findReads, len(candidates))]
		candidates = candidates[len(piece):]
		meant, err := fd.meant(piece)
		if err != nil {
			return nil, 0, err
		}
		for i := range piece {
			if !meant[i] {
				continue
			}
			if n == limit {
				return found[:n], piece[i].Seq, nil
			}
			found[n] = piece[i]
			n++
		}
	}
	return found[:n], next, nil
}

// reads reports whether the store has to be asked.
func (fd *Finder) reads() bool { return fd.headers != nil || fd.asksDead() || fd.asksError() }

func (fd *Finder) asksDead() bool {
	f := &fd.f
	return fd.q.IsDLQ() && (f.Reason+f.DiedAfter+f.DiedBefore != "" || f.AttemptsMin > 0 || fd.asksError())
}

func (fd *Finder) asksError() bool { return fd.f.ErrorCode+fd.f.ErrorContains+fd.f.ErrorGroup != "" }

// meant asks the store which of these messages are meant.
func (fd *Finder) meant(piece []queue.MessageView) ([]bool, *wire.Error) {
	meant := make([]bool, len(piece))
	refs := make([]store.Ref, len(piece))
	for i := range piece {
		refs[i] = store.Ref{Queue: fd.q.id, Seq: piece[i].Seq}
	}
	at := make([]int, len(piece)) // of refs, in piece
	for i := range at {
		at[i] = i
	}
	if fd.asksDead() || fd.asksError() {
		kept := refs[:0]
		var err error
		if fd.q.IsDLQ() {
			err = fd.q.Store().Dead(refs, func(i int, d *store.Dead) { meant[i] = d != nil && fd.diedSo(d) })
		} else {
			err = fd.q.Store().History(refs, func(i int, records [][]byte) { meant[i] = fd.failedSo(records) })
		}
		if err := fd.unread(err); err != nil {
			return nil, err
		}
		at = at[:0]
		for i, ref := range refs {
			if meant[i] {
				kept, at = append(kept, ref), append(at, i)
			}
		}
		refs = kept
	}
	if fd.headers == nil || len(refs) == 0 {
		return meant, nil
	}
	clear(meant)
	err := fd.q.Store().Read(refs, func(i int, headers, _ []byte) { meant[at[i]] = fd.has(headers) })
	return meant, fd.unread(err)
}

// unread returns why nothing can be read any more. That some messages cannot be is noted:
// they are on no disk yet, gone, or broken.
func (fd *Finder) unread(err error) *wire.Error {
	var broken *store.CorruptError
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound):
		return nil
	case errors.As(err, &broken):
		fd.q.shard.Log.Error("a message cannot be read, and is not found by what is in it", "queue", fd.q.name, "error", err)
		return nil
	}
	return wire.Internal(err.Error())
}

// has reports whether encoded headers are as the filter says.
func (fd *Finder) has(encoded []byte) bool {
	for name, value := range fd.headers {
		if !wire.HasHeader(encoded, name, value) {
			return false
		}
	}
	return true
}

// diedSo reports whether a dead letter died as the filter says.
func (fd *Finder) diedSo(d *store.Dead) bool {
	f := &fd.f
	return (f.Reason == "" || d.Reason == f.Reason) &&
		d.Attempts >= f.AttemptsMin &&
		d.At >= fd.died.since && (fd.died.before == 0 || d.At < fd.died.before) &&
		fd.erred(d)
}

// failedSo reports whether the last attempt of a message that has failed did so as the
// filter says, by its history. The group of its error is that of a dead letter with it.
func (fd *Finder) failedSo(records [][]byte) bool {
	for _, r := range slices.Backward(records) {
		p, err := queue.ReadAttempt(r)
		if err != nil {
			return false
		}
		if p.Outcome == wire.AttemptNack || p.Outcome == wire.AttemptExpired {
			return fd.erred(&store.Dead{SourceQueue: fd.q.name, Error: p.Error, ErrorCode: p.Code})
		}
	}
	return false
}

// erred reports whether an error is as the filter says.
func (fd *Finder) erred(d *store.Dead) bool {
	f := &fd.f
	return (f.ErrorCode == "" || d.ErrorCode == f.ErrorCode) &&
		strings.Contains(d.Error, f.ErrorContains) &&
		(f.ErrorGroup == "" || deadletter.GroupID(d) == f.ErrorGroup)
}
