package replog

// kind is what a record is.
type kind byte

const (
	kindEpoch  kind = 1 // a new owner begins
	kindCommit kind = 2 // batches, or a part of them
	kindBeat   kind = 3 // the owner is alive and has nothing to say
	kindResign kind = 4 // the owner ends; nothing of its epoch counts behind it
)

// head is what decides whether a record counts.
type head struct {
	kind   kind
	more   bool // the commit goes on in the next record
	packed bool // the body of the commit is
	epoch  uint64
	n      uint64 // within the epoch; the epoch record is 1
}

// mark is where a reader of a log stands: at the record that counted last.
type mark struct {
	epoch, n uint64
	more     bool // the commit goes on
	ended    bool // the owner has resigned
}

// verdict is what a record is to a reader.
type verdict byte

const (
	stale   verdict = iota // of an owner whose time is over: readers pass over it
	opens                  // an epoch begins; a commit that is not complete is dropped
	counts                 // it is the next one of the epoch
	unknown                // it would count, and its kind is not known
	broken                 // records before it are missing, or it makes no sense there
)

// next judges the next record of the log. The mark changes if it opens or counts.
//
// Only these rules say what is in the log. The stream itself may accept a record of an
// owner that is none any more: one that it sent before it learned so.
func (m mark) next(h head) (mark, verdict) {
	switch {
	case h.epoch > m.epoch && h.kind == kindEpoch && h.n == 1 && !h.more && !h.packed:
		return mark{epoch: h.epoch, n: 1}, opens
	case h.epoch > m.epoch:
		return m, broken
	case h.epoch < m.epoch, h.n <= m.n:
		return m, stale
	case m.ended, h.n > m.n+1:
		// An owner sends a record when the one before it lies in the log, and none
		// after it has resigned.
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

// finding is what the writer of a record whose fate it does not know learns from one
// that lies in the log behind what it knows.
type finding byte

const (
	passed  finding = iota // a stale one: the writer goes on behind it
	own                    // its record is in the log
	fenced                 // another owner has begun
	foreign                // somebody else writes in its epoch
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

// confirmed says whether the answer of the stream alone confirms a record: it lies
// directly behind the last one that its writer knows.
func confirmed(known, at uint64) bool { return at == known+1 }
