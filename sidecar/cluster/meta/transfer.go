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
	"strings"

	"github.com/filaq/fila/sidecar/control"
	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// ErrNone is returned by Look if the cluster does not exist. It wraps ErrUnusable.
var ErrNone = errors.New("there is no such cluster")

func (m *Meta) none() error {
	return fmt.Errorf("%w: %w", ErrNone, m.unusable("the bucket %s of JetStream has nothing of it", m.bucket))
}

// Look opens an existing cluster, even one that is being filled, for commands that run without
// nodes.
func Look(ctx context.Context, o Options) (*Meta, error) {
	m, err := open(ctx, o, true)
	if err != nil {
		return nil, err
	}
	err = m.none()
	var r record
	if text := m.have(clusterKey).value; text != nil {
		r, err = m.understand(text)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	m.know(r)
	return m, nil
}

func (m *Meta) have(id string) entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.entries[id]
}

// Making returns the command that is filling the cluster, empty after Finish.
func (m *Meta) Making() string { return m.what.Making }

// Before returns the incarnation that is being replaced, while Making. It may be empty.
func (m *Meta) Before() string { return m.what.Before }

// LastID returns the last queue id that was used, 0 if there is none.
func (m *Meta) LastID() (store.QueueID, error) {
	text := m.have(idKey).value
	if text == nil {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("bucket %s: the last id of a queue cannot be read: %w", m.bucket, err)
	}
	return store.QueueID(n), nil
}

// Beginning is the initial content of a cluster that is made of existing data.
type Beginning struct {
	By      string // the command that makes it
	Secret  []byte
	Queues  map[string]Place // by name, without dead letter queues
	LastID  store.QueueID    // at least the highest id of a queue
	Entries []store.Entry    // of package control
}

// ShardOf returns the shard of a new queue or of its dead letter queue.
func ShardOf(queue string, shards int) int { return shardOf(wire.Source(queue), shards) }

// Begin makes a cluster that no node can join before Finish. It continues an interrupted Begin of
// the same command with the same incarnation, and refuses any other existing cluster.
func Begin(ctx context.Context, o Options, b Beginning) (*Meta, error) {
	m, err := open(ctx, o, false)
	if err != nil {
		return nil, err
	}
	if err := m.begin(ctx, b); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Meta) begin(ctx context.Context, b Beginning) error {
	r := newRecord(m.opt.Shards)
	was := m.have(clusterKey).value
	if was != nil {
		there, err := m.understand(was)
		switch {
		case err != nil:
			return err
		case there.Making == "":
			return m.unusable("it is there already: only a new one can be made of other data; give this one another cluster.name")
		case there.Making != b.By || there.Before != "":
			return m.unusable("`%s` was interrupted; call that again", there.Making)
		}
		r.Incarnation = there.Incarnation
	}
	r.Making, r.Secret = b.By, b.Secret
	if err := m.say(ctx, was, r); err != nil {
		return err
	}
	return m.fill(ctx, b)
}

// say replaces the record of the cluster.
func (m *Meta) say(ctx context.Context, was []byte, r record) error {
	m.know(record{}) // the record is about to change
	err := <-m.submit(ctx, []put{swap(clusterKey, was, r.encode())})
	if errors.Is(err, control.ErrChanged) {
		return m.unusable("another process creates or changes it at this moment")
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", m.opt.Cluster, err)
	}
	m.know(r)
	return nil
}

// fill makes the bucket hold the content of a beginning and nothing else.
func (m *Meta) fill(ctx context.Context, b Beginning) error {
	want := map[string][]byte{idKey: strconv.AppendUint(nil, uint64(b.LastID), 10)}
	for name, p := range b.Queues {
		text, err := json.Marshal(p)
		if err != nil {
			return err
		}
		want[idOf(queuePrefix, name)] = text
	}
	for _, e := range b.Entries {
		if most := m.opt.Conn.MaxPayload() - headroom; int64(len(e.Value)) > most {
			return m.unusable("the value of the key %q has %d bytes, and this NATS takes %d: raise max_payload", e.Key, len(e.Value), most)
		}
		want[idOf(controlPrefix, e.Key)] = []byte(e.Value)
	}
	var puts []put
	m.mu.Lock()
	for id, e := range m.mu.entries {
		if _, ok := want[id]; !ok && id != clusterKey && e.value != nil {
			puts = append(puts, put{id: id})
		}
	}
	for id, value := range want {
		if have := m.mu.entries[id].value; have == nil || !bytes.Equal(have, value) {
			puts = append(puts, put{id: id, value: value})
		}
	}
	m.mu.Unlock()
	slices.SortFunc(puts, func(a, b put) int { return strings.Compare(a.id, b.id) })
	return m.putAll(ctx, puts)
}

// putAll writes any number of keys, in several changes.
func (m *Meta) putAll(ctx context.Context, puts []put) error {
	for part := range slices.Chunk(puts, fillBatch) {
		if err := <-m.submit(ctx, part); err != nil {
			return fmt.Errorf("cluster %s: %w", m.opt.Cluster, err)
		}
	}
	return nil
}

// headroom is the size of a message without its value.
const headroom = 4 << 10

// fillBatch is how many keys fill writes at once. Values may be large, and the server holds a
// batch in memory.
const fillBatch = 100

// Renew makes the cluster another incarnation with the same queues, configuration and secret. No
// node can join it before Finish. It continues an interrupted Renew of the same command.
func (m *Meta) Renew(ctx context.Context, by string) error {
	r := m.what
	switch {
	case r.Making == by && r.Before != "":
		return nil
	case r.Making != "":
		return m.unusable("`%s` was interrupted; call that again", r.Making)
	}
	r.Making, r.Before, r.Incarnation = by, r.Incarnation, rand.Text()
	return m.say(ctx, m.have(clusterKey).value, r)
}

// Finish lets nodes join a cluster of Begin or Renew, whose logs exist by now.
func (m *Meta) Finish(ctx context.Context) error {
	var puts []put
	for s := range m.Shards() {
		puts = append(puts, put{id: logPrefix + strconv.Itoa(s), value: []byte("made")})
	}
	if err := m.putAll(ctx, puts); err != nil {
		return err
	}
	r := m.what
	r.Making, r.Before = "", ""
	return m.say(ctx, m.have(clusterKey).value, r)
}
