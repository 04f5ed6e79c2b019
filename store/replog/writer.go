package replog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/filaq/fila/store"
)

// writer writes the records of an epoch. It is the store.Log of the owner.
//
// One record is in flight at a time: the next one is sent when that is in the log. So n counts
// the records of the epoch without a gap, and all records up to last are known: they are
// ours, or stale.
type writer struct {
	o       *Options
	j       journal
	ctx     context.Context // its end abandons a record in flight
	epoch   uint64
	created time.Time // of the stream

	mu    sync.Mutex // held while a record is in flight
	n     uint64     // of the last record
	chain uint64     // of the last record; 0: not known
	last  uint64     // sequence of the last record, or of a stale record behind it
	tail  uint64     // hash of the record there; 0: not known
	err   error      // why writing ended
	buf   []byte     // the record in flight
	body  []byte     // of a commit that is not packed or longer than a record

	warned time.Time // time of the last warning

	start  time.Time
	acked  atomic.Int64  // when the newest record in the log was sent, since start
	format *atomic.Int32 // see Format
	room   room
	known  known
}

// known is what other goroutines read of a writer.
type known struct {
	sync.Mutex
	last uint64
	n    uint64
	data Mark // the newest commit in the log
}

// room is the size and the limit of the stream.
type room struct {
	used, most atomic.Int64 // most 0: any number
}

// fullPercent is how full the stream is when fila starts to refuse messages. The rest is for
// records that finish messages.
const fullPercent = 90

func (r *room) full() bool {
	most := r.most.Load()
	return most > 0 && r.used.Load() >= most/100*fullPercent
}

func (r *room) set(st state) {
	r.used.Store(st.bytes)
	r.most.Store(st.most)
}

// Times between attempts while the stream refuses records or does not answer.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 500 * time.Millisecond

	// While the stream has no leader; a new one may drop the first record that it gets.
	leaderRetry   = 50 * time.Millisecond
	leaderAnswers = 250 * time.Millisecond
	leaderCheck   = time.Second // between looks whether the stream is gone, which looks the same
)

// newWriter returns a writer that continues behind the epoch record of a replica, which was
// sent at a time.
func (r *Replica) newWriter(ctx context.Context, sent time.Time) *writer {
	w := &writer{
		o: &r.o, j: r.j, ctx: ctx, epoch: r.at.epoch, n: r.at.n, chain: r.at.chain, last: r.seq, tail: r.at.chain, created: r.created, start: sent,
		buf: make([]byte, recordHead), body: make([]byte, recordHead), format: &r.format,
	}
	w.known.last, w.known.n, w.known.data = w.last, w.n, r.safe.data
	w.room.set(state{created: r.created})
	return w
}

// Append implements [store.Log].
func (w *writer) Append(batches []*store.Batch) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := head{kind: kindCommit}
	w.buf = appendBatches(w.buf[:recordHead], batches)
	if w.format.Load() >= 2 {
		packed, ok := pack(w.body[:recordHead], w.buf[recordHead:])
		if h.packed = ok; ok {
			w.buf, w.body = packed, w.buf
		} else {
			w.body = packed
		}
	}
	var err error
	if len(w.buf) <= w.o.recordBytes {
		err = w.write(h)
	} else {
		err = w.split(h)
	}
	w.buf, w.body = w.trim(w.buf), w.trim(w.body)
	if err != nil {
		return nil, err
	}
	p := position{seq: w.last, at: mark{epoch: w.epoch, n: w.n, chain: w.chain}, incarnation: w.o.Incarnation, shard: w.o.Shard}
	p.data = p.mark()
	w.known.Lock()
	w.known.data = p.data
	w.known.Unlock()
	return p.append(nil), nil
}

// split writes the commit in buf as several records. mu is held.
func (w *writer) split(h head) error {
	w.buf, w.body = w.body, w.buf
	for rest := w.body[recordHead:]; len(rest) > 0; {
		part := rest[:min(len(rest), w.o.recordBytes-recordHead)]
		rest = rest[len(part):]
		w.buf = append(w.buf[:recordHead], part...)
		h.more = len(rest) > 0
		if err := w.write(h); err != nil {
			return err
		}
	}
	return nil
}

// bufKept is the capacity that a buffer keeps between commits.
const bufKept = 4 << 20

// trim returns the buffer to keep between commits.
func (w *writer) trim(buf []byte) []byte {
	if cap(buf) > max(bufKept, 2*w.o.recordBytes) {
		return make([]byte, recordHead)
	}
	return buf[:recordHead]
}

// writeControl writes a record that is no commit. It waits for the record in flight, but a
// beat is skipped then.
func (w *writer) writeControl(k kind, body []byte) error {
	if k != kindBeat {
		w.mu.Lock()
	} else if !w.mu.TryLock() {
		return nil
	}
	defer w.mu.Unlock()
	w.buf = append(w.buf[:recordHead], body...)
	err := w.write(head{kind: k})
	if k == kindResign && w.err == nil {
		// Whether or not the record is in the log.
		w.err = fmt.Errorf("%w: this node has resigned", store.ErrFenced)
	}
	return err
}

// write writes the record in buf and returns when it is in the log. mu is held.
func (w *writer) write(h head) error {
	if w.err != nil {
		return w.err
	}
	h.epoch, h.n = w.epoch, w.n+1
	h.chained, h.before = w.format.Load() >= chains, w.chain
	record := putHead(w.buf, h)
	begin := w.o.Now()
	if w.err = w.persist(record, h); w.err != nil {
		return w.err
	}
	if w.o.OnAppend != nil {
		w.o.OnAppend(len(record), w.o.Now().Sub(begin))
	}
	w.n, w.chain = h.n, chainOf(h, record)
	w.known.Lock()
	w.known.last, w.known.n = w.last, w.n
	w.known.Unlock()
	w.room.used.Add(int64(len(record) + perMessage))
	return nil
}

// perMessage is the approximate overhead of a record in a stream.
const perMessage = 150

// nowhere is a sequence behind which no record is written.
const nowhere = math.MaxUint64

// persist sends a record until it is in the log, or cannot get there any more.
//
// Before it sends a record again, or one after a silence, it checks that the log still ends as it
// is known: meanwhile the stream may have lost records, and become as long as before with others.
func (w *writer) persist(record []byte, h head) error {
	first, checked := w.o.Now(), w.o.Now()
	wait, answerIn := time.Duration(0), w.o.AckTimeout
	if w.silence() >= w.o.AckTimeout {
		if _, err := w.resolve(record, h); err != nil {
			return err
		}
	}
	behind := w.last
	for {
		sent := w.o.Now()
		ctx, cancel := context.WithTimeout(w.ctx, answerIn)
		seq, err := w.j.append(ctx, record, behind)
		cancel()
		if err == nil && confirmed(w.last, seq) {
			w.last, w.tail = seq, sumOf(record)
			w.acked.Store(int64(sent.Sub(w.start)))
			return nil
		}
		if errors.Is(err, errNobody) {
			// Sending is the fastest way to notice a new leader, which refuses the record.
			behind = nowhere
			w.warnSeldom("replog: a record is not in the log; retrying", err)
			if now := w.o.Now(); now.Sub(checked) >= leaderCheck {
				checked = now
				if err := w.checkStream(); err != nil {
					return err
				}
			}
			if _, err = w.pause(leaderRetry); err != nil {
				return err
			}
			answerIn = leaderAnswers
			continue
		}
		if behind == nowhere && errors.Is(err, errMoved) && w.checkTail() == nil {
			behind = w.last
			continue
		}
		answerIn = min(2*answerIn, w.o.AckTimeout)
		found, rerr := w.resolve(record, h)
		if found {
			w.acked.Store(int64(first.Sub(w.start)))
			return nil
		}
		if rerr != nil {
			return rerr
		}
		behind = w.last
		if wait > 0 || !errors.Is(err, errMoved) {
			w.warnSeldom("replog: a record is not in the log; retrying", err)
		}
		if wait, err = w.pause(wait); err != nil {
			return err
		}
	}
}

// checkStream returns an error if the stream is gone.
func (w *writer) checkStream() error {
	ctx, cancel := context.WithTimeout(w.ctx, leaderAnswers)
	defer cancel()
	st, err := w.j.state(ctx)
	switch {
	case errors.Is(err, ErrGone):
		return err
	case err == nil && !st.created.Equal(w.created):
		return fmt.Errorf("%w: it was made anew at %v", ErrGone, st.created)
	}
	return nil
}

// warnSeldom logs why a record is not in the log, at intervals. mu is held.
func (w *writer) warnSeldom(what string, err error) {
	if now := w.o.Now(); w.warned.IsZero() || now.Sub(w.warned) >= warnEvery {
		w.warned = now
		w.o.Log.Warn(what, "shard", w.o.Shard, "error", err)
	}
}

const warnEvery = 10 * time.Second

// pause waits before another attempt, and returns a longer wait for the next one.
func (w *writer) pause(wait time.Duration) (time.Duration, error) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return min(max(2*wait, firstRetry), lastRetry), nil
	case <-w.ctx.Done():
		return 0, fmt.Errorf("replog: whether the last record is in the log is not known: %w", context.Cause(w.ctx))
	}
}

// resolve looks for a record in the log behind last, and retries until the log can be read.
// If it finds none and returns no error, the record is not in the log up to last.
func (w *writer) resolve(record []byte, h head) (found bool, err error) {
	wait := time.Duration(0)
	var shorter time.Time // since when the log has lacked acked records; zero: it did not when it was last read
	for {
		found, err = w.findRecord(record, h)
		if found || err == nil || errors.Is(err, store.ErrFenced) || errors.Is(err, ErrGone) || errors.Is(err, ErrBroken) {
			return found, err
		}
		switch now := w.o.Now(); {
		case !errors.Is(err, ErrShorter):
			shorter = time.Time{}
		case shorter.IsZero():
			shorter = now
		case now.Sub(shorter) >= w.o.Settle:
			return false, err
		}
		w.warnSeldom("replog: the log cannot be read; retrying", err)
		if wait, err = w.pause(wait); err != nil {
			return false, err
		}
	}
}

func (w *writer) findRecord(record []byte, h head) (found bool, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.AckTimeout)
	defer cancel()
	st, err := w.j.state(ctx)
	if err != nil {
		return false, err
	}
	if !st.created.Equal(w.created) {
		return false, fmt.Errorf("%w: it was made anew at %v", ErrGone, st.created)
	}
	w.room.set(st)
	if st.last < w.last {
		return false, fmt.Errorf("%w: shard %d: %d records are acked, the stream has %d", ErrShorter, w.o.Shard, w.last, st.last)
	}
	if st.first > w.last {
		// Only a later owner can have made a snapshot of records that we do not know.
		return false, fmt.Errorf("%w: the log begins at %d already", store.ErrFenced, st.first)
	}
	if err := w.checkTail(); err != nil {
		return false, err
	}
	for w.last < st.last {
		data, err := w.j.get(ctx, w.last+1)
		if err != nil {
			return false, err
		}
		other, _, err := decode(data)
		if err != nil {
			return false, fmt.Errorf("%w: message %d: %w", ErrBroken, w.last+1, err)
		}
		switch find(other, h.epoch, h.n) {
		case passed:
			w.last, w.tail = w.last+1, sumOf(data)
		case fenced:
			return false, fmt.Errorf("%w: epoch %d is over, %d has begun", store.ErrFenced, h.epoch, other.epoch)
		case own:
			if bytes.Equal(data, record) {
				w.last, w.tail = w.last+1, sumOf(data)
				return true, nil
			}
			fallthrough
		case foreign:
			return false, fmt.Errorf("%w: message %d is of epoch %d, and this node has not written it", ErrBroken, w.last+1, h.epoch)
		}
	}
	return false, nil
}

// checkTail returns an error if the last known record is another one in the log.
func (w *writer) checkTail() error {
	ctx, cancel := context.WithTimeout(w.ctx, w.o.AckTimeout)
	defer cancel()
	data, err := w.j.get(ctx, w.last)
	if err != nil || w.tail == 0 || sumOf(data) == w.tail {
		return err
	}
	if other, _, err := decode(data); err == nil && other.epoch > w.epoch {
		return fmt.Errorf("%w: epoch %d is over, %d has begun", store.ErrFenced, w.epoch, other.epoch)
	}
	return fmt.Errorf("%w: shard %d: record %d is another one than was acked", ErrShorter, w.o.Shard, w.last)
}

// progress sets what an owner knows: when the newest record in the log was sent, its place,
// and the newest commit.
func (w *writer) progress(seen *Seen) {
	w.known.Lock()
	defer w.known.Unlock()
	seen.At = w.start.Add(time.Duration(w.acked.Load()))
	seen.Seq, seen.N, seen.Data = w.known.last, w.known.n, w.known.data
}

// silence returns the time since the newest record in the log was sent.
func (w *writer) silence() time.Duration {
	return w.o.Now().Sub(w.start) - time.Duration(w.acked.Load())
}
