// Package finder finds the messages of one queue that match a filter. It first asks the
// machine, in pieces of bounded size, and then reads from the store what the machine does not
// know.
package finder

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/filaq/fila/sidecar/deadletter"
	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/sidecar/queue/inspect"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Queue is the queue or dead letter queue that a [Finder] reads.
type Queue interface {
	deadletter.Queue
	IsDLQ() bool
}

// Finder finds messages by one filter.
type Finder struct {
	// Match is the part of the filter that the machine evaluates.
	Match   inspect.Match
	q       Queue
	log     *slog.Logger
	f       api.Filter
	headers map[string]string // values by name; nil: the filter names no header
	died    struct{ since, before int64 }
}

// New returns a Finder for a checked filter. It finds no messages after the sequence last,
// unless last is 0.
func New(q Queue, f api.Filter, last uint64, log *slog.Logger) (*Finder, *wire.Error) {
	if err := f.For(q.Name()); err != nil {
		return nil, err
	}
	fd := &Finder{q: q, log: log, f: f, Match: inspect.Match{
		States: statesOf(f.State), AttemptsMin: f.AttemptsMin, Consumer: f.Consumer, Last: last,
	}}
	if q.IsDLQ() {
		fd.Match.AttemptsMin = 0 // the attempts before the message died are in the store
	} else if fd.asksError() {
		fd.Match.AttemptsMin = max(fd.Match.AttemptsMin, 1) // others have no error
	}
	for _, key := range f.Keys {
		fd.Match.Keys = append(fd.Match.Keys, wire.NamedKey(key))
	}
	if len(f.IDs) > 0 {
		fd.Match.IDs = make(map[store.ID]bool, len(f.IDs))
		for _, text := range f.IDs {
			if id, ok := wire.ParseID(text); ok {
				fd.Match.IDs[id] = true
			}
		}
	}
	fd.Match.Since, fd.Match.Before = f.Enqueued()
	fd.died.since, fd.died.before = f.Died()
	fd.Match.Throttle, fd.Match.Circuit = f.Gates()
	if len(f.Header) > 0 {
		fd.headers = make(map[string]string, len(f.Header))
		for name, value := range f.Header {
			fd.headers[name] = wire.NamedKey(value)
		}
	}
	return fd, nil
}

// statesOf returns the states of a machine that make up a state of a filter.
func statesOf(state string) []inspect.MessageState {
	switch api.CurrentState(state) {
	case api.StateReady:
		return []inspect.MessageState{inspect.StatePending, inspect.StateFailing}
	case api.StateBlocked:
		return []inspect.MessageState{inspect.StateBlocked, inspect.StateOrdered}
	case api.StateDelayed:
		return []inspect.MessageState{inspect.StateDelayed}
	case api.StateLeased:
		return []inspect.MessageState{inspect.StateLeased}
	case api.StateDead:
		return []inspect.MessageState{inspect.StateDelayed, inspect.StatePending, inspect.StateBlocked, inspect.StateOrdered, inspect.StateFailing}
	}
	return nil
}

var stateNames = map[inspect.MessageState]string{
	inspect.StateDelayed: api.StateDelayed,
	inspect.StatePending: api.StateReady,
	inspect.StateBlocked: api.StateBlocked,
	inspect.StateOrdered: api.StateBlocked,
	inspect.StateLeased:  api.StateLeased,
	inspect.StateFailing: api.StateReady,
	inspect.StateMoving:  api.StateReady,
}

// StateName returns the state of a message, in a dead letter queue or not, as clients see it.
func StateName(state inspect.MessageState, dead bool) string {
	if dead && state != inspect.StateLeased {
		return api.StateDead
	}
	return stateNames[state]
}

// findReads is how many messages are read from the store at a time.
const findReads = 512

// Find checks up to slots messages in the order of sequences, beginning with from, and returns
// up to limit matches in list, a buffer to reuse, as [inspect.Reader.Select] does. next is the
// sequence to continue with, 0 at the end: there may be more even if none were found. A message
// that cannot be read does not match a filter that needs the store.
func (fd *Finder) Find(from uint64, limit, slots int, list []inspect.MessageView) (found []inspect.MessageView, next uint64, werr *wire.Error) {
	may := limit
	if fd.ReadsStore() {
		may = slots // most may not match
	}
	ok := fd.q.View(func(m *queue.Queue, side queue.Role, now int64) {
		found, next = m.Inspect(side).Select(&fd.Match, from, may, slots, list[:0], now)
	})
	if !ok {
		return nil, 0, fd.q.Gone()
	}
	if !fd.ReadsStore() {
		return found, next, nil
	}
	candidates, n := found, 0
	for len(candidates) > 0 {
		piece := candidates[:min(findReads, len(candidates))]
		candidates = candidates[len(piece):]
		meant, err := fd.Matches(piece)
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

// ReadsStore reports whether the filter needs the store.
func (fd *Finder) ReadsStore() bool { return fd.headers != nil || fd.asksDead() || fd.asksError() }

func (fd *Finder) asksDead() bool {
	f := &fd.f
	return fd.q.IsDLQ() && (f.Reason+f.DiedAfter+f.DiedBefore != "" || f.AttemptsMin > 0 || fd.asksError())
}

func (fd *Finder) asksError() bool { return fd.f.ErrorCode+fd.f.ErrorContains+fd.f.ErrorGroup != "" }

// Matches reads from the store which of these messages match.
func (fd *Finder) Matches(piece []inspect.MessageView) ([]bool, *wire.Error) {
	refs, meant := make([]store.Ref, len(piece)), make([]bool, len(piece))
	for i := range piece {
		refs[i], meant[i] = store.Ref{Queue: fd.q.ID(), Seq: piece[i].Seq}, true
	}
	if fd.asksDead() || fd.asksError() {
		clear(meant)
		var err error
		if fd.q.IsDLQ() {
			err = fd.q.Store().Dead(refs, func(i int, d *store.Dead) { meant[i] = d != nil && fd.diedSo(d) })
		} else {
			err = fd.q.Store().History(refs, func(i int, records [][]byte) { meant[i] = fd.failedSo(records) })
		}
		if err := fd.unread(err); err != nil {
			return nil, err
		}
	}
	if fd.headers == nil || !slices.Contains(meant, true) {
		return meant, nil
	}
	rest := refs[:0]
	var at []int // positions of rest in piece
	for i, ref := range refs {
		if meant[i] {
			rest, at = append(rest, ref), append(at, i)
		}
	}
	clear(meant)
	err := fd.q.Store().Read(rest, func(i int, headers, _ []byte) { meant[at[i]] = fd.has(headers) })
	return meant, fd.unread(err)
}

// unread returns an error if the store cannot be read at all. Single messages may be
// missing, not on disk yet, or corrupt; it logs the corrupt ones.
func (fd *Finder) unread(err error) *wire.Error {
	var broken *store.CorruptError
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound):
		return nil
	case errors.As(err, &broken):
		fd.log.Error("a message cannot be read; searches in its content do not find it", "queue", fd.q.Name(), "error", err)
		return nil
	}
	return wire.Internal(err.Error())
}

// has reports whether encoded headers match the filter.
func (fd *Finder) has(encoded []byte) bool {
	for name, value := range fd.headers {
		if !wire.HasHeader(encoded, name, value) {
			return false
		}
	}
	return true
}

// diedSo reports whether the reason and time of a dead letter match the filter.
func (fd *Finder) diedSo(d *store.Dead) bool {
	f := &fd.f
	return (f.Reason == "" || d.Reason == f.Reason) &&
		d.Attempts >= f.AttemptsMin &&
		d.At >= fd.died.since && (fd.died.before == 0 || d.At < fd.died.before) &&
		fd.erred(d)
}

// failedSo reports whether the error of the last failed attempt in a history matches the
// filter. Its error group is the group of a dead letter with the same error.
func (fd *Finder) failedSo(records [][]byte) bool {
	for _, r := range slices.Backward(records) {
		p, err := history.Read(r)
		if err != nil {
			return false
		}
		if p.Outcome == wire.AttemptNack || p.Outcome == wire.AttemptExpired {
			return fd.erred(&store.Dead{SourceQueue: fd.q.Name(), Error: p.Error, ErrorCode: p.Code})
		}
	}
	return false
}

// erred reports whether an error matches the filter.
func (fd *Finder) erred(d *store.Dead) bool {
	f := &fd.f
	return (f.ErrorCode == "" || d.ErrorCode == f.ErrorCode) &&
		strings.Contains(d.Error, f.ErrorContains) &&
		(f.ErrorGroup == "" || deadletter.GroupID(d) == f.ErrorGroup)
}
