package store

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// Checked sums up a check.
type Checked struct {
	FileBytes int64
	Pages     int64 // in use by the file, free ones included
	UsedPages int64

	Segments  int64
	Records   int64 // in the segments, finished ones included
	Finished  int64
	Messages  int64 // live
	Bytes     int64 // headers and payloads of the live ones
	States    int64
	Histories int64
	DedupeIDs int64 // expired ones included
	Queues    []QueueRecord
	Consumers int64
	Config    int64

	// Problems is how many were found. If Structure is false, the tree of pages
	// is broken, and nothing in it could be looked at.
	Problems  int64
	Structure bool

	// TornMeta says that one of the two meta pages is damaged, so that the last
	// commit may be missing. A commit that was cut off leaves that: then nothing of
	// it was confirmed. A page that went bad later looks the same, and then the
	// commit may have been confirmed. The next commit writes the page anew, and
	// with it the trace is gone.
	TornMeta bool
}

// CheckFile reads the whole store at path, payloads included, and tells found
// everything that is wrong, without stopping at the first: pages and their
// order, checksums, records against the header index, bitmaps, states and
// consumers of what does not exist, messages that are there twice, and counters.
// It changes nothing, and takes some 12 bytes of memory for each live message.
//
// The error is about a file that cannot be checked at all: [ErrLocked],
// [ErrNotStore], [*VersionError], or one of the operating system.
func CheckFile(path string, o Options, found func(*CorruptError)) (Checked, error) {
	c := &checker{found: found}
	f, err := c.open(path, o)
	if f == nil || err != nil {
		return c.sum, err
	}
	c.s, c.sum.Structure = f.s, true
	c.report(f.clock)
	err = f.view("check", func(tx *bbolt.Tx) error {
		c.tx = tx
		for err := range tx.Check() {
			c.report(f.s.metaError("page", err))
		}
		return nil
	})
	for _, part := range []func() error{c.meta, c.segments, c.bitmaps, c.states, c.histories, c.dedupe, c.consumers, c.config, c.tally} {
		if err != nil {
			break
		}
		err = f.view("check", func(tx *bbolt.Tx) error { c.tx = tx; return part() })
		err = c.keep(err)
	}
	return c.sum, errors.Join(err, f.Close())
}

// checker is one run of CheckFile.
type checker struct {
	s     *Bolt
	tx    *bbolt.Tx
	found func(*CorruptError)
	sum   Checked
	lost  bool // some messages could not be read: what refers to them is not at fault
}

// report counts and tells. err is a CorruptError or nil.
func (c *checker) report(err error) {
	var ce *CorruptError
	if errors.As(err, &ce) {
		c.sum.Problems++
		c.found(ce)
	}
}

// keep reports a CorruptError and returns any other error.
func (c *checker) keep(err error) error {
	var ce *CorruptError
	if err != nil && !errors.As(err, &ce) {
		return err
	}
	c.report(err)
	return nil
}

// open opens the file if its pages are sound, and reports what is wrong with
// them otherwise.
func (c *checker) open(path string, o Options) (*File, error) {
	f, err := OpenFile(path, o)
	if err == nil {
		c.count(f.pages)
		return f, nil
	}
	var ce *CorruptError
	if !errors.As(err, &ce) {
		return nil, err
	}
	if ce.Part == "file" || ce.Offset < 0 {
		c.report(ce) // cut short, or one of the first records: there is no more to see
		return nil, nil
	}
	// Once more, without stopping at the first fault.
	o = o.withDefaults()
	file, err := openLocked(path, os.O_RDONLY, 0, o.Timeout, true)
	if err != nil {
		return nil, err
	}
	pages := &pageChecker{path: path, report: func(e *CorruptError) { c.report(e) }}
	err = c.keep(pages.checkFile(file, o))
	c.count(pages)
	return nil, errors.Join(err, file.Close())
}

func (c *checker) count(p *pageChecker) {
	c.sum.FileBytes, c.sum.Pages, c.sum.UsedPages, c.sum.TornMeta = p.size, int64(p.pages), int64(p.used), p.torn
}

// each goes through a bucket and reports the errors of fn under what and the
// key.
func (c *checker) each(bucket []byte, what string, fn func(k, v []byte) error) error {
	return c.tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		if err := fn(k, v); err != nil {
			c.report(c.s.metaError(what+" "+hex.EncodeToString(k), err))
		}
		return nil
	})
}

// meta checks what is there once, and the queues.
func (c *checker) meta() error {
	bucket := c.tx.Bucket(bucketMeta)
	next := uint32(0)
	for _, part := range []struct {
		key  []byte
		size int
	}{{keyFormat, 4}, {keySecret, 32}, {keyCreated, 8}, {keyNextQueue, 4}, {keyTally, 0}} {
		v, err := unseal(part.key, bucket.Get(part.key))
		if string(part.key) == string(keyTally) {
			_, err = decodeTally(part.key, bucket.Get(part.key))
		} else if err == nil && len(v) != part.size {
			err = fmt.Errorf("%d bytes instead of %d", len(v), part.size)
		}
		if err != nil {
			c.report(c.s.metaError(string(part.key), err))
		} else if string(part.key) == string(keyNextQueue) {
			next = le.Uint32(v)
		}
	}
	if sealed := bucket.Get(keyPosition); sealed != nil {
		if _, err := unseal(keyPosition, sealed); err != nil {
			c.report(c.s.metaError(string(keyPosition), err))
		}
	}
	names := make(map[string]QueueID)
	return c.each(bucketQueues, "queue", func(k, v []byte) error {
		q, err := decodeQueue(k, v)
		other, twice := names[q.Name]
		switch {
		case err != nil && len(k) == 4: // what belongs to it is not at fault
			c.s.queues[QueueID(be.Uint32(k))] = &queue{id: QueueID(be.Uint32(k))}
			q.ID = 0
		case q.ID == 0 || (next != 0 && q.ID >= QueueID(next)):
			err = fmt.Errorf("id %d, the next one to come is %d", q.ID, next)
		case twice:
			err = fmt.Errorf("has the name %q of queue %d", q.Name, other)
		}
		if q.ID != 0 {
			names[q.Name] = q.ID
			c.sum.Queues = append(c.sum.Queues, q)
			c.s.queues[q.ID] = &queue{id: q.ID}
		}
		return err
	})
}

// segments checks all records and files the live ones in the location index.
func (c *checker) segments() error {
	w := &walker{s: c.s, tx: c.tx, in: newInterner()}
	var m Message
	for {
		v, err := w.next()
		if v == nil && err == nil {
			return nil
		}
		c.sum.Segments++
		if err != nil {
			c.lost = true
			c.report(err)
			continue
		}
		c.sum.Records += int64(v.index.n)
		for i := range v.index.n {
			err := c.s.full(v, i, &m, w.in)
			if v.finished(i) {
				c.sum.Finished++
			} else if err == nil {
				size := len(m.Headers) + len(m.Payload)
				c.sum.Messages++
				c.sum.Bytes += int64(size)
				_, off, _ := v.index.item(i)
				err = c.s.corrupt("index", v.id, off, c.s.place(m.Ref, loc{seg: 1, slot: uint32(i), size: uint32(size)}))
			} else {
				c.lost = true
			}
			c.report(err)
		}
	}
}

// bitmaps looks for those without a segment; the others have been read.
func (c *checker) bitmaps() error {
	segments := c.tx.Bucket(bucketSegments)
	return c.each(bucketBitmaps, "bitmap", func(k, _ []byte) error {
		if segments.Bucket(k) == nil {
			return errors.New("belongs to no segment")
		}
		return nil
	})
}

func (c *checker) states() error {
	in := newInterner()
	var st State
	return c.each(bucketState, "state", func(k, v []byte) error {
		c.sum.States++
		err := decodeState(k, v, &st, in)
		if err == nil && !c.lost {
			err = c.live(st.Ref)
		}
		return err
	})
}

func (c *checker) histories() error {
	if c.tx.Bucket(bucketHistory) == nil {
		return nil
	}
	return c.each(bucketHistory, "history", func(k, v []byte) error {
		c.sum.Histories++
		ref, err := decodeRefKey(k)
		if err == nil {
			_, err = decodeHistory(k, v, nil)
		}
		if err == nil && !c.lost {
			err = c.live(ref)
		}
		return err
	})
}

func (c *checker) live(ref Ref) error {
	q := c.s.queues[ref.Queue]
	if q == nil {
		return noQueueOf(ref)
	}
	if _, ok := q.index.get(ref.Seq); !ok {
		return noMessage(ref)
	}
	return nil
}

// dedupe checks the log of dedupe ids. Those of deleted queues stay in it until
// they expire.
func (c *checker) dedupe() error {
	return c.each(bucketDedupe, "dedupe", func(k, v []byte) error {
		step, items, err := openDedupes(k, v)
		part := "dedupe " + hex.EncodeToString(k)
		for i := range items.n {
			c.sum.DedupeIDs++
			d, off, err := itemAs(items, i, decodeDedupe)
			if err == nil && dedupeStepOf(d.Until) != step {
				err = errors.New("expires at another time than its key says")
			}
			c.report(c.s.corrupt(part, 0, off, err))
		}
		return err
	})
}

func (c *checker) consumers() error {
	return c.each(bucketConsumers, "consumer", func(k, v []byte) error {
		c.sum.Consumers++
		r, err := decodeConsumer(k, v)
		if err == nil && c.s.queues[r.Queue] == nil {
			err = fmt.Errorf("of queue %d, which does not exist", r.Queue)
		}
		return err
	})
}

func (c *checker) config() error {
	return c.tx.Bucket(bucketConfig).ForEach(func(k, v []byte) error {
		c.sum.Config++
		_, err := unseal(k, v)
		c.report(c.s.metaError(configPart(k), err))
		return nil
	})
}

// tally compares what was found with what the last commit has counted. With
// something broken the difference says nothing new.
func (c *checker) tally() error {
	want, err := decodeTally(keyTally, c.tx.Bucket(bucketMeta).Get(keyTally))
	if err != nil || c.sum.Problems > 0 {
		return nil //nolint:nilerr // it was reported as a part of meta
	}
	got := tally{
		segments: uint64(c.sum.Segments), records: uint64(c.sum.Records), finished: uint64(c.sum.Finished),
		states: uint64(c.sum.States), dedupes: uint64(c.tx.Bucket(bucketDedupe).Stats().KeyN), commits: want.commits,
		histories: uint64(c.sum.Histories),
	}
	return c.s.metaError("tally", got.differs(want))
}
