package storefile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"go.etcd.io/bbolt"
)

// StoreID tells a store from others. It is a hash of the secret and the time of creation, so
// copies and compacted files have the ID of their store, and an imported store has its own.
type StoreID [16]byte

// Confirmed is the content of the file path.confirmed beside a store: the newest commit that
// the store has confirmed, as far as it was noted. An older store has lost what it confirmed:
// its file was replaced by an earlier copy, or its end is missing.
//
// The file is written after the sync of a commit and not synced itself. So it may be behind
// the store, and is never ahead of it. Its value is sealed; what follows it does not count:
//
//	 0  16 bytes  the store
//	16  u64       commit
//	24  i64       when this was written
//	32  u64       the commit up to which a loss was accepted; 0: none
type Confirmed struct {
	Store    StoreID
	Commit   uint64
	At       int64 // Unix nanoseconds
	Accepted uint64
}

const confirmedSize = 4 + 16 + 3*8

var keyConfirmed = []byte("confirmed")

func (p Path) confirmed() string { return string(p) + ".confirmed" }

// ReadConfirmed reads the file of the newest confirmed commit.
func (p Path) ReadConfirmed() (c Confirmed, err error) {
	f, err := os.Open(p.confirmed())
	if err != nil {
		return c, err
	}
	b := make([]byte, confirmedSize)
	_, err = io.ReadFull(f, b)
	if err = errors.Join(err, f.Close()); err != nil {
		return c, fmt.Errorf("reading %s: %w", f.Name(), err)
	}
	r := unsealed(keyConfirmed, b)
	copy(c.Store[:], r.take(len(c.Store)))
	c.Commit, c.At, c.Accepted = r.u64(), r.i64(), r.u64()
	if err := r.done(); err != nil {
		return Confirmed{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return c, nil
}

// WriteConfirmed writes the file of the newest confirmed commit. It overwrites the value in
// place: the file takes no more space, and a reader finds the old value, the new one or a
// damaged one.
func (p Path) WriteConfirmed(c Confirmed) error {
	f, err := os.OpenFile(p.confirmed(), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, confirmedSize), c.Store[:]...)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, c.Commit), uint64(c.At)), c.Accepted)
	_, err = f.WriteAt(Seal(nil, keyConfirmed, b), 0)
	return errors.Join(err, f.Close())
}

// LastCommit returns the store that tx reads and its last commit.
func (p Path) LastCommit(tx *bbolt.Tx) (c Confirmed, err error) {
	meta := tx.Bucket(BucketMeta)
	secret, err := p.metaValue(meta, keySecret, 32)
	if err != nil {
		return c, err
	}
	created, err := p.metaValue(meta, keyCreated, 8)
	if err != nil {
		return c, err
	}
	counts, err := p.ReadCounts(tx)
	sum := sha256.Sum256(slices.Concat(secret, created))
	return Confirmed{Store: StoreID(sum[:len(c.Store)]), Commit: counts.Commits}, err
}

// LostError is returned for a store that lacks commits which it had confirmed.
type LostError struct {
	File      string    `json:"-"`
	Commit    uint64    `json:"commit"`       // the last commit of the file; 0: it has none, or there is no file
	Confirmed uint64    `json:"confirmed"`    // the newest confirmed commit
	At        time.Time `json:"confirmed_at"` // when it had been confirmed
}

func (e *LostError) Error() string {
	has := fmt.Sprintf("%s is older than what was confirmed: its last commit is %d", e.File, e.Commit)
	if e.Commit == 0 {
		has = e.File + " is missing or new"
	}
	return fmt.Sprintf("store: %s, and commit %d had been confirmed by %s", has, e.Confirmed, e.At.Format(time.RFC3339))
}

// Lost returns an error if the store at p is older than c says. have is its last commit.
func (c Confirmed) Lost(p Path, have Confirmed) *LostError {
	if have.Store != c.Store || have.Commit >= c.Commit {
		return nil
	}
	return &LostError{File: string(p), Commit: have.Commit, Confirmed: c.Commit, At: time.Unix(0, c.At).UTC()}
}

// Vanished returns an error if there is no store at p and one had confirmed commits there.
func (p Path) Vanished() *LostError {
	if _, err := os.Stat(string(p)); !Missing(err) {
		return nil
	}
	c, _ := p.ReadConfirmed() // without one nothing is known
	return c.Lost(p, Confirmed{Store: c.Store})
}

// Lost returns an error if the file is older than what was confirmed. It is nil if that is not
// known.
func (f *File) Lost() (lost *LostError) {
	_ = f.view("read", func(tx *bbolt.Tx) error { // a broken record is reported where it matters
		have, err := f.path.LastCommit(tx)
		if c, cerr := f.path.ReadConfirmed(); err == nil && cerr == nil {
			lost = c.Lost(f.path, have)
		}
		return nil
	})
	return lost
}
