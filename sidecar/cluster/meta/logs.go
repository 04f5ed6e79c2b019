package meta

import (
	"context"
	"strconv"
)

// logPrefix begins the keys of shards whose logs were made.
const logPrefix = "l."

// HasLog reports whether the log of a shard was made: if it is not there, it is lost, and
// an empty one must not take its place.
func (m *Meta) HasLog(shard int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.entries[logPrefix+strconv.Itoa(shard)].value != nil
}

// SetLog notes that the log of a shard was made. It waits for JetStream, at most until ctx
// ends.
func (m *Meta) SetLog(ctx context.Context, shard int) error {
	if m.HasLog(shard) {
		return nil
	}
	return <-m.submit(ctx, []put{{id: logPrefix + strconv.Itoa(shard), value: []byte("made")}})
}
