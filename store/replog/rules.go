package replog

import "cmp"

// kind is the kind of a record.
type kind byte

const (
	kindEpoch  kind = 1 // a new owner starts
	kindCommit kind = 2 // batches, or a part of them
	kindBeat   kind = 3 // the owner is alive and has no commit
	kindResign kind = 4 // the owner ends; no later record of its epoch counts
)

// head is the part of a record that decides whether it counts.
type head struct {
	kind   kind
	more   bool // the commit continues in the next record
	packed bool // the body of the commit is packed

	epoch uint64
	n     uint64 // within the epoch; the epoch record is 1

	chained bool   // it has the chain of the record before
	before  uint64 // that chain; 0: its owner did not know it
}

// place is the place of a record in the history of a log.
type place struct{ epoch, n uint64 }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.epoch, q.epoch), cmp.Compare(p.n, q.n))
}

// mark is the position of a reader in a log: the last record that counted.
type mark struct {
	epoch, n uint64
	chain    uint64 // of that record; 0: not known
	more     bool   // the commit continues
	ended    bool   // the owner resigned
}

func (m mark) place() place { return place{m.epoch, m.n} }

// follows reports whether the record before a record that counts is the one of the mark.
// An epoch record may come behind records that its owner had not read, see [mark.next].
func (m mark) follows(h head) bool {
	return h.kind == kindEpoch || h.before == 0 || m.chain == 0 || h.before == m.chain
}

// verdict is the result of judging a record.
type verdict byte

const (
	stale   verdict = iota // of an earlier owner: readers skip it
	opens                  // opens an epoch; an incomplete commit is dropped
	counts                 // the next record of the epoch
	unknown                // would count, but its kind is unknown
	broken                 // records before it are missing, or it is invalid there
)

// next judges the next record of the log. The mark changes if it opens or counts.
//
// Only these rules decide what is in the log. The stream may accept a record of a former
// owner, which it sent before it learned of the new owner.
func (m mark) next(h head) (mark, verdict) {
	switch {
	case h.epoch > m.epoch && h.kind == kindEpoch && h.n == 1 && !h.more && !h.packed:
		return mark{epoch: h.epoch, n: 1}, opens
	case h.epoch > m.epoch:
		return m, broken
	case h.epoch < m.epoch, h.n <= m.n:
		return m, stale
	case m.ended, h.n > m.n+1:
		// An owner sends a record when the previous one is in the log, and none after it
		// resigned.
		return m, broken
	}
	switch {
	case h.kind < kindEpoch || h.kind > kindResign:
		return m, unknown
	case h.kind == kindEpoch, h.kind != kindCommit && (h.more || m.more || h.packed):
		return m, broken
	}
	return mark{epoch: m.epoch, n: h.n, more: h.more, ended: h.kind == kindResign}, counts
}

// finding is what a writer learns about a record in flight from a record that it reads in
// the log.
type finding byte

const (
	passed  finding = iota // a stale record: the writer continues behind it
	own                    // its record is in the log
	fenced                 // another owner started
	foreign                // another process writes in its epoch
)

// find judges a record of the log for the writer of record n of an epoch.
func find(h head, epoch, n uint64) finding {
	switch {
	case h.epoch > epoch:
		return fenced
	case h.epoch < epoch, h.n < n:
		return passed
	case h.n == n:
		return own
	}
	return foreign
}

// confirmed reports whether the answer of the stream alone confirms a record: it is directly
// behind the last known record.
func confirmed(known, at uint64) bool { return at == known+1 }
