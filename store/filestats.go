package store

import (
	"go.etcd.io/bbolt"
)

// FileStats is a picture of a file that nobody serves.
type FileStats struct {
	FileBytes int64
	Pages     int64 // of PageBytes each, free ones included
	UsedPages int64
	PageBytes int64
	CreatedAt int64 // Unix nanoseconds
	Commits   int64

	Segments       int64
	Messages       int64 // live
	Bytes          int64 // their headers and payloads
	StoredMessages int64 // live ones, and finished ones not yet compacted away
	StoredBytes    int64
	States         int64
	Histories      int64 // messages that have one
	DedupeIDs      int64 // those that have not expired
	Consumers      int64
	Config         int64
	Queues         []QueueStats // by id
}

// QueueStats is what a file holds of one queue.
type QueueStats struct {
	ID        QueueID
	Name      string
	Messages  int64
	Bytes     int64 // headers and payloads
	Leased    int64
	Delayed   int64 // not before a time that is still to come
	Retried   int64 // with an attempt that has ended
	OldestAt  int64 // Unix nanoseconds, the first enqueue of all messages; 0: there is none
	Consumers int64
	DedupeIDs int64
}

// Stats reads all header indexes, but no payloads. It fails at the first record
// that it cannot read.
func (f *File) Stats() (FileStats, error) {
	st := FileStats{
		FileBytes: f.pages.size, Pages: int64(f.pages.pages), UsedPages: int64(f.pages.used), PageBytes: pageSize,
	}
	if f.clock != nil {
		return st, f.clock
	}
	snap, err := f.Snapshot()
	if err != nil {
		return st, err
	}
	st.CreatedAt, st.Consumers, st.Config = snap.CreatedAt, int64(len(snap.Consumers)), int64(len(snap.Config))
	st.Queues = make([]QueueStats, len(snap.Queues))
	queues := make(map[QueueID]*QueueStats, len(snap.Queues))
	for i, q := range snap.Queues {
		st.Queues[i].ID, st.Queues[i].Name = q.ID, q.Name
		queues[q.ID] = &st.Queues[i]
	}
	for _, c := range snap.Consumers {
		if q := queues[c.Queue]; q != nil {
			q.Consumers++
		}
	}
	err = f.view("read", func(tx *bbolt.Tx) error {
		t, err := decodeTally(keyTally, tx.Bucket(bucketMeta).Get(keyTally))
		if err != nil {
			return f.s.metaError("tally", err)
		}
		st.Commits, st.States, st.Histories = int64(t.commits), int64(t.states), int64(t.histories)
		return f.countMessages(tx, &st, queues)
	})
	if err != nil {
		return st, err
	}
	return st, f.Dedupes(nil, func(d Dedupe) error {
		st.DedupeIDs++
		queues[d.Queue].DedupeIDs++
		return nil
	})
}

func (f *File) countMessages(tx *bbolt.Tx, st *FileStats, queues map[QueueID]*QueueStats) error {
	w := &walker{s: f.s, tx: tx, in: newInterner()}
	now := f.s.o.Now()
	var m Message
	for {
		v, err := w.next()
		if v == nil || err != nil {
			return err
		}
		st.Segments++
		for i := range v.index.n {
			head, err := f.s.entry(v, i, &m, w.in)
			if err != nil {
				return err
			}
			size := int64(head.size())
			st.StoredMessages++
			st.StoredBytes += size
			if v.finished(i) {
				continue
			}
			q := queues[m.Queue]
			if q == nil {
				_, off, _ := v.index.item(i)
				return f.s.corrupt("index", v.id, off, noQueueOf(m.Ref))
			}
			ready := m.NotBefore
			state, err := w.state(m.Ref)
			if err != nil {
				return err
			}
			if state != nil {
				ready = state.ReadyAt
				if state.Lease.ID != 0 {
					q.Leased++
					ready = 0
				}
				if state.Attempts > m.Attempts {
					q.Retried++
				}
			}
			if ready > now {
				q.Delayed++
			}
			if q.Messages == 0 || m.EnqueuedAt < q.OldestAt {
				q.OldestAt = m.EnqueuedAt
			}
			q.Messages++
			q.Bytes += size
			st.Messages++
			st.Bytes += size
		}
	}
}
