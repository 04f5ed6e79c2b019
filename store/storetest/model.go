package storetest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/filaq/fila/store"
)

// Model is a store in memory. It has only maps and applies batches one by one: slow,
// simple and obviously right.
type Model struct {
	// Join is [store.Options.Join]. Set it before any use.
	Join func(last, next []byte) []byte
	// Keep is [store.Options.Keep]. Set it before any use.
	Keep func(record []byte) bool

	now func() int64

	mu       sync.Mutex
	data     *modelData
	waiting  []*store.Batch
	wake     *sync.Cond
	closed   bool
	failed   chan struct{}
	finished chan struct{}
}

var _ store.Store = (*Model)(nil)

// modelData is the data that survives a close.
type modelData struct {
	open      bool
	queues    map[store.QueueID]store.QueueRecord
	consumers map[string]store.ConsumerRecord
	config    map[string]string
	messages  map[store.Ref]store.Message
	states    map[store.Ref]store.State
	histories map[store.Ref][][]byte
	dedupes   map[string]store.Dedupe
	next      store.QueueID
	secret    []byte
	created   int64
	commits   int64
	at        int64 // the time of the last commit or close
	back      int64 // how far the clock has been set back since it was right
}

func newModelData(created int64) *modelData {
	return &modelData{
		queues: map[store.QueueID]store.QueueRecord{}, consumers: map[string]store.ConsumerRecord{},
		config: map[string]string{}, messages: map[store.Ref]store.Message{}, states: map[store.Ref]store.State{},
		histories: map[store.Ref][][]byte{},
		dedupes:   map[string]store.Dedupe{}, next: 1, created: created, at: created,
	}
}

func (d *modelData) clone() *modelData {
	c := *d
	c.queues, c.consumers, c.config = maps.Clone(d.queues), maps.Clone(d.consumers), maps.Clone(d.config)
	c.messages, c.states, c.dedupes = maps.Clone(d.messages), maps.Clone(d.states), maps.Clone(d.dedupes)
	c.histories = maps.Clone(d.histories)
	return &c
}

var disks sync.Map // directory -> *modelData

// OpenModel opens the model of dir; now may be nil.
func OpenModel(dir string, now func() int64) (*Model, error) {
	if now == nil {
		now = func() int64 { return time.Now().UnixNano() }
	}
	fresh := newModelData(now())
	fresh.secret = make([]byte, 32)
	rand.Read(fresh.secret) // it never fails
	v, _ := disks.LoadOrStore(dir, fresh)
	d := v.(*modelData)
	if d.open {
		return nil, fmt.Errorf("%w: %s", store.ErrLocked, dir)
	}
	d.open = true
	d.openAt(now())
	m := &Model{now: now, data: d, failed: make(chan struct{}), finished: make(chan struct{})}
	m.wake = sync.NewCond(&m.mu)
	go m.run()
	return m, nil
}

// openAt moves delays and leases if the clock has been set back, and again when it has
// been set right.
func (d *modelData) openAt(now int64) {
	before := d.back
	if now < d.at-int64(time.Second) {
		d.back += d.at - now
	} else if now-d.at >= d.back {
		d.back = 0
	}
	d.at = now
	move := func(at *int64) {
		if *at != 0 {
			*at -= d.back - before
		}
	}
	for ref, st := range d.states {
		move(&st.ReadyAt)
		move(&st.Lease.Deadline)
		d.states[ref] = st
	}
	for ref, a := range d.messages {
		if a.Delayed {
			move(&a.NotBefore)
			d.messages[ref] = a
		}
	}
}

// NewModel returns an empty model for tests that commit by themselves: it has no
// goroutine, Apply replaces Submit, and it need not be closed.
func NewModel(now func() int64) *Model {
	return &Model{now: now, data: newModelData(now())}
}

// Apply commits a batch and returns its outcome. Done is not called.
func (m *Model) Apply(b *store.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data.commits++
	return m.apply(b)
}

func (m *Model) run() {
	defer close(m.finished)
	for {
		m.mu.Lock()
		for len(m.waiting) == 0 && !m.closed {
			m.wake.Wait()
		}
		batches := m.waiting
		m.waiting = nil
		if len(batches) == 0 {
			m.mu.Unlock()
			return
		}
		errs := make([]error, len(batches))
		for i, b := range batches {
			errs[i] = m.apply(b)
		}
		m.data.commits++
		m.data.at = m.now()
		m.mu.Unlock()
		for i, b := range batches {
			if b.Done != nil {
				b.Done(errs[i])
			}
		}
	}
}

// apply works on a copy if the batch may be refused.
func (m *Model) apply(b *store.Batch) error {
	if err := b.Check(); err != nil {
		return err
	}
	d := m.data
	if len(b.Add)+len(b.Move)+len(b.PutQueues)+len(b.PutConsumers)+len(b.Dedupe) > 0 {
		d = d.clone()
	}
	if err := d.apply(b, m); err != nil {
		return err
	}
	*m.data = *d
	return nil
}

func (d *modelData) apply(b *store.Batch, m *Model) error {
	next := d.next
	for _, q := range b.PutQueues {
		if _, ok := d.queues[q.ID]; !ok && q.ID < next {
			return fmt.Errorf("%w: queue id %d", store.ErrInvalid, q.ID)
		}
		q.Settings = bytes.Clone(q.Settings)
		d.queues[q.ID] = q
		d.next = max(d.next, q.ID+1)
	}
	for _, a := range b.Add {
		if err := d.add(a); err != nil {
			return err
		}
	}
	from := map[store.Ref]bool{}
	for _, mv := range b.Move {
		src, ok := d.messages[mv.From]
		if !ok || from[mv.From] {
			return store.ErrNotFound
		}
		from[mv.From] = true
		mv.To.Headers, mv.To.Payload = src.Headers, src.Payload
		if err := d.add(mv.To); err != nil {
			return err
		}
		if h, ok := d.histories[mv.From]; ok {
			d.histories[mv.To.Ref] = h
		}
	}
	for ref := range from {
		d.finish(ref)
	}
	for _, a := range b.History {
		if _, ok := d.messages[a.Ref]; ok {
			d.histories[a.Ref] = m.remembered(d.histories[a.Ref], a.Record)
		}
	}
	for _, st := range b.State {
		if _, ok := d.messages[st.Ref]; ok {
			d.states[st.Ref] = st
		}
	}
	for _, ref := range b.Finish {
		d.finish(ref)
	}
	for _, x := range b.Dedupe {
		if _, ok := d.queues[x.Queue]; !ok {
			return store.ErrNoQueue
		}
		d.dedupes[fmt.Sprintf("%d/%s", x.Queue, x.DedupeID)] = x
	}
	for _, c := range b.PutConsumers {
		if _, ok := d.queues[c.Queue]; !ok {
			return store.ErrNoQueue
		}
		d.consumers[fmt.Sprintf("%d/%s", c.Queue, c.Name)] = c
	}
	d.remove(b)
	return nil
}

func (d *modelData) add(a store.Message) error {
	if _, ok := d.queues[a.Queue]; !ok {
		return store.ErrNoQueue
	}
	if _, ok := d.messages[a.Ref]; ok {
		return store.ErrDuplicate
	}
	a.Headers, a.Payload = bytes.Clone(a.Headers), bytes.Clone(a.Payload)
	d.messages[a.Ref] = a
	return nil
}

// remembered is a history with one more record, which may be joined with the newest. It
// keeps the first one and, of the others, the newest, and of those in front of them the
// newest that Keep keeps.
func (m *Model) remembered(history [][]byte, record []byte) [][]byte {
	if n := len(history); n > 0 && m.Join != nil {
		if one := m.Join(history[n-1], record); len(one) > 0 && len(one) <= store.MaxAttemptBytes {
			history, record = history[:n-1], one
		}
	}
	all := append(slices.Clone(history), bytes.Clone(record))
	tooMuch := func() bool {
		n := 0
		for _, r := range all {
			n += len(binary.AppendUvarint(nil, uint64(len(r)))) + len(r)
		}
		return len(all) > store.MaxHistory || n > store.MaxHistoryBytes
	}
	for tooMuch() {
		at := 1
		if m.Keep != nil && len(all) > 3 && m.Keep(all[1]) && !m.Keep(all[2]) {
			at = 2
		}
		all = slices.Delete(all, at, at+1)
	}
	return all
}

func (d *modelData) finish(ref store.Ref) {
	delete(d.messages, ref)
	delete(d.states, ref)
	delete(d.histories, ref)
}

func (d *modelData) remove(b *store.Batch) {
	for _, c := range b.DeleteConsumers {
		delete(d.consumers, fmt.Sprintf("%d/%s", c.Queue, c.Name))
	}
	for _, e := range b.PutConfig {
		d.config[e.Key] = e.Value
	}
	for _, k := range b.DeleteConfig {
		delete(d.config, k)
	}
	for _, id := range b.DeleteQueues {
		delete(d.queues, id)
		maps.DeleteFunc(d.messages, func(r store.Ref, _ store.Message) bool { return r.Queue == id })
		maps.DeleteFunc(d.states, func(r store.Ref, _ store.State) bool { return r.Queue == id })
		maps.DeleteFunc(d.histories, func(r store.Ref, _ [][]byte) bool { return r.Queue == id })
		maps.DeleteFunc(d.consumers, func(_ string, c store.ConsumerRecord) bool { return c.Queue == id })
		maps.DeleteFunc(d.dedupes, func(_ string, x store.Dedupe) bool { return x.Queue == id })
	}
}

// Snapshot implements store.Store.
func (m *Model) Snapshot() (store.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.Snapshot{}, store.ErrClosed
	}
	d := m.data
	s := store.Snapshot{Secret: bytes.Clone(d.secret), NextQueueID: d.next, CreatedAt: d.created}
	s.Queues = slices.SortedFunc(maps.Values(d.queues), func(a, b store.QueueRecord) int { return cmp.Compare(a.ID, b.ID) })
	s.Consumers = slices.SortedFunc(maps.Values(d.consumers), func(a, b store.ConsumerRecord) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Name, b.Name))
	})
	for _, k := range slices.Sorted(maps.Keys(d.config)) {
		s.Config = append(s.Config, store.Entry{Key: k, Value: d.config[k]})
	}
	return s, nil
}

// Recover implements store.Store.
func (m *Model) Recover(v store.Visitor) (store.RecoveryStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rs store.RecoveryStats
	if m.closed {
		return rs, store.ErrClosed
	}
	d := m.data
	for _, ref := range slices.SortedFunc(maps.Keys(d.messages), compareRefs) {
		a := d.messages[ref]
		size := len(a.Headers) + len(a.Payload)
		a.Headers, a.Payload = nil, nil
		var st *store.State
		if x, ok := d.states[ref]; ok {
			st = &x
			rs.States++
		}
		rs.Messages++
		rs.Bytes += int64(size)
		if v.Message != nil {
			if err := v.Message(&a, size, st); err != nil {
				return rs, err
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(d.dedupes)) {
		if d.dedupes[k].Until <= m.now() {
			continue
		}
		rs.Dedupes++
		if v.Dedupe != nil {
			if err := v.Dedupe(d.dedupes[k]); err != nil {
				return rs, err
			}
		}
	}
	if v.Progress != nil {
		v.Progress(rs.Messages, rs.Messages)
	}
	return rs, nil
}

func compareRefs(a, b store.Ref) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Seq, b.Seq))
}

// Submit implements store.Store.
func (m *Model) Submit(b *store.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		if b.Done != nil {
			go b.Done(store.ErrClosed)
		}
		return
	}
	m.waiting = append(m.waiting, b)
	m.wake.Signal()
}

// Read implements store.Store.
func (m *Model) Read(refs []store.Ref, fn func(i int, headers, payload []byte)) error {
	return m.each(refs, func(i int, x store.Message) { fn(i, x.Headers, x.Payload) })
}

// Dead implements store.Store.
func (m *Model) Dead(refs []store.Ref, fn func(i int, d *store.Dead)) error {
	return m.each(refs, func(i int, x store.Message) { fn(i, x.Dead) })
}

// History implements store.Store.
func (m *Model) History(refs []store.Ref, fn func(i int, records [][]byte)) error {
	return m.each(refs, func(i int, x store.Message) { fn(i, m.data.histories[x.Ref]) })
}

func (m *Model) each(refs []store.Ref, fn func(i int, x store.Message)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return store.ErrClosed
	}
	var first error
	for i, ref := range refs {
		if x, ok := m.data.messages[ref]; ok {
			fn(i, x)
		} else if first == nil {
			first = store.ErrNotFound
		}
	}
	return first
}

// Stats implements store.Store.
func (m *Model) Stats() store.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := int64(len(m.data.messages))
	st := store.Stats{Messages: n, StoredMessages: n, States: int64(len(m.data.states)), Histories: int64(len(m.data.histories)), Commits: m.data.commits}
	for _, a := range m.data.messages {
		st.LiveBytes += int64(len(a.Headers) + len(a.Payload))
	}
	return st
}

// Failed implements store.Store; a model never fails.
func (m *Model) Failed() <-chan struct{} { return m.failed }

// Err implements store.Store.
func (m *Model) Err() error { return nil }

// Close implements store.Store.
func (m *Model) Close() error {
	m.mu.Lock()
	again := m.closed
	m.closed = true
	m.wake.Signal()
	m.mu.Unlock()
	<-m.finished
	if !again {
		m.mu.Lock()
		m.data.open = false
		m.data.at = m.now()
		m.mu.Unlock()
	}
	return nil
}
