package storefile

import (
	"go.etcd.io/bbolt"
)

// Stats are the figures of a file that no process serves.
type Stats struct {
	FileBytes int64 `json:"file_bytes"`
	Pages     int64 `json:"pages"` // of PageBytes each, free ones included
	UsedPages int64 `json:"pages_used"`
	PageBytes int64 `json:"page_bytes"`
	CreatedAt int64 `json:"-"` // Unix nanoseconds
	Commits   int64 `json:"commits"`

	Segments       int64        `json:"segments"`
	Messages       int64        `json:"messages"`        // live
	Bytes          int64        `json:"bytes"`           // their headers and payloads
	StoredMessages int64        `json:"stored_messages"` // live ones, and finished ones not yet compacted away
	StoredBytes    int64        `json:"stored_bytes"`
	States         int64        `json:"states"`
	Histories      int64        `json:"-"`          // messages that have one
	DedupeIDs      int64        `json:"dedupe_ids"` // not expired
	Consumers      int64        `json:"consumers"`
	Config         int64        `json:"config_entries"`
	Queues         []QueueStats `json:"-"` // by id
}

// QueueStats are the figures of one queue in a file.
type QueueStats struct {
	ID        QueueID `json:"-"`
	Name      string  `json:"name"`
	Messages  int64   `json:"messages"`
	Bytes     int64   `json:"bytes"` // headers and payloads
	Leased    int64   `json:"leased"`
	Delayed   int64   `json:"delayed"` // waiting for a time in the future
	Retried   int64   `json:"retried"` // with a finished attempt
	OldestAt  int64   `json:"-"`       // Unix nanoseconds, the earliest enqueue; 0: there is no message
	Consumers int64   `json:"consumers"`
	DedupeIDs int64   `json:"dedupe_ids"`
}

// Stats reads all header indexes and no payloads. It fails at the first record that
// it cannot read.
func (f *File) Stats() (Stats, error) {
	st := Stats{
		FileBytes: f.pages.Size, Pages: int64(f.pages.Pages), UsedPages: int64(f.pages.Used), PageBytes: PageSize,
	}
	if f.clockErr != nil {
		return st, f.clockErr
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
		t, err := f.path.ReadCounts(tx)
		if err != nil {
			return err
		}
		st.Commits, st.States, st.Histories = int64(t.Commits), int64(t.States), int64(t.Histories)
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

func (f *File) countMessages(tx *bbolt.Tx, st *Stats, queues map[QueueID]*QueueStats) error {
	w := &walker{f: f, tx: tx, in: NewInterner()}
	now := f.o.Now()
	var m Message
	for {
		v, err := w.next()
		if v == nil || err != nil {
			return err
		}
		st.Segments++
		for i := range v.index.N {
			head, err := w.entry(v, i, &m)
			if err != nil {
				return err
			}
			size := int64(head.Size())
			st.StoredMessages++
			st.StoredBytes += size
			if v.finished(i) {
				continue
			}
			q := queues[m.Queue]
			if q == nil {
				_, off, _ := v.index.Item(i)
				return f.path.Corrupt("index", v.id, off, ErrNoQueueOf(m.Ref))
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
