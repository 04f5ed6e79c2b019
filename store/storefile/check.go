package storefile

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"go.etcd.io/bbolt"
)

// Checked is the summary of a check.
type Checked struct {
	FileBytes int64 `json:"file_bytes"`
	Pages     int64 `json:"pages"` // in use by the file, free ones included
	UsedPages int64 `json:"pages_used"`

	Segments  int64         `json:"segments"`
	Records   int64         `json:"records"` // in the segments, finished ones included
	Finished  int64         `json:"finished"`
	Messages  int64         `json:"messages"` // live
	Bytes     int64         `json:"bytes"`    // headers and payloads of live messages
	States    int64         `json:"states"`
	Histories int64         `json:"-"`
	DedupeIDs int64         `json:"dedupe_ids"` // expired ones included
	Queues    []QueueRecord `json:"-"`
	Consumers int64         `json:"consumers"`
	Config    int64         `json:"config_entries"`

	// Problems is the number of problems. If Structure is false, the tree of pages
	// is broken, and its content could not be checked.
	Problems  int64 `json:"-"`
	Structure bool  `json:"structure_ok"`

	// TornMeta means that one of the two meta pages is damaged, so that the last
	// commit may be missing. The reason may be a commit that was cut off: then it
	// was not confirmed. Or the page was damaged later: then the commit may have been
	// confirmed. The next commit rewrites the page and removes the evidence.
	TornMeta bool `json:"torn_meta"`

	// Lost is not nil if the store lacks commits that it had confirmed.
	Lost *LostError `json:"lost,omitempty"`
}

// Check reads the whole store at path, payloads included, and passes every problem
// to found: pages and their order, checksums, records that do not match the header
// index, bitmaps, states and consumers of absent messages and queues, duplicate
// messages, and counters. It changes nothing, except that it drops a last commit that was
// cut off. It takes less than 100 bytes of memory
// for each live message, usually less than one.
//
// The error is about a file that cannot be checked at all: [ErrLocked],
// [ErrNotStore], [*VersionError], or an error of the operating system.
func Check(path string, o Options, found func(*CorruptError)) (Checked, error) {
	c := &checker{path: Path(path), found: found, queues: make(map[QueueID]seqSet)}
	f, err := c.open(path, o)
	if f == nil || err != nil {
		return c.sum, err
	}
	c.f, c.sum.Structure, c.sum.Lost = f, true, f.Lost()
	c.report(f.clockErr)
	err = f.view("check", func(tx *bbolt.Tx) error {
		c.tx = tx
		for err := range tx.Check() {
			c.report(c.path.CorruptMeta("page", err))
		}
		return nil
	})
	for _, part := range []func() error{c.meta, c.segments, c.bitmaps, c.states, c.histories, c.dedupe, c.consumers, c.config, c.compareCounts} {
		if err != nil {
			break
		}
		err = f.view("check", func(tx *bbolt.Tx) error { c.tx = tx; return part() })
		err = c.reportCorrupt(err)
	}
	return c.sum, errors.Join(err, f.Close())
}

// checker is one run of Check.
type checker struct {
	path   Path
	f      *File
	tx     *bbolt.Tx
	found  func(*CorruptError)
	sum    Checked
	queues map[QueueID]seqSet // live messages
	lost   bool               // some messages could not be read: references to them are no problem
}

// seqSet is a set of sequence numbers in chunks of 256.
type seqSet map[uint64]*[4]uint64

func (s seqSet) has(seq uint64) bool {
	c := s[seq>>8]
	return c != nil && c[seq>>6&3]>>(seq&63)&1 != 0
}

func (s seqSet) add(seq uint64) {
	c := s[seq>>8]
	if c == nil {
		c = new([4]uint64)
		s[seq>>8] = c
	}
	c[seq>>6&3] |= 1 << (seq & 63)
}

// report counts and reports a problem. err is a CorruptError or nil.
func (c *checker) report(err error) {
	var ce *CorruptError
	if errors.As(err, &ce) {
		c.sum.Problems++
		c.found(ce)
	}
}

// reportCorrupt reports a CorruptError and returns any other error.
func (c *checker) reportCorrupt(err error) error {
	return tolerate(func(*CorruptError) { c.report(err) }, err)
}

// open opens the file if its pages are valid, and reports their problems otherwise.
func (c *checker) open(path string, o Options) (*File, error) {
	f, err := Open(path, o)
	if err == nil {
		c.count(f.pages)
		return f, nil
	}
	var ce *CorruptError
	if !errors.As(err, &ce) {
		return nil, err
	}
	if ce.Part == "file" || ce.Offset < 0 {
		c.report(ce) // cut short, or one of the first records: nothing else can be checked
		return nil, nil
	}
	// Check again, without stopping at the first fault.
	o = o.withDefaults()
	file, err := openLocked(path, os.O_RDONLY, 0, o.Timeout, true)
	if err != nil {
		return nil, err
	}
	pages := &PageChecker{path: c.path, report: func(e *CorruptError) { c.report(e) }}
	err = c.reportCorrupt(pages.checkFile(file, o.Logger))
	c.count(pages)
	return nil, errors.Join(err, file.Close())
}

func (c *checker) count(p *PageChecker) {
	c.sum.FileBytes, c.sum.Pages, c.sum.UsedPages, c.sum.TornMeta = p.Size, int64(p.Pages), int64(p.Used), p.Torn
}

// each reads a bucket and reports the errors of fn under the part and the key.
func (c *checker) each(bucket []byte, part string, fn func(k, v []byte) error) error {
	return c.tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		if err := fn(k, v); err != nil {
			c.report(c.path.CorruptMeta(part+" "+hex.EncodeToString(k), err))
		}
		return nil
	})
}

// meta checks the values of the meta bucket and the queues.
func (c *checker) meta() error {
	bucket := c.tx.Bucket(BucketMeta)
	next := uint32(0)
	for _, part := range []struct {
		key  []byte
		size int
	}{{KeyFormat, 4}, {keySecret, 32}, {keyCreated, 8}, {KeyNextQueue, 4}, {KeyCounts, 0}} {
		v, err := Unseal(part.key, bucket.Get(part.key))
		if string(part.key) == string(KeyCounts) {
			_, err = decodeCounts(part.key, bucket.Get(part.key))
		} else if err == nil && len(v) != part.size {
			err = fmt.Errorf("%d bytes instead of %d", len(v), part.size)
		}
		if err != nil {
			c.report(c.path.CorruptMeta(string(part.key), err))
		} else if string(part.key) == string(KeyNextQueue) {
			next = le.Uint32(v)
		}
	}
	_, err := c.path.ReadPosition(c.tx)
	c.report(err)
	names := make(map[string]QueueID)
	return c.each(BucketQueues, "queue", func(k, v []byte) error {
		q, err := decodeQueue(k, v)
		other, twice := names[q.Name]
		switch {
		case err != nil && len(k) == 4: // the records of this queue are no problem
			c.queues[QueueID(be.Uint32(k))] = make(seqSet)
			q.ID = 0
		case q.ID == 0 || (next != 0 && q.ID >= QueueID(next)):
			err = fmt.Errorf("id %d, the next id is %d", q.ID, next)
		case twice:
			err = fmt.Errorf("has the name %q of queue %d", q.Name, other)
		}
		if q.ID != 0 {
			names[q.Name] = q.ID
			c.sum.Queues = append(c.sum.Queues, q)
			c.queues[q.ID] = make(seqSet)
		}
		return err
	})
}

// segments checks all records and notes the live messages.
func (c *checker) segments() error {
	w := &walker{f: c.f, tx: c.tx, in: NewInterner()}
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
		c.sum.Records += int64(v.index.N)
		for i := range v.index.N {
			err := w.full(v, i, &m)
			if v.finished(i) {
				c.sum.Finished++
			} else if err == nil {
				c.sum.Messages++
				c.sum.Bytes += int64(len(m.Headers) + len(m.Payload))
				_, off, _ := v.index.Item(i)
				err = c.path.Corrupt("index", v.id, off, c.addMessage(m.Ref))
			} else {
				c.lost = true
			}
			c.report(err)
		}
	}
}

func (c *checker) addMessage(ref Ref) error {
	seqs := c.queues[ref.Queue]
	if err := CheckMessage(ref, seqs != nil, seqs.has(ref.Seq)); err != nil {
		return err
	}
	seqs.add(ref.Seq)
	return nil
}

// CheckMessage returns why a live message must not be in the file, or nil: its queue
// does not exist, its number is not valid, or the file has the message twice.
func CheckMessage(ref Ref, queueExists, duplicate bool) error {
	switch {
	case !queueExists:
		return ErrNoQueueOf(ref)
	case ref.Seq > MaxSeq:
		return fmt.Errorf("message %d of queue %d: the number is not valid", ref.Seq, ref.Queue)
	case duplicate:
		return fmt.Errorf("message %d of queue %d is there twice", ref.Seq, ref.Queue)
	}
	return nil
}

// bitmaps checks that each has a segment; segments has read their values.
func (c *checker) bitmaps() error {
	segments := c.tx.Bucket(BucketSegments)
	return c.each(BucketBitmaps, "bitmap", func(k, _ []byte) error {
		if segments.Bucket(k) == nil {
			return errors.New("belongs to no segment")
		}
		return nil
	})
}

func (c *checker) states() error {
	in := NewInterner()
	var st State
	return c.each(BucketState, "state", func(k, v []byte) error {
		c.sum.States++
		err := decodeState(k, v, &st, in)
		if err == nil && !c.lost {
			err = c.live(st.Ref)
		}
		return err
	})
}

func (c *checker) histories() error {
	if c.tx.Bucket(BucketHistory) == nil {
		return nil
	}
	return c.each(BucketHistory, "history", func(k, v []byte) error {
		c.sum.Histories++
		ref, err := DecodeRefKey(k)
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
	seqs := c.queues[ref.Queue]
	if seqs == nil {
		return ErrNoQueueOf(ref)
	}
	if !seqs.has(ref.Seq) {
		return ErrNoMessage(ref)
	}
	return nil
}

// dedupe checks the dedupe log. Ids of deleted queues remain in it until they expire.
func (c *checker) dedupe() error {
	return c.each(BucketDedupe, "dedupe", func(k, v []byte) error {
		step, items, err := openDedupes(k, v)
		part := "dedupe " + hex.EncodeToString(k)
		for i := range items.N {
			c.sum.DedupeIDs++
			d, off, err := ItemAs(items, i, decodeDedupe)
			if err == nil && DedupeStepOf(d.Until) != step {
				err = errors.New("expires at another time than its key says")
			}
			c.report(c.path.Corrupt(part, 0, off, err))
		}
		return err
	})
}

func (c *checker) consumers() error {
	return c.each(BucketConsumers, "consumer", func(k, v []byte) error {
		c.sum.Consumers++
		r, err := decodeConsumer(k, v)
		if err == nil && c.queues[r.Queue] == nil {
			err = fmt.Errorf("of queue %d, which does not exist", r.Queue)
		}
		return err
	})
}

func (c *checker) config() error {
	return c.tx.Bucket(BucketConfig).ForEach(func(k, v []byte) error {
		c.sum.Config++
		_, err := Unseal(k, v)
		c.report(c.path.CorruptMeta(configPart(k), err))
		return nil
	})
}

// compareCounts compares the counts with the counts of the last commit. If there are other
// problems, a difference says nothing new.
func (c *checker) compareCounts() error {
	want, err := c.path.ReadCounts(c.tx)
	if err != nil || c.sum.Problems > 0 {
		return nil //nolint:nilerr // meta reported it
	}
	got := Counts{
		Segments: uint64(c.sum.Segments), Records: uint64(c.sum.Records), Finished: uint64(c.sum.Finished),
		States: uint64(c.sum.States), Dedupes: uint64(c.tx.Bucket(BucketDedupe).Stats().KeyN), Commits: want.Commits,
		Histories: uint64(c.sum.Histories),
	}
	return c.path.CorruptMeta("tally", got.Differs(want))
}
