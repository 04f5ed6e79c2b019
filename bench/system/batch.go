package system

import (
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// Headers of an atomic batch of JetStream.
const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"

	commitBatch   = "1"
	commitWithout = "eob" // the message that commits is not part of the batch
)

// batchesInFlight is into how many batches a producer divides its slots.
const batchesInFlight = 4

// MaxBatch is the number of messages that JetStream permits in an atomic batch, and fila in any.
const MaxBatch = 1000

// batchSize returns the number of messages of a batch. slots is how many messages may be under way.
func (t *overNATS) batchSize(slots int) int {
	size := min(max(slots/batchesInFlight, 1), MaxBatch)
	if t.batch > 0 {
		size = min(size, t.batch)
	}
	return size
}

// batches is the connection of a producer, to which one reply confirms all messages of a batch.
type batches struct {
	replies
	size int   // messages of a batch
	open []int // slots of the batch that is not sent yet

	mu struct {
		sync.Mutex
		sent [][]int // slots by the first one, which is also the number of the reply
	}
}

func (t *overNATS) newBatches(ctx context.Context, slots int, answered func(slot int, refused error)) (*batches, error) {
	b := &batches{size: t.batchSize(slots)}
	b.mu.sent = make([][]int, slots)
	var err error
	b.replies, err = t.newReplies(ctx, slots, func(number int, refused error) {
		b.mu.Lock()
		batch := b.mu.sent[number]
		b.mu.sent[number] = nil
		b.mu.Unlock()
		for _, slot := range batch {
			answered(slot, refused)
		}
	})
	return b, err
}

// endBatch returns the subject of the reply to the open batch, which the caller sends.
func (b *batches) endBatch() (reply string) {
	number := b.open[0]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.sent[number], b.open = b.open, nil
	return b.subjects[number]
}

// batcher publishes messages in atomic batches. The reply to the last message of a batch
// confirms all of it.
type batcher struct {
	*batches
	id     string // of batches, without their number
	m      nats.Msg
	places []string // values of the header for the place in a batch
	n      int      // batches so far
}

func (t *overNATS) newBatcher(ctx context.Context, slots int, answered func(slot int, refused error)) (Producer, error) {
	all, err := t.newBatches(ctx, slots, answered)
	b := &batcher{batches: all, id: rand.Text() + "-", m: nats.Msg{Subject: t.Subject(), Header: nats.Header{
		headerBatchID: {""}, headerBatchSeq: {""},
	}}}
	for n := range all.size + 1 {
		b.places = append(b.places, strconv.Itoa(n+1))
	}
	return b, err
}

func (b *batcher) Publish(slot int, m *Message) error {
	maps.Copy(b.m.Header, m.Header)
	b.open = append(b.open, slot)
	commit := ""
	if len(b.open) == b.size {
		commit = commitBatch
	}
	return b.send(len(b.open), m.Data, commit)
}

func (b *batcher) Flush() error {
	if len(b.open) == 0 {
		return nil
	}
	return b.send(len(b.open)+1, nil, commitWithout)
}

// send sends a message of the open batch, and commits the batch with a commit header.
func (b *batcher) send(place int, data []byte, commit string) error {
	if place == 1 {
		b.n++
		b.m.Header[headerBatchID][0] = b.id + strconv.Itoa(b.n)
	}
	b.m.Header[headerBatchSeq][0] = b.places[place-1]
	b.m.Data, b.m.Reply = data, ""
	delete(b.m.Header, headerBatchCommit)
	if commit != "" {
		b.m.Header[headerBatchCommit] = []string{commit}
		b.m.Reply = b.endBatch()
	}
	return b.nc.PublishMsg(&b.m)
}
