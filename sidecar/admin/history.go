package admin

import (
	"errors"

	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// unreadable is the outcome of a record that cannot be read.
const unreadable = "unreadable"

// readHistory reads what has happened to a message; nil: nothing, or it is not on disk.
func readHistory(from store.Store, ref store.Ref) []api.AttemptInfo {
	return histories(from, []store.Ref{ref})[0]
}

// histories is readHistory of several messages. It reads them at once: a store may wait
// for a commit before it answers.
func histories(from store.Store, refs []store.Ref) [][]api.AttemptInfo {
	all := make([][]api.AttemptInfo, len(refs))
	read := make([]bool, len(refs))
	err := from.History(refs, func(i int, records [][]byte) {
		read[i] = true
		for _, b := range records {
			p, err := history.Read(b)
			if err != nil {
				all[i] = append(all[i], api.AttemptInfo{Outcome: unreadable, Error: err.Error()})
				continue
			}
			all[i] = append(all[i], attemptInfo(&p))
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		for i := range all {
			if !read[i] {
				all[i] = []api.AttemptInfo{{Outcome: unreadable, Error: err.Error()}}
			}
		}
	}
	return all
}

func attemptInfo(p *history.AttemptRecord) api.AttemptInfo {
	a := api.AttemptInfo{
		Outcome: p.Outcome, Attempt: p.Number, Dead: p.Dead, Consumer: p.Consumer, Route: p.Route, TookMs: p.Took / 1e6, Error: p.Error, ErrorCode: p.Code,
		DecidedBy: p.DecidedBy, Rule: p.Rule, Reason: p.Reason, DelayMs: p.Delay / 1e6, WaitedMs: p.Waited / 1e6,
	}
	if p.At != 0 {
		a.At = wire.Timestamp(p.At)
	}
	a.From, a.To = p.From, p.To
	if p.Times > 1 {
		a.Times, a.LastAt = p.Times, wire.Timestamp(p.Last)
	}
	for i := range p.Blocked {
		h := &p.Blocked[i]
		a.Held = append(a.Held, api.HeldInfo{Kind: h.Kind, Gate: h.Place + wire.ShowKey(h.Key), Ms: h.For / 1e6})
	}
	return a
}
