package meta

import (
	"context"
	"strconv"
)

// logPrefix begins the keys of logs that have been created.
const logPrefix = "l."

// HasLog reports whether the log of a shard has been created. If the log does not exist then, it
// is lost, and an empty one must not replace it.
func (m *Meta) HasLog(shard int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.entries[logPrefix+strconv.Itoa(shard)].value != nil
}

// SetLog records that the log of a shard has been created. It waits for JetStream until ctx ends.
func (m *Meta) SetLog(ctx context.Context, shard int) error {
	if m.HasLog(shard) {
		return nil
	}
	return <-m.submit(ctx, []put{{id: logPrefix + strconv.Itoa(shard), value: []byte("made")}})
}
