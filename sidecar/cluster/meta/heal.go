package meta

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/control"
)

// A bucket goes back to an earlier state when most of its servers come back with older disks. It
// has forgotten its newest entries then, and gives their revisions out again: a node that compares
// revisions would not see new entries. So each node checks a sample of what it knows against the
// leader of the bucket. If the leader has forgotten an entry, the node compares all entries with
// it: of two values of a key the younger one stays, and a forgotten one is written again. All nodes
// do that at the same time; each write replaces the revision that was read, so that one of them
// wins.

const (
	// checkEvery is how often a node checks the sample. A finding counts if the next check
	// repeats it, since a leader that has just been elected may not have applied all of its log.
	checkEvery = 5 * time.Second
	// sampleSize is the number of entries of the sample, the newest ones. Entries that were
	// replaced since prove nothing.
	sampleSize = 16
)

// known is an entry with its key.
type known struct {
	id string
	entry
}

// checkSample looks for the sample at the leader. It returns errAgain when it has healed the
// bucket: then everything has to be read again. Only the goroutine of follow calls it.
func (m *Meta) checkSample() error {
	gone, err := m.hasForgotten()
	switch {
	case err != nil:
		return err
	case !gone:
		m.doubt = time.Time{}
		m.takeSample()
		return nil
	case m.doubt.IsZero():
		m.doubt = time.Now()
		return nil
	case time.Since(m.doubt) < m.checkEvery*4/5: // two checks in a row may be closer
		return nil
	}
	if err := m.heal(m.ctx); err != nil {
		return err
	}
	m.doubt = time.Time{}
	m.takeSample()
	return errAgain
}

// takeSample sets the sample: the newest entries whose time is known, the newest one first.
func (m *Meta) takeSample() {
	m.mu.Lock()
	defer m.mu.Unlock()
	sample := make([]known, 0, sampleSize+1)
	for id, e := range m.mu.entries {
		if e.local {
			continue
		}
		i, _ := slices.BinarySearchFunc(sample, e.rev, func(k known, rev uint64) int { return cmp.Compare(rev, k.rev) })
		sample = slices.Insert(sample, i, known{id, e})
		sample = sample[:min(len(sample), sampleSize)]
	}
	m.mu.sample = sample
}

// hasForgotten reports whether the leader has forgotten an entry of the sample. The first entry
// that it has ends the search, since it has everything before that, too.
func (m *Meta) hasForgotten() (bool, error) {
	ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
	defer cancel()
	m.mu.Lock()
	sample := m.mu.sample
	m.mu.Unlock()
	for _, k := range sample {
		at, err := m.leader.GetMsg(m.streamName(), k.rev, nats.Context(ctx))
		if err == nil {
			return at.Subject != m.subject(k.id) || !at.Time.Equal(k.at), nil
		}
		if !errors.Is(err, nats.ErrMsgNotFound) {
			return false, err
		}
		last, err := m.last(ctx, k.id)
		switch {
		case err != nil:
			return false, err
		case last.rev > k.rev, last.rev == 0 && k.value == nil: // it was replaced, or is a marker that has expired
		default:
			return true, nil
		}
	}
	return false, nil
}

// last returns the entry of a key at the leader, the zero entry if there is none.
func (m *Meta) last(ctx context.Context, id string) (entry, error) {
	msg, err := m.leader.GetLastMsg(m.streamName(), m.subject(id), nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return entry{}, nil
	}
	if err != nil {
		return entry{}, err
	}
	e := entry{rev: msg.Sequence, at: msg.Time}
	if msg.Header.Get("KV-Operation") == "" {
		e.value = append([]byte{}, msg.Data...)
	}
	return e, nil
}

// heal compares all entries with the leader. The record of the cluster comes first: where another
// cluster was made in this bucket, nothing is written.
func (m *Meta) heal(ctx context.Context) error {
	m.mu.Lock()
	all := make([]known, 0, len(m.mu.entries))
	for id, e := range m.mu.entries {
		all = append(all, known{id, e})
	}
	m.mu.Unlock()
	slices.SortFunc(all, func(a, b known) int {
		if (a.id == clusterKey) != (b.id == clusterKey) {
			return cmp.Compare(b.id, a.id)
		}
		return cmp.Compare(a.rev, b.rev)
	})
	written, replaced := 0, 0
	for _, k := range all {
		now, wrote, err := m.reconcile(ctx, k)
		if err != nil {
			return fmt.Errorf("entries that it has lost are not all written again: %w", err)
		}
		switch {
		case wrote:
			written++
		case !bytes.Equal(now.value, k.value):
			replaced++
		}
		m.replace(k, now)
		if err := m.Err(); err != nil {
			return err
		}
	}
	m.opt.Log.Warn("the bucket of the cluster has lost entries; fila has written those again that had no newer ones",
		"bucket", m.bucket, "written", written, "newer", replaced)
	return nil
}

// reconcile writes an entry again if the leader has an older one, or none, and returns what the
// leader has then.
func (m *Meta) reconcile(ctx context.Context, k known) (now entry, wrote bool, err error) {
	for {
		last, err := m.last(ctx, k.id)
		if err != nil || !k.replaces(last) {
			return last, false, err
		}
		msg := m.message(put{id: k.id, value: k.value})
		expect(msg, last.rev)
		rev, err := m.request(ctx, []*nats.Msg{msg})
		if errors.Is(err, control.ErrChanged) {
			continue // another node was faster
		}
		return entry{value: k.value, rev: rev, at: time.Now(), local: true}, err == nil, err
	}
}

// replaces reports whether an entry has to be written over the one that the leader has.
func (k known) replaces(last entry) bool {
	switch {
	case bytes.Equal(k.value, last.value) && (k.value == nil) == (last.value == nil):
		return false
	case k.id == idKey && last.value != nil: // ids must not be given out again
		ours, err := strconv.ParseUint(string(k.value), 10, 32)
		theirs, terr := strconv.ParseUint(string(last.value), 10, 32)
		return err == nil && terr == nil && ours > theirs
	}
	return k.at.After(last.at)
}

// replace sets what the leader has of an entry, unless a newer one has come meanwhile.
func (m *Meta) replace(was known, now entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.entries[was.id].rev == was.rev {
		m.put(was.id, now)
	}
}
