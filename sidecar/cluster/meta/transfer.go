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

// ErrNone is returned by Look where there is no cluster. It is ErrUnusable, too.
var ErrNone = errors.New("there is no such cluster")

func (m *Meta) none() error {
	return fmt.Errorf("%w: %w", ErrNone, m.unusable("the bucket %s of JetStream has nothing of it", m.bucket))
}

// Look joins a cluster that exists, also while data are put into it, and is for who works
// on one without nodes.
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

// Making is the command that puts data into the cluster, until Finish; then it is empty.
func (m *Meta) Making() string { return m.what.Making }

// Before is the incarnation that the cluster takes the place of, while Making; it may be
// empty.
func (m *Meta) Before() string { return m.what.Before }

// LastID returns the last id that was given to a queue, 0 if none was.
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

// Beginning is what a cluster begins with that is made of data which are there already.
type Beginning struct {
	By      string // the command that makes it
	Secret  []byte
	Queues  map[string]Place // by the name of the one that is no dead letter queue
	LastID  store.QueueID    // no queue had a higher one
	Entries []store.Entry    // of package control
}

// ShardOf is the shard of a new queue, or of its dead letter queue.
func ShardOf(queue string, shards int) int { return shardOf(wire.Source(queue), shards) }

// Begin makes a cluster that no node joins before Finish. What another Begin of the same
// command has left is made again, with the same incarnation; a cluster that is there is
// refused.
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

// say writes what the cluster is over what it was.
func (m *Meta) say(ctx context.Context, was []byte, r record) error {
	m.know(record{}) // it changes
	err := <-m.submit(ctx, []put{swap(clusterKey, was, r.encode())})
	if errors.Is(err, control.ErrChanged) {
		return m.unusable("somebody else makes or changes it at this moment")
	}
	if err != nil {
		return fmt.Errorf("cluster %s: %w", m.opt.Cluster, err)
	}
	m.know(r)
	return nil
}

// fill makes the bucket hold what a cluster begins with, and nothing else.
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

// putAll writes any number of keys, which need not be one change.
func (m *Meta) putAll(ctx context.Context, puts []put) error {
	for part := range slices.Chunk(puts, fillBatch) {
		if err := <-m.submit(ctx, part); err != nil {
			return fmt.Errorf("cluster %s: %w", m.opt.Cluster, err)
		}
	}
	return nil
}

// headroom is what a message needs beside its value.
const headroom = 4 << 10

// fillBatch is how many keys fill writes at once: values of a runtime configuration may
// be large, and a server holds a batch in memory.
const fillBatch = 100

// Renew makes the cluster another incarnation, with queues, configuration and secret of
// the one before. No node joins it before Finish. If that was begun already by the same
// command, it goes on.
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

// Finish lets nodes join what Begin or Renew has begun: their logs are there.
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
