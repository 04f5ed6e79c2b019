package store

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// plan is the work of one group commit. Batches are planned one after the other. The
// changes of a batch are visible at once in the location index and in the bitmaps in
// memory, so that the next batch sees them; added messages have the segment pendingSeg.
// A refused batch leaves no trace. If the commit fails, the store stops, so nothing needs
// to be undone.
//
// A message that is added and finished within one commit is never written.
type plan struct {
	adds     []added
	alive    int // of adds
	bytes    int64
	dirty    []uint32 // segments whose bitmap changes
	states   []stateOp
	durable  int              // number of states and attempts for messages on disk
	attempts []*Attempt       // of messages that are on disk
	ended    []Ref            // messages on disk whose histories end
	pending  []pendingHistory // of messages that the commit adds
	changed  map[Ref][]byte   // new histories of messages on disk
	writes   []historyPut     // all histories to write
	dedupe   []*Dedupe
	meta     []metaOp

	victims []uint32 // segments that compaction empties
	carried []carried

	items    []item
	segments []newSegment
	gone     []uint32 // segments to delete: victims, and segments without a live message
	arena    []byte   // bytes that bbolt refers to until the commit

	last *queue // looked up last
}

// added is a message that the commit adds.
type added struct {
	ref              Ref
	m                *Message // with a Log it belongs to the submitter again before the commit ends
	headers, payload []byte
	moved            bool  // by a Move
	dead             bool  // finished already
	history          int32 // index of its pendingHistory, from 1; 0: it has no history
	segment, slot    int   // its location, counted within the plan; set only with a Log
}

// stateOp sets a state or, with st nil, deletes it. A pending one is for a message that
// this commit adds. Then there is no state to delete, unless the commit finished another
// message with the same number before, which can happen in a log of several owners.
type stateOp struct {
	ref     Ref
	st      *State
	pending bool
}

// pendingHistory is the history of a message that the commit adds: the history that it
// had before a move, and new records.
type pendingHistory struct {
	add    int      // in adds
	from   Ref      // a message on disk whose history it continues
	of     int32    // or an added message, see added.history
	record []byte   // the first new record, or nil
	more   [][]byte // the next new records
	value  []byte   // the result
}

// historyPut is a history to write.
type historyPut struct {
	ref   Ref
	value []byte
}

// metaOp is a change of queues, consumers or configuration. It puts a value or, with value
// nil, deletes a key, or all keys with the prefix key. They are applied in order.
type metaOp struct {
	bucket, key, value []byte
	all                bool
}

const (
	arenaKept = 4 << 20
	opsKept   = 1 << 16
)

// reset empties p for the next commit. It frees the memory of a huge commit, for example
// the deletion of a large queue.
func (p *plan) reset() {
	if max(cap(p.adds), cap(p.states), cap(p.items), cap(p.attempts), cap(p.pending), cap(p.ended)) > opsKept {
		*p = plan{}
		return
	}
	clear(p.changed)
	arena := p.arena[:0]
	if cap(arena) > arenaKept {
		arena = nil
	}
	*p = plan{
		adds: emptied(p.adds), dirty: p.dirty[:0], states: emptied(p.states), dedupe: emptied(p.dedupe),
		attempts: emptied(p.attempts), ended: p.ended[:0], pending: emptied(p.pending), changed: p.changed, writes: emptied(p.writes),
		meta: emptied(p.meta), victims: p.victims[:0], carried: emptied(p.carried), items: emptied(p.items),
		segments: emptied(p.segments), gone: p.gone[:0], arena: arena,
	}
}

// emptied clears s and keeps its capacity.
func emptied[T any](s []T) []T {
	clear(s)
	return s[:0]
}

// empty reports whether there is nothing to write.
func (p *plan) empty() bool {
	return p.alive == 0 && len(p.dirty) == 0 && p.durable == 0 && len(p.dedupe) == 0 && len(p.meta) == 0
}

// written is the number of bytes of messages and histories to write, including carried
// ones.
func (p *plan) written() int64 {
	var n int64
	for i := range p.writes {
		n += int64(len(p.writes[i].value))
	}
	for i := range p.segments {
		n += int64(p.segments[i].recordBytes)
	}
	return n
}

// put plans a sealed value.
func (p *plan) put(bucket, key, value []byte) {
	p.meta = append(p.meta, metaOp{bucket: bucket, key: key, value: storefile.Seal(nil, key, value)})
}

// queue returns the queue or nil.
func (s *Bolt) queue(id QueueID) *queue {
	if q := s.plan.last; q != nil && q.id == id {
		return q
	}
	q := s.queues[id]
	if q != nil {
		s.plan.last = q
	}
	return q
}

// find returns the location of a live message.
func (s *Bolt) find(ref Ref) (q *queue, l loc, ok bool) {
	if q = s.queue(ref.Queue); q != nil {
		l, ok = q.index.get(ref.Seq)
	}
	return q, l, ok
}

// planBatch adds a batch to the plan or refuses it.
func (s *Bolt) planBatch(tx *bbolt.Tx, b *Batch) error {
	if err := b.Check(); err != nil {
		return err
	}
	sources := s.sources(tx, b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.planNew(b, sources); err != nil {
		return err
	}
	// Nothing below can fail.
	p := &s.plan
	for i := range b.PutQueues {
		q := &b.PutQueues[i]
		p.put(storefile.BucketQueues, storefile.QueueKey(q.ID), storefile.AppendQueue(nil, q))
		s.nextQueue = max(s.nextQueue, q.ID+1)
	}
	for i := range b.Move {
		s.moveHistory(&b.Move[i])
		s.finish(b.Move[i].From)
	}
	for i := range b.History {
		s.addHistory(&b.History[i])
	}
	for i := range b.State {
		s.setState(&b.State[i])
	}
	for _, ref := range b.Finish {
		s.finish(ref)
	}
	for i := range b.Dedupe {
		p.dedupe = append(p.dedupe, &b.Dedupe[i])
	}
	for i := range b.PutConsumers {
		c := &b.PutConsumers[i]
		p.put(storefile.BucketConsumers, storefile.ConsumerKey(c), storefile.AppendConsumer(nil, c))
	}
	for i := range b.DeleteConsumers {
		p.meta = append(p.meta, metaOp{bucket: storefile.BucketConsumers, key: storefile.ConsumerKey(&b.DeleteConsumers[i])})
	}
	for _, e := range b.PutConfig {
		p.put(storefile.BucketConfig, []byte(e.Key), []byte(e.Value))
	}
	for _, k := range b.DeleteConfig {
		if k != "" {
			p.meta = append(p.meta, metaOp{bucket: storefile.BucketConfig, key: []byte(k)})
		}
	}
	for _, id := range b.DeleteQueues {
		s.deleteQueue(id)
	}
	return nil
}

// planNew plans the part of a batch that can be refused: new queues and new messages. On
// an error it undoes its changes.
func (s *Bolt) planNew(b *Batch, sources []source) (err error) {
	p := &s.plan
	mark, bytes := len(p.adds), p.bytes
	var made []QueueID
	defer func() {
		if err == nil {
			return
		}
		for _, a := range p.adds[mark:] {
			s.queues[a.ref.Queue].index.del(a.ref.Seq)
		}
		for _, id := range made {
			delete(s.queues, id)
		}
		clear(p.adds[mark:])
		p.adds, p.alive, p.bytes = p.adds[:mark], p.alive-(len(p.adds)-mark), bytes
		p.last = nil
	}()
	for i := range b.PutQueues {
		id := b.PutQueues[i].ID
		if s.queues[id] != nil {
			continue
		}
		if id < s.nextQueue {
			return fmt.Errorf("%w: queue id %d was used before", ErrInvalid, id)
		}
		s.queues[id] = &queue{id: id}
		made = append(made, id)
	}
	for i := range b.Add {
		m := &b.Add[i]
		if err := s.add(m, m.Headers, m.Payload); err != nil {
			return err
		}
	}
	var from map[Ref]bool
	if len(b.Move) > 1 {
		from = make(map[Ref]bool, len(b.Move))
	}
	for i := range b.Move {
		mv := &b.Move[i]
		src := sources[i]
		if src.err != nil { // this batch may add it
			src = s.pendingSource(mv.From, src.err)
		}
		if src.err == nil && from[mv.From] {
			src.err = ErrNotFound
		}
		if src.err != nil {
			return fmt.Errorf("move of message %d of queue %d: %w", mv.From.Seq, mv.From.Queue, src.err)
		}
		if from != nil {
			from[mv.From] = true
		}
		if err := s.add(&mv.To, src.headers, src.payload); err != nil {
			return err
		}
		p.adds[len(p.adds)-1].moved = true
	}
	for i := range b.PutConsumers {
		if id := b.PutConsumers[i].Queue; s.queue(id) == nil {
			return fmt.Errorf("%w: %d", ErrNoQueue, id)
		}
	}
	for i := range b.Dedupe {
		if id := b.Dedupe[i].Queue; s.queue(id) == nil {
			return fmt.Errorf("%w: %d", ErrNoQueue, id)
		}
	}
	return nil
}

func (s *Bolt) add(m *Message, headers, payload []byte) error {
	q := s.queue(m.Queue)
	if q == nil {
		return fmt.Errorf("%w: %d", ErrNoQueue, m.Queue)
	}
	if _, ok := q.index.get(m.Seq); ok {
		return fmt.Errorf("%w: %d of queue %d", ErrDuplicate, m.Seq, m.Queue)
	}
	p := &s.plan
	size := len(headers) + len(payload)
	q.index.put(m.Seq, loc{seg: pendingSeg, slot: uint32(len(p.adds)), size: uint32(size)})
	p.adds = append(p.adds, added{ref: m.Ref, m: m, headers: headers, payload: payload})
	p.alive++
	p.bytes += int64(size)
	return nil
}

// finish removes a message if it exists.
func (s *Bolt) finish(ref Ref) {
	if q, l, ok := s.find(ref); ok {
		q.index.del(ref.Seq)
		s.finishAt(ref, l)
	}
}

func (s *Bolt) finishAt(ref Ref, l loc) {
	p := &s.plan
	if l.slot&stateBit != 0 {
		s.planState(stateOp{ref: ref, pending: l.seg == pendingSeg})
		s.count.states--
	}
	if l.slot&historyBit != 0 {
		if l.seg != pendingSeg {
			p.ended = append(p.ended, ref)
		}
		s.count.history--
	}
	if l.seg == pendingSeg {
		p.adds[l.slotNo()].dead = true
		p.alive--
		p.bytes -= int64(l.size)
		return
	}
	s.count.bytes -= int64(l.size)
	s.segs.finish(l.seg, l.slotNo(), l.size)
	if g := s.segs.segs[l.seg]; !g.dirty {
		g.dirty = true
		p.dirty = append(p.dirty, l.seg)
	}
}

func (s *Bolt) setState(st *State) {
	q, l, ok := s.find(st.Ref)
	if !ok {
		return
	}
	if l.slot&stateBit == 0 {
		l.slot |= stateBit
		q.index.put(st.Seq, l)
		s.count.states++
	}
	s.planState(stateOp{ref: st.Ref, st: st, pending: l.seg == pendingSeg})
}

func (s *Bolt) planState(op stateOp) {
	s.plan.states = append(s.plan.states, op)
	if !op.pending {
		s.plan.durable++
	}
}

// markHistory marks a message that gets a history.
func (s *Bolt) markHistory(q *queue, seq uint64, l loc) {
	if l.slot&historyBit == 0 {
		l.slot |= historyBit
		q.index.put(seq, l)
		s.count.history++
	}
}

func (s *Bolt) addHistory(a *Attempt) {
	q, l, ok := s.find(a.Ref)
	if !ok {
		return
	}
	s.markHistory(q, a.Seq, l)
	if l.seg != pendingSeg {
		s.plan.attempts = append(s.plan.attempts, a)
		s.plan.durable++
		return
	}
	if h := s.plan.pendingHistoryOf(l); h.record == nil {
		h.record = a.Record
	} else {
		h.more = append(h.more, a.Record)
	}
}

// pendingHistoryOf returns the history of a message that the commit adds.
func (p *plan) pendingHistoryOf(l loc) *pendingHistory {
	a := &p.adds[l.slotNo()]
	if a.history == 0 {
		p.pending = append(p.pending, pendingHistory{add: l.slotNo()})
		a.history = int32(len(p.pending))
	}
	return &p.pending[a.history-1]
}

// moveHistory moves the history of a message, before the message is finished.
func (s *Bolt) moveHistory(mv *Move) {
	_, was, _ := s.find(mv.From)
	if was.slot&historyBit == 0 {
		return
	}
	q, l, _ := s.find(mv.To.Ref)
	s.markHistory(q, mv.To.Seq, l)
	h := s.plan.pendingHistoryOf(l)
	if h.from = mv.From; was.seg == pendingSeg {
		h.from, h.of = Ref{}, s.plan.adds[was.slotNo()].history
	}
}

// deleteQueue finishes all messages of a queue. Its dedupe ids remain in the dedupe log
// until they expire, and recovery skips them.
func (s *Bolt) deleteQueue(id QueueID) {
	q := s.queues[id]
	if q == nil {
		return
	}
	for seq, l := range q.index.all() {
		s.finishAt(Ref{Queue: id, Seq: seq}, l)
	}
	delete(s.queues, id)
	s.plan.last = nil
	s.plan.meta = append(s.plan.meta,
		metaOp{bucket: storefile.BucketConsumers, key: storefile.QueueKey(id), all: true}, metaOp{bucket: storefile.BucketQueues, key: storefile.QueueKey(id)})
}

// source is the source of a Move. Its slices are valid until the commit.
type source struct {
	headers, payload []byte
	err              error
}

// sources reads the messages that a batch moves. The caller does not hold mu.
func (s *Bolt) sources(tx *bbolt.Tx, b *Batch) []source {
	if len(b.Move) == 0 {
		return nil
	}
	out := make([]source, len(b.Move))
	for i := range b.Move {
		src, ref := &out[i], b.Move[i].From
		src.err = ErrNotFound
		if _, l, ok := s.find(ref); ok && l.seg != pendingSeg {
			g := s.segs.segs[l.seg]
			src.headers, src.payload, src.err = s.decode(g.value(tx), g.id, l.slotNo(), ref)
		}
	}
	return out
}

// pendingSource returns a message that the running commit adds. For other messages
// it returns err.
func (s *Bolt) pendingSource(ref Ref, err error) source {
	if _, l, ok := s.find(ref); ok && l.seg == pendingSeg {
		a := &s.plan.adds[l.slotNo()]
		return source{headers: a.headers, payload: a.payload}
	}
	return source{err: err}
}

// value returns the records of a segment that exists.
func (g *segment) value(tx *bbolt.Tx) []byte {
	if g.data != nil {
		return g.data
	}
	return storefile.SegmentBucket(tx, g.id).Get(storefile.KeyValue)
}
