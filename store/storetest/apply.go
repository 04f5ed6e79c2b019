package storetest

import "github.com/filaq/fila/store"

// NewModel returns an empty model for tests that commit by themselves: it has no
// goroutine, batches go to Apply instead of Submit, and it is not closed.
func NewModel(now func() int64) *Model {
	return &Model{now: now, data: newModelData(now())}
}

// Apply commits a batch and returns its outcome. Done is not called.
func (m *Model) Apply(b *store.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data.commits++
	return m.apply(b)
}
