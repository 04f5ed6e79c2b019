package store

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store/storefile"
)

// item is one record of a new segment: a new message, or one that compaction carries.
type item struct {
	add   *added
	carry *carried
}

func (it item) sizes() (record, entry int) {
	if it.carry != nil {
		return len(it.carry.record), len(it.carry.entry)
	}
	return storefile.RecordHeader + len(it.add.headers) + len(it.add.payload), storefile.EntrySize(it.add.m)
}

func (it item) ref() Ref {
	if it.carry != nil {
		return it.carry.ref
	}
	return it.add.ref
}

// newSegment is a segment with items [from, to). A cold one has moved messages, most of
// which are not delivered soon, so it is not kept in memory.
type newSegment struct {
	cold                  bool
	id                    uint64
	from, to              int
	recordBytes, entryLen int
	data                  []byte
	index                 []byte // set only with a Log
}

// transact plans and writes one group commit. It stores the errors of refused batches in
// o.errs. An error that it returns means that the commit failed. With a position it
// applies batches that a log has, and a refused batch fails the commit.
func (s *Bolt) transact(o *outcome, position []byte) error {
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	open := true
	defer func() {
		if open { // no changes, an error, or a panic of bbolt
			_ = s.path.Guard("rollback", tx.Rollback)
		}
	}()
	for i, b := range o.batches {
		if o.errs[i] = s.planBatch(tx, b); position != nil && o.errs[i] != nil {
			return o.errs[i]
		}
	}
	if s.plan.empty() && position == nil {
		return nil
	}
	s.compact(tx)
	if err := s.write(tx); err != nil {
		return err
	}
	logged := s.log != nil && position == nil
	if logged {
		if position, err = s.log.Append(o.accepted()); err != nil {
			return err
		}
	}
	if position != nil {
		if err := storefile.PutSealed(tx.Bucket(storefile.BucketMeta), storefile.KeyPosition, position); err != nil {
			return err
		}
	}
	s.db.AllocSize = s.growth(tx.Size())
	s.gate.Lock()
	defer s.gate.Unlock()
	if logged {
		s.mu.Lock()
		s.ahead = true
		s.mu.Unlock()
		s.notifyDone(o)
		if step := s.o.tune.step; step != nil {
			if err := step("logged"); err != nil {
				return err
			}
		}
	}
	open = false
	if err := s.path.Guard("commit", func() error { return s.file.Commit(tx) }); err != nil {
		_ = s.path.Guard("rollback", tx.Rollback) // after a panic the transaction holds bbolt's lock
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.apply()
	return nil
}

// growth is by how much the file grows, since each growth costs a sync.
func (s *Bolt) growth(size int64) int {
	if s.o.tune.allocBytes > 0 {
		return s.o.tune.allocBytes
	}
	return int(min(max(size/8, 1<<20), 16<<20))
}

// write writes the plan in the transaction.
func (s *Bolt) write(tx *bbolt.Tx) error {
	s.layout()
	next := s.counts()
	if err := s.writeSegments(tx, &next); err != nil {
		return err
	}
	if err := s.writeFinished(tx, &next); err != nil {
		return err
	}
	if err := s.writeStates(tx); err != nil {
		return err
	}
	if err := s.writeHistories(tx); err != nil {
		return err
	}
	if err := s.writeDedupe(tx); err != nil {
		return err
	}
	if err := s.writeMeta(tx); err != nil {
		return err
	}
	if err := s.writeClock(tx); err != nil {
		return err
	}
	next.Dedupes, next.Histories = uint64(s.count.dedupes), uint64(s.count.history)
	next.Commits++
	return storefile.PutSealed(tx.Bucket(storefile.BucketMeta), storefile.KeyCounts, storefile.AppendCounts(nil, next))
}

// writeClock is part of every commit.
func (s *Bolt) writeClock(tx *bbolt.Tx) error {
	s.clock.Last, s.clock.Moved = s.o.Now(), false
	value := storefile.AppendClock(s.plan.grab(storefile.ClockSize), s.clock)
	sealed := storefile.Seal(s.plan.grab(4+storefile.ClockSize), storefile.KeyClock, value)
	return tx.Bucket(storefile.BucketMeta).Put(storefile.KeyClock, sealed)
}

// closeClock writes the time of an orderly Close, so that the time since the last commit,
// or since an opening that found the clock set back, counts as well. Nothing is lost if
// it fails. The commit has no seal: Close syncs it before it removes the others.
func (s *Bolt) closeClock() {
	since := s.o.Now() - s.clock.Last
	if s.Err() != nil || !s.clock.Moved && since > -storefile.ClockSlack && since < storefile.ClockSlack {
		return
	}
	s.plan.reset()
	if err := s.path.Guard("close", func() error { return s.db.Update(s.writeClock) }); err != nil {
		s.o.Logger.Warn("store: the time of the stop is not on disk: if the clock is set back now, delays and leases last longer",
			"file", string(s.path), "error", err)
	}
}

// layout decides which records go into which new segment.
func (s *Bolt) layout() {
	p := &s.plan
	p.itemise(false)
	for i := range p.carried {
		p.items = append(p.items, item{carry: &p.carried[i]})
	}
	warm := len(p.items)
	if p.itemise(true) < s.o.tune.coldBytes { // a few dead letters, say
		warm = len(p.items)
	}
	var n newSegment
	for i, it := range p.items {
		r, e := it.sizes()
		full := n.to-n.from >= s.o.tune.segmentRecords || int64(n.recordBytes+n.entryLen+r+e) > s.o.tune.segmentBytes
		cold := i >= warm
		if (full || cold != n.cold) && n.to > n.from {
			p.segments = append(p.segments, n)
			n = newSegment{from: i}
		}
		n.cold = cold
		n.to = i + 1
		n.recordBytes += r
		n.entryLen += e
	}
	if n.to > n.from {
		p.segments = append(p.segments, n)
	}
	for i := range p.segments {
		n := &p.segments[i]
		n.id = s.segs.nextID + uint64(i)
		if s.log == nil {
			continue
		}
		for j, it := range p.items[n.from:n.to] {
			if it.add != nil {
				it.add.segment, it.add.slot = i, j
			}
		}
	}
}

// itemise adds the moved new messages, or the others, to the items, and returns their
// bytes.
func (p *plan) itemise(moved bool) (bytes int) {
	for i := range p.adds {
		if a := &p.adds[i]; !a.dead && a.moved == moved {
			p.items = append(p.items, item{add: a})
			bytes += len(a.headers) + len(a.payload)
		}
	}
	return bytes
}

// grab returns a slice of capacity n that is valid until the commit.
func (p *plan) grab(n int) []byte {
	if cap(p.arena)-len(p.arena) < n {
		p.arena = make([]byte, 0, max(n, 2*cap(p.arena), 4096))
	}
	at := len(p.arena)
	p.arena = p.arena[:at+n]
	return p.arena[at : at : at+n]
}

func (s *Bolt) writeSegments(tx *bbolt.Tx, next *storefile.Counts) error {
	p := &s.plan
	parent := tx.Bucket(storefile.BucketSegments)
	parent.FillPercent = 0.9 // ids only grow
	for i := range p.segments {
		n := &p.segments[i]
		count := n.to - n.from
		frame := storefile.BlockHeader + 4*count
		var data []byte
		if n.cold && s.log == nil {
			data = p.grab(frame + n.recordBytes)
		} else { // it goes into the read cache
			data = make([]byte, 0, frame+n.recordBytes)
		}
		data = storefile.BeginBlock(data, storefile.KindSegment, n.id, count)
		index := storefile.BeginBlock(p.grab(frame+n.entryLen), storefile.KindIndex, n.id, count)
		for j, it := range p.items[n.from:n.to] {
			if c := it.carry; c != nil {
				data = append(data, c.record...)
				index = append(index, c.entry...)
			} else {
				data = storefile.AppendRecord(data, it.add.m.Ref, it.add.headers, it.add.payload)
				index = s.appendEntry(index, it.add)
				if m := it.add.m; m.Priority > 0 || len(m.Routes) > 0 {
					if err := s.upgrade(tx, versionOf(m)); err != nil {
						return err
					}
				}
			}
			storefile.EndItem(data, j)
			storefile.EndItem(index, j)
		}
		n.data = data
		if s.log != nil {
			n.index = bytes.Clone(index) // readers use it when the next commit reuses the arena
		}
		b, err := parent.CreateBucket(be.AppendUint64(nil, n.id))
		if err != nil {
			return err
		}
		if err := errors.Join(b.Put(storefile.KeyIndex, index), b.Put(storefile.KeyValue, data)); err != nil {
			return err
		}
	}
	next.Segments += uint64(len(p.segments))
	next.Records += uint64(len(p.items))
	return nil
}

// appendEntry appends the entry of a new message, with the end of its delay in steady
// time.
func (s *Bolt) appendEntry(dst []byte, a *added) []byte {
	m := a.m
	if m.Delayed && s.clock.Shift != 0 {
		shifted := *m
		shifted.NotBefore = s.clock.Steady(m.NotBefore)
		m = &shifted
	}
	return storefile.AppendEntry(dst, m, len(a.headers), len(a.payload))
}

// writeFinished writes the changed bitmaps and deletes segments without a live message.
func (s *Bolt) writeFinished(tx *bbolt.Tx, next *storefile.Counts) error {
	p := &s.plan
	segments, bitmaps := tx.Bucket(storefile.BucketSegments), tx.Bucket(storefile.BucketBitmaps)
	bitmaps.FillPercent = 0.9
	p.gone = append(p.gone, p.victims...)
	slices.SortFunc(p.dirty, func(a, b uint32) int { return cmp.Compare(s.segs.segs[a].id, s.segs.segs[b].id) })
	var key [8]byte
	for _, h := range p.dirty {
		g := s.segs.segs[h]
		g.dirty = false
		if g.victim {
			continue
		}
		if g.live == 0 && !g.damaged {
			p.gone = append(p.gone, h)
			continue
		}
		be.PutUint64(key[:], g.id)
		bits := storefile.AppendBitmap(p.grab(4+(g.n+7)/8), g.n, g.done)
		if err := bitmaps.Put(key[:], storefile.Seal(p.grab(4+len(bits)), key[:], bits)); err != nil {
			return err
		}
		g.hasBitmap = true
	}
	for _, h := range p.gone {
		g := s.segs.segs[h]
		be.PutUint64(key[:], g.id)
		if err := segments.DeleteBucket(key[:]); err != nil {
			return err
		}
		if g.hasBitmap {
			if err := bitmaps.Delete(key[:]); err != nil {
				return err
			}
		}
		next.Segments--
		next.Records -= uint64(g.n)
		next.Finished -= uint64(g.n - g.live)
	}
	return nil
}

// writeStates writes the last state of each message, in the order of the keys.
func (s *Bolt) writeStates(tx *bbolt.Tx) error {
	p := &s.plan
	if len(p.states) == 0 {
		return nil
	}
	slices.SortStableFunc(p.states, func(a, b stateOp) int { return compareRefs(a.ref, b.ref) })
	bucket := tx.Bucket(storefile.BucketState)
	key := make([]byte, 0, 12)
	durable := false // an operation found the message on disk, where it may have a state
	for i, op := range p.states {
		durable = durable && i > 0 && p.states[i-1].ref == op.ref || !op.pending
		if i+1 < len(p.states) && p.states[i+1].ref == op.ref {
			continue
		}
		key = storefile.AppendRefKey(key[:0], op.ref)
		var err error
		switch {
		case op.st == nil && !durable:
		case op.st == nil:
			err = bucket.Delete(key)
		default:
			st := *op.st
			st.ReadyAt, st.Lease.Deadline = s.clock.Steady(st.ReadyAt), s.clock.Steady(st.Lease.Deadline)
			value := storefile.AppendState(p.grab(storefile.StateSize(&st)), &st)
			if st.Lease.HasHistory() {
				if err := s.upgrade(tx, storefile.WithHistories); err != nil {
					return err
				}
			}
			err = bucket.Put(key, storefile.Seal(p.grab(4+len(value)), key, value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// upgrade raises the format version of the file to version before the first record that
// lower versions do not have.
func (s *Bolt) upgrade(tx *bbolt.Tx, version uint32) error {
	if s.format >= version {
		return nil
	}
	s.format = version
	_, err := tx.CreateBucketIfNotExists(storefile.BucketHistory)
	return errors.Join(err, storefile.PutSealed(tx.Bucket(storefile.BucketMeta), storefile.KeyFormat, le.AppendUint32(nil, version)))
}

// versionOf returns the lowest version of a file that has message m, with a priority or routes.
func versionOf(m *Message) uint32 {
	if len(m.Routes) > 0 {
		return storefile.WithRoutes
	}
	return storefile.WithHistories
}

// writeHistories writes the histories that this commit changes.
func (s *Bolt) writeHistories(tx *bbolt.Tx) error {
	p := &s.plan
	if len(p.attempts)+len(p.ended)+len(p.pending) == 0 {
		return nil
	}
	if err := s.upgrade(tx, storefile.WithHistories); err != nil {
		return err
	}
	bucket := tx.Bucket(storefile.BucketHistory)
	bucket.FillPercent = 0.9 // most belong to dead letters, whose numbers grow
	at := bucket.Cursor()
	key := make([]byte, 0, storefile.RefKeySize)
	if p.changed == nil {
		p.changed = make(map[Ref][]byte)
	}
	rules := storefile.HistoryRules{Join: s.o.Join, Keep: s.o.Keep}
	was := func(ref Ref) []byte {
		if h, ok := p.changed[ref]; ok {
			return h
		}
		key = storefile.AppendRefKey(key[:0], ref)
		found, sealed := at.Seek(key)
		if !bytes.Equal(found, key) {
			return nil
		}
		h, err := storefile.Unseal(key, sealed)
		if err != nil { // the message is worth more: start a new history
			s.o.Logger.Error("store: history of a message is lost", "error", s.path.CorruptMeta("history "+hex.EncodeToString(key), err))
		}
		return h
	}
	for _, a := range p.attempts {
		p.changed[a.Ref] = rules.Add(was(a.Ref), a.Record)
	}
	for i := range p.pending { // the history that it continues comes before it
		h := &p.pending[i]
		switch {
		case h.of != 0:
			h.value = p.pending[h.of-1].value
		case h.from.Queue != 0:
			h.value = was(h.from)
		}
		if h.record != nil {
			h.value = rules.Add(h.value, h.record)
		}
		for _, record := range h.more {
			h.value = rules.Add(h.value, record)
		}
		if a := &p.adds[h.add]; !a.dead && h.value != nil {
			p.writes = append(p.writes, historyPut{a.ref, h.value})
		}
	}
	// Deletions first: an added message may have the number of a finished one.
	slices.SortFunc(p.ended, compareRefs)
	for _, ref := range p.ended {
		delete(p.changed, ref)
		key = storefile.AppendRefKey(key[:0], ref)
		if found, _ := at.Seek(key); bytes.Equal(found, key) {
			if err := at.Delete(); err != nil {
				return err
			}
		}
	}
	for ref, h := range p.changed {
		p.writes = append(p.writes, historyPut{ref, h})
	}
	slices.SortFunc(p.writes, func(a, b historyPut) int { return compareRefs(a.ref, b.ref) })
	for i := range p.writes {
		key = storefile.AppendRefKey(key[:0], p.writes[i].ref)
		h := p.writes[i].value
		if err := bucket.Put(key, storefile.Seal(p.grab(4+len(h)), key, h)); err != nil {
			return err
		}
	}
	return nil
}

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Seq, b.Seq))
}

// writeMeta applies the changes to queues, consumers and configuration.
func (s *Bolt) writeMeta(tx *bbolt.Tx) error {
	if len(s.plan.meta) == 0 {
		return nil
	}
	for _, op := range s.plan.meta {
		bucket := tx.Bucket(op.bucket)
		var err error
		switch {
		case op.value != nil:
			err = bucket.Put(op.key, op.value)
		case op.all:
			err = deletePrefix(bucket, op.key)
		default:
			err = bucket.Delete(op.key)
		}
		if err != nil {
			return err
		}
	}
	return storefile.PutSealed(tx.Bucket(storefile.BucketMeta), storefile.KeyNextQueue, le.AppendUint32(nil, uint32(s.nextQueue)))
}

func deletePrefix(bucket *bbolt.Bucket, prefix []byte) error {
	var keys [][]byte
	c := bucket.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Next() {
		keys = append(keys, k)
	}
	for _, k := range keys {
		if err := bucket.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// apply updates the memory after a commit.
func (s *Bolt) apply() {
	p := &s.plan
	s.ahead = false
	for i := range p.segments {
		n := &p.segments[i]
		count := n.to - n.from
		g := &segment{id: n.id, n: count, live: count, done: make([]uint64, (count+63)/64)}
		g.weight = int64(n.recordBytes) + int64(count)*(recordWeight-storefile.RecordHeader)
		g.liveWeight = g.weight
		h := s.segs.add(g)
		for slot, it := range p.items[n.from:n.to] {
			ref := it.ref()
			q := s.queue(ref.Queue)
			l, _ := q.index.get(ref.Seq)
			if it.add != nil {
				s.count.bytes += int64(l.size)
			}
			l.seg, l.slot = h, l.slot&slotBits|uint32(slot)
			q.index.put(ref.Seq, l)
		}
		if !n.cold {
			s.cache.put(&s.segs, h, n.data)
		}
	}
	for _, h := range p.gone {
		s.cache.drop(s.segs.segs[h])
		s.segs.remove(h)
	}
	s.count.commits++
	s.count.carried += int64(len(p.carried))
	s.confirmed.notify()
}
