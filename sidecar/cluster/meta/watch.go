package meta

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/filaq/fila/store"
)

// Keys of the bucket, and prefixes of the keys of queues and of control.
const (
	clusterKey    = "cluster"
	idKey         = "id"
	queuePrefix   = "q."
	controlPrefix = "c."
)

// idOf returns the key for a name, which may contain any bytes.
func idOf(prefix, name string) string {
	return prefix + base64.RawURLEncoding.EncodeToString([]byte(name))
}

// nameOf is the inverse of idOf.
func nameOf(prefix, id string) (string, bool) {
	text, ok := strings.CutPrefix(id, prefix)
	if !ok {
		return "", false
	}
	name, err := base64.RawURLEncoding.DecodeString(text)
	return string(name), err == nil
}

func (m *Meta) subject(id string) string { return "$KV." + m.bucket + "." + id }

// Watch calls fn, never concurrently, with keys whose values may have changed since Entries;
// Newest returns them. It may be called once.
func (m *Meta) Watch(fn func(keys []string)) {
	m.mu.Lock()
	m.mu.told = fn
	m.mu.Unlock()
	poke(m.wake)
}

// Entries returns the entries of control by key.
func (m *Meta) Entries() []store.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []store.Entry
	for id, e := range m.mu.entries {
		if key, ok := nameOf(controlPrefix, id); ok && e.value != nil {
			all = append(all, store.Entry{Key: key, Value: string(e.value)})
		}
	}
	slices.SortFunc(all, func(a, b store.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return all
}

// Newest implements control.SharedKV.
func (m *Meta) Newest(key string) (value string, ok, settled bool) {
	id := idOf(controlPrefix, key)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.mu.entries[id]
	return string(e.value), e.value != nil, m.mu.pending[id] == 0
}

// Refresh implements control.SharedKV. It reads from the leader, since a replica may be behind.
func (m *Meta) Refresh(keys []string) error {
	ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
	defer cancel()
	for _, key := range keys {
		id := idOf(controlPrefix, key)
		last, err := m.last(ctx, id)
		if err != nil {
			return fmt.Errorf("reading %q: %w", key, err)
		}
		m.mu.Lock()
		if m.mu.entries[id].rev < last.rev {
			m.put(id, last)
		}
		m.mu.Unlock()
	}
	return nil
}

// tell calls the function of Watch.
func (m *Meta) tell() {
	for {
		select {
		case <-m.wake:
		case <-m.ctx.Done():
			return
		}
		m.mu.Lock()
		fn := m.mu.told
		var keys []string
		if fn != nil {
			for key := range m.mu.news {
				keys = append(keys, key)
			}
			clear(m.mu.news)
		}
		m.mu.Unlock()
		if len(keys) > 0 {
			slices.Sort(keys)
			fn(keys)
		}
	}
}

// errAgain ends a session after which everything has to be read again.
var errAgain = errors.New("everything has to be read again")

// follow reads the bucket, again after each disconnection.
func (m *Meta) follow() {
	for m.ctx.Err() == nil {
		err := m.session()
		if m.ctx.Err() != nil || errors.Is(err, errAgain) {
			continue
		}
		m.opt.Log.Warn("the bucket of the cluster cannot be followed; retrying", "bucket", m.bucket, "error", err)
		select {
		case <-time.After(askAgain):
		case <-m.ctx.Done():
		}
	}
}

func (m *Meta) session() error {
	back := m.opt.Conn.StatusChanged(nats.CONNECTED)
	defer m.opt.Conn.RemoveStatusListener(back)
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	if err := m.checkSample(); err != nil {
		return err
	}
	opening, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	kv, err := m.js.KeyValue(opening, m.bucket)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err := w.Stop(); err != nil {
			m.opt.Log.Debug("end of a watch", "bucket", m.bucket, "error", err)
		}
		for range w.Updates() { // so that its sender is not stuck
		}
	}()
	check := time.NewTicker(m.checkEvery)
	defer check.Stop()
	var highest uint64
	seen := make(map[string]bool) // nil once everything has been read
	for {
		select {
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("the watch has ended")
			case e == nil:
				m.forget(seen, highest)
				seen = nil
			default:
				if seen != nil {
					seen[e.Key()] = true
					highest = max(highest, e.Revision())
				}
				m.learn(e)
			}
		case <-check.C:
			switch err := m.checkSample(); {
			case errors.Is(err, errAgain):
				return err
			case err != nil:
				m.opt.Log.Debug("the bucket of the cluster is not checked", "bucket", m.bucket, "error", err)
			}
		case <-back:
			return errAgain
		case <-m.ctx.Done():
			return m.ctx.Err()
		}
	}
}

// learn applies an update of the watch.
func (m *Meta) learn(e jetstream.KeyValueEntry) {
	next := entry{rev: e.Revision(), at: e.Created()}
	if e.Operation() == jetstream.KeyValuePut {
		next.value = append([]byte{}, e.Value()...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch have := m.mu.entries[e.Key()]; {
	case have.rev < next.rev:
		m.put(e.Key(), next)
	case have.rev == next.rev && have.local && m.is(e.Key(), next.value):
		m.mu.entries[e.Key()] = next // an own write, with the time of the server
	}
}

// put sets an entry. Its caller holds mu.
func (m *Meta) put(id string, e entry) {
	m.mu.entries[id] = e
	m.learnMemory(id, e.value)
	m.noteNews(id)
	close(m.mu.moved)
	m.mu.moved = make(chan struct{})
	if id != clusterKey || m.what.Incarnation == "" {
		return
	}
	var r record
	if err := json.Unmarshal(e.value, &r); err != nil || r.Incarnation != m.what.Incarnation {
		m.fail(m.unusable("it was deleted or made anew while this node was in it"))
	}
}

// noteNews marks a key of control as changed. Its caller holds mu.
func (m *Meta) noteNews(id string) {
	if key, ok := nameOf(controlPrefix, id); ok {
		m.mu.news[key] = true
		poke(m.wake)
	}
}

// forget deletes entries that a complete read has not found: their markers have expired. Entries
// newer than the highest revision read are kept, since the replica may be behind, and all are kept
// while the bucket may have lost entries.
func (m *Meta) forget(seen map[string]bool, highest uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, e := range m.mu.entries {
		if !seen[id] && e.rev <= highest && m.doubt.IsZero() {
			delete(m.mu.entries, id)
			m.learnMemory(id, nil)
			m.noteNews(id)
		}
	}
	select {
	case <-m.first:
	default:
		clear(m.mu.news) // Entries has all of them
		close(m.first)
	}
}

// poke wakes the receiver of a channel with a buffer of one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
