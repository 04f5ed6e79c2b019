package meta

import (
	"context"
	"maps"
	"strings"
)

// memoryPrefix begins the keys that nodes keep together, see cluster.Memory. The incarnation of
// the cluster follows: what nodes knew of the logs of another one says nothing.
const memoryPrefix = "m."

func (m *Meta) memoryKey(key string) string { return memoryPrefix + m.what.Incarnation + "." + key }

// Keep implements cluster.Memory. The key consists of letters, digits, "-", "_" and ".".
func (m *Meta) Keep(ctx context.Context, key string, value []byte) error {
	return <-m.submit(ctx, []put{{id: m.memoryKey(key), value: value}})
}

// Kept implements cluster.Memory.
func (m *Meta) Kept(prefix string) map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.mu.memory)
	maps.DeleteFunc(all, func(key string, _ []byte) bool { return !strings.HasPrefix(key, m.memoryKey(prefix)) })
	kept := make(map[string][]byte, len(all))
	for key, value := range all {
		kept[strings.TrimPrefix(key, m.memoryKey(""))] = value
	}
	return kept
}

// learnMemory keeps the values of Keep at hand, since the bucket may have many keys. Its caller
// holds mu.
func (m *Meta) learnMemory(id string, value []byte) {
	switch {
	case !strings.HasPrefix(id, memoryPrefix):
	case value == nil:
		delete(m.mu.memory, id)
	default:
		m.mu.memory[id] = value
	}
}
