package queuetest

import (
	"slices"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/sidecar/queue/history"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

// Disk is a store in memory that commits only when the test says so: the test
// sees every state between a change and its being on disk.
type Disk struct {
	*storetest.Model
	// Refuse says which batches are refused; nil: none.
	Refuse func(b *store.Batch) error
	// Turn says which of n batches that wait is written next: the oldest of its queue
	// is. nil: they are written in the order of submission.
	Turn func(n int) int

	Live    map[store.ID]int // copies of a message that are on disk: one, or none
	waiting []submitted
	ids     map[store.Ref]store.ID
	dedupes map[string]bool
}

// submitted is a batch that waits for the disk.
type submitted struct {
	rig    *Rig // whose commit it is; nil: it is no machine's
	commit *queue.Commit
	batch  *store.Batch
}

func newDisk(now func() int64) *Disk {
	model := storetest.NewModel(now)
	model.Join, model.Keep = history.Join, history.IsRedrive
	return &Disk{
		Model: model, Live: make(map[store.ID]int),
		ids: make(map[store.Ref]store.ID), dedupes: make(map[string]bool),
	}
}

// Submit submits a batch that belongs to no machine.
func (d *Disk) Submit(b *store.Batch) { d.submit(submitted{batch: b}) }

func (d *Disk) submit(s submitted) {
	s.batch.Waited = len(d.waiting) > 0 && d.waiting[0].batch.Queue != s.batch.Queue
	d.waiting = append(d.waiting, s)
}

// Waiting returns the batches that wait for the disk.
func (d *Disk) Waiting() []*store.Batch {
	all := make([]*store.Batch, len(d.waiting))
	for i := range d.waiting {
		all[i] = d.waiting[i].batch
	}
	return all
}

// write applies the next batch and reports it to nobody.
func (d *Disk) write() (submitted, error) {
	next := 0
	if d.Turn != nil {
		of := d.waiting[d.Turn(len(d.waiting))].batch.Queue
		next = slices.IndexFunc(d.waiting, func(s submitted) bool { return s.batch.Queue == of })
	}
	s := d.waiting[next]
	d.waiting = slices.Delete(d.waiting, next, next+1)
	if d.Refuse != nil {
		if err := d.Refuse(s.batch); err != nil {
			return s, err
		}
	}
	err := d.Apply(s.batch)
	if err == nil {
		d.note(s.batch)
	}
	return s, err
}

// note indexes the contents of the disk by id.
func (d *Disk) note(b *store.Batch) {
	add := func(m *store.Message) {
		d.ids[m.Ref] = m.ID
		d.Live[m.ID]++
	}
	finish := func(ref store.Ref) {
		id, ok := d.ids[ref]
		if !ok {
			return
		}
		delete(d.ids, ref)
		if d.Live[id]--; d.Live[id] == 0 {
			delete(d.Live, id)
		}
	}
	for i := range b.Add {
		add(&b.Add[i])
	}
	for i := range b.Move {
		add(&b.Move[i].To)
		finish(b.Move[i].From)
	}
	for _, ref := range b.Finish {
		finish(ref)
	}
	for i := range b.Dedupe {
		d.dedupes[b.Dedupe[i].DedupeID] = true
	}
	for _, id := range b.DeleteQueues {
		for ref := range d.ids {
			if ref.Queue == id {
				finish(ref)
			}
		}
	}
}

// Stored returns what a recovery would find: messages, their states, and how many
// dedupe ids.
func (d *Disk) Stored() (messages map[store.Ref]store.Message, states map[store.Ref]store.State, dedupes int) {
	messages, states = make(map[store.Ref]store.Message), make(map[store.Ref]store.State)
	_, err := d.Recover(store.Visitor{
		Message: func(m *store.Message, _ int, st *store.State) error {
			messages[m.Ref] = *m
			if st != nil {
				states[m.Ref] = *st
			}
			return nil
		},
		Dedupe: func(store.Dedupe) error { dedupes++; return nil },
	})
	if err != nil {
		panic(err) // a model in memory does not fail
	}
	return messages, states, dedupes
}
