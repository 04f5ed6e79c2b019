package store

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// confirmEvery is how long the newest confirmed commit may be missing in its file.
const confirmEvery = time.Second

// confirmer keeps the file of the newest confirmed commit, see [storefile.Confirmed]. Open,
// confirmLoop and Close use it, one after the other.
type confirmer struct {
	commits chan struct{} // has an element if there was a commit; nil: there is no such file
	noted   storefile.Confirmed
	failed  bool // the last write failed, and the log says so
}

// notify tells confirmLoop about a commit.
func (c *confirmer) notify() {
	select {
	case c.commits <- struct{}{}:
	default:
	}
}

// loadConfirmed returns a [*LostError] if the file is older than what was confirmed.
func (s *Bolt) loadConfirmed(tx *bbolt.Tx) error {
	have, err := s.path.LastCommit(tx)
	if err != nil {
		return err
	}
	old, err := s.path.ReadConfirmed()
	if lost := old.Lost(s.path, have); lost != nil {
		return lost
	}
	accepted := old.Accepted > have.Commit
	if err == nil && old.Store != have.Store && !accepted {
		err = errors.New("it is about another store")
	}
	log := s.o.Logger.With("file", string(s.path))
	if accepted {
		log.Warn("store: the loss of confirmed commits was accepted", "commit", have.Commit, "confirmed", old.Accepted, "at", time.Unix(0, old.At).UTC())
	}
	if err != nil && have.Commit > 0 {
		level := slog.LevelWarn
		if storefile.Missing(err) { // of a restored store, or one of an earlier version
			level = slog.LevelInfo
		}
		log.Log(context.Background(), level, "store: the confirmed commits before this start are unknown, so fila would not notice a loss", "error", err)
	}
	if s.confirmed = (confirmer{commits: make(chan struct{}, 1), noted: old}); old.Store != have.Store || old.Accepted > 0 {
		s.confirmed.noted = storefile.Confirmed{Store: have.Store} // write it
	}
	return nil
}

// confirmLoop writes the newest confirmed commit to its file until Close.
func (s *Bolt) confirmLoop() {
	for {
		select {
		case <-s.confirmed.commits:
		case <-s.leaving:
			return
		}
		select {
		case <-time.After(confirmEvery):
		case <-s.leaving:
			return
		}
		s.keepConfirmed()
	}
}

// keepConfirmed writes the last commit to the file of the newest confirmed one. The commit was
// synced.
func (s *Bolt) keepConfirmed() {
	s.mu.RLock()
	commit := uint64(s.count.commits)
	s.mu.RUnlock()
	c := &s.confirmed
	if commit == c.noted.Commit {
		return
	}
	next := storefile.Confirmed{Store: c.noted.Store, Commit: commit, At: s.o.Now()}
	err := s.path.WriteConfirmed(next)
	if err == nil {
		c.noted = next
	} else if !c.failed {
		s.o.Logger.Warn("store: the newest confirmed commit cannot be recorded, so fila would not notice its loss", "file", string(s.path), "error", err)
	}
	c.failed = err != nil
}

// AcceptLoss lets Open accept the store at path, which no process may serve, although it lacks
// commits that it had confirmed. It calls agree with what is lost, and changes nothing if agree
// returns false. The result is nil if no loss is known. The next Open writes a line to the log.
func AcceptLoss(path string, o Options, agree func(*LostError) bool) (lost *LostError, err error) {
	o = o.withDefaults()
	p := storefile.Path(path)
	if lost = p.Vanished(); lost == nil {
		f, err := storefile.OpenAs(path, o.file(), storefile.Rewriting)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		lost = f.Lost()
	}
	if lost == nil || !agree(lost) {
		return lost, nil
	}
	c, err := p.ReadConfirmed()
	if err != nil {
		return lost, err
	}
	return lost, p.WriteConfirmed(storefile.Confirmed{Store: c.Store, Commit: lost.Commit, At: o.Now(), Accepted: max(c.Accepted, c.Commit)})
}
