package shard

import (
	"sync/atomic"

	"github.com/filaq/fila/store"
)

// dedupe remembers the dedupe ids of a queue until their window has passed.
type dedupe struct {
	ids   map[string]dedupeEntry
	queue []dedupeDue // in order of arrival, which is nearly the order of expiry
	head  int
	n     atomic.Int64 // len(ids), for readers without the lock of the intake
}

type dedupeEntry struct {
	id    store.ID
	until int64
}

type dedupeDue struct {
	key   string
	until int64
}

// find returns the message that came with a dedupe id within the window.
func (d *dedupe) find(key string, now int64) (store.ID, bool) {
	e, ok := d.ids[key]
	return e.id, ok && e.until > now
}

// add remembers a dedupe id until a time.
func (d *dedupe) add(key string, id store.ID, until int64) {
	if d.ids == nil {
		d.ids = make(map[string]dedupeEntry)
	}
	d.ids[key] = dedupeEntry{id, until}
	d.n.Store(int64(len(d.ids)))
	d.queue = append(d.queue, dedupeDue{key, until})
}

// remove forgets a dedupe id that was added and not used.
func (d *dedupe) remove(key string) {
	delete(d.ids, key)
	d.n.Store(int64(len(d.ids)))
}

// sweep forgets expired ids, a bounded number per call.
func (d *dedupe) sweep(now int64) {
	d.trim()
	for range 4 {
		if d.head == len(d.queue) {
			d.queue, d.head = d.queue[:0], 0
			return
		}
		due := d.queue[d.head]
		if due.until > now {
			return
		}
		d.queue[d.head] = dedupeDue{}
		d.head++
		if e := d.ids[due.key]; e.until <= now {
			delete(d.ids, due.key)
			d.n.Store(int64(len(d.ids)))
		}
	}
}

// trim releases the memory of forgotten ids.
func (d *dedupe) trim() {
	if d.head > 4096 && d.head > len(d.queue)/2 {
		d.queue = append(d.queue[:0], d.queue[d.head:]...)
		d.head = 0
	}
}
