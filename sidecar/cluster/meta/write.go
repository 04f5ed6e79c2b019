package meta

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/store"
)

const (
	// maxBatch is the maximum number of keys of an atomic batch, a limit of the server.
	maxBatch = 1000
	// writeTimeout bounds the attempts of a write. An election takes less.
	writeTimeout = 12 * time.Second
	// writeAgain is the wait after an attempt without an answer.
	writeAgain = 100 * time.Millisecond
)

// write is an element of the writer's queue.
type write struct {
	ctx  context.Context
	puts []put
	done chan<- error
}

// put is a change of one key.
type put struct {
	id    string
	value []byte // nil: delete

	looks bool   // compare and swap: replace was only
	was   []byte // nil: no value
}

// errNoAnswer is the outcome of a write that may or may not have been done.
var errNoAnswer = errors.New("JetStream has not answered; it may have been written")

// Write implements control.KV. Keys in Was have to be written, too. A write of more than maxBatch
// keys that fails may have been done in part.
func (m *Meta) Write(b control.Batch) <-chan error {
	if len(b.Put)+len(b.Delete) == 0 {
		done := make(chan error, 1)
		done <- nil
		return done
	}
	was := make(map[string]*string, len(b.Was))
	for _, w := range b.Was {
		was[w.Key] = w.Value
	}
	puts := make([]put, 0, len(b.Put)+len(b.Delete))
	add := func(key string, value []byte) {
		p := put{id: idOf(controlPrefix, key), value: value}
		if text, ok := was[key]; ok {
			p.looks = true
			if text != nil {
				p.was = append([]byte{}, *text...)
			}
		}
		puts = append(puts, p)
	}
	for _, e := range b.Put {
		add(e.Key, append([]byte{}, e.Value...))
	}
	for _, key := range b.Delete {
		add(key, nil)
	}
	return m.submit(m.ctx, puts)
}

// swap returns the replacement of an old value.
func swap(id string, was, value []byte) put {
	return put{id: id, value: value, looks: true, was: was}
}

// submit queues a write.
func (m *Meta) submit(ctx context.Context, puts []put) <-chan error {
	done := make(chan error, 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		done <- store.ErrClosed
		return done
	}
	for _, p := range puts {
		m.mu.pending[p.id]++
	}
	m.mu.writes = append(m.mu.writes, write{ctx, puts, done})
	poke(m.work)
	return done
}

// write performs the writes in order until Close.
func (m *Meta) write() {
	defer close(m.writer)
	for {
		m.mu.Lock()
		if len(m.mu.writes) == 0 {
			closed := m.mu.closed
			m.mu.Unlock()
			if closed {
				return
			}
			<-m.work
			continue
		}
		w := m.mu.writes[0]
		m.mu.writes = m.mu.writes[1:]
		m.mu.Unlock()
		err := m.carryOut(w)
		m.mu.Lock()
		for _, p := range w.puts {
			if m.mu.pending[p.id]--; m.mu.pending[p.id] == 0 {
				delete(m.mu.pending, p.id)
			}
			m.noteNews(p.id)
		}
		m.mu.Unlock()
		w.done <- err
	}
}

func (m *Meta) carryOut(w write) error {
	ctx, cancel := context.WithTimeout(w.ctx, writeTimeout)
	defer cancel()
	for part := range slices.Chunk(w.puts, maxBatch) {
		if err := m.publish(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// publish performs one batch, and retries it if there is no answer.
func (m *Meta) publish(ctx context.Context, puts []put) error {
	lost, old := false, false
	for {
		msgs := m.messages(puts, old)
		switch {
		case msgs == nil && lost && m.holds(puts):
			return nil // this write is there
		case msgs == nil && lost:
			return errNoAnswer // it may have been done and overwritten
		case msgs == nil:
			return control.ErrChanged
		}
		last, err := m.request(ctx, msgs)
		switch changed := errors.Is(err, control.ErrChanged); {
		case err == nil:
			m.own(puts, last)
			return nil
		case changed && !lost && !old && m.hasOldMarks(puts):
			old = true
			continue
		case changed && !lost:
			return err
		case !changed:
			lost = true
		}
		m.opt.Log.Debug("a write to the bucket of the cluster is tried again", "bucket", m.bucket, "error", err)
		select {
		case <-time.After(writeAgain):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoAnswer, err)
		}
	}
}

// holds reports whether the known values equal the puts.
func (m *Meta) holds(puts []put) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(puts, func(p put) bool { return !m.is(p.id, p.value) })
}

// is reports whether value, nil for none, is the known value of a key. Its caller holds mu.
func (m *Meta) is(id string, value []byte) bool {
	have := m.mu.entries[id].value
	return (have == nil) == (value == nil) && bytes.Equal(have, value)
}

// messages returns the messages of a batch, or nil if an old value does not match. With old,
// markers that the server may have removed are treated as removed.
func (m *Meta) messages(puts []put, old bool) []*nats.Msg {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := rand.Text()
	msgs := make([]*nats.Msg, len(puts))
	for i, p := range puts {
		msg := m.message(p)
		if p.looks && !m.is(p.id, p.was) {
			return nil
		}
		if p.looks {
			e := m.mu.entries[p.id]
			rev := e.rev
			if old && oldMark(e) {
				rev = 0
			}
			expect(msg, rev)
		}
		if len(puts) > 1 {
			msg.Header.Set("Nats-Batch-Id", batch)
			msg.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		}
		msgs[i] = msg
	}
	if len(puts) > 1 {
		msgs[len(msgs)-1].Header.Set("Nats-Batch-Commit", "1")
	}
	return msgs
}

// message returns the message of a put.
func (m *Meta) message(p put) *nats.Msg {
	msg := nats.NewMsg(m.subject(p.id))
	msg.Data = p.value
	if p.value == nil {
		msg.Header.Set("KV-Operation", "DEL")
		msg.Header.Set("Nats-TTL", markTTL.String())
	}
	return msg
}

// expect lets the server refuse a message unless the entry of its key has a revision; 0 is none.
func expect(msg *nats.Msg, rev uint64) {
	msg.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatUint(rev, 10))
}

// oldMark reports whether the server may have removed a marker; clocks may differ.
func oldMark(e entry) bool { return e.value == nil && e.rev != 0 && time.Since(e.at) > markTTL/2 }

func (m *Meta) hasOldMarks(puts []put) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(puts, func(p put) bool { return p.looks && oldMark(m.mu.entries[p.id]) })
}

// Error codes of JetStream for a failed comparison.
const (
	codeWrongLast  = 10071
	codeInProgress = 10164
)

// request sends the messages of a batch and returns the revision of the last one.
func (m *Meta) request(ctx context.Context, msgs []*nats.Msg) (last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for _, msg := range msgs[:len(msgs)-1] {
		if err := m.opt.Conn.PublishMsg(msg); err != nil {
			return 0, err
		}
	}
	reply, err := m.opt.Conn.RequestMsgWithContext(ctx, msgs[len(msgs)-1])
	if err != nil {
		return 0, err
	}
	var ack struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Seq   uint64 `json:"seq"`
		Count int    `json:"count"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("the answer of JetStream cannot be read: %w", err)
	}
	switch {
	case ack.Error != nil && (ack.Error.Code == codeWrongLast || ack.Error.Code == codeInProgress):
		return 0, control.ErrChanged
	case ack.Error != nil:
		return 0, fmt.Errorf("JetStream: %s (%d)", ack.Error.Description, ack.Error.Code)
	case len(msgs) > 1 && ack.Count != len(msgs):
		return 0, fmt.Errorf("JetStream has written %d of %d keys", ack.Count, len(msgs))
	}
	return ack.Seq, nil
}

// own applies a batch of this node; its revisions are consecutive.
func (m *Meta) own(puts []put, last uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, p := range puts {
		rev := last - uint64(len(puts)-1-i)
		if m.mu.entries[p.id].rev < rev {
			m.put(p.id, entry{value: p.value, rev: rev, at: time.Now(), local: true})
		}
	}
}

// again waits after a failed swap until an entry changes. It returns the error if none does.
func (m *Meta) again(ctx context.Context, err error, moved <-chan struct{}) error {
	if !errors.Is(err, control.ErrChanged) && !errors.Is(err, errNoAnswer) {
		return err
	}
	select {
	case <-moved:
	case <-time.After(askAgain):
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return nil
}
