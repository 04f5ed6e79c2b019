package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/filaq/fila/sidecar/cluster/ownership"
)

// presentWait is how long Present listens by default; nodes announce themselves every second.
const presentWait = 3 * time.Second

// Present returns the sorted names of the nodes that announce themselves while it listens; 0 takes the
// default. Its caller is no node.
func Present(ctx context.Context, conn *nats.Conn, name string, listen time.Duration) ([]string, error) {
	s, err := newSubjects(name, "observer")
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	heard := make(map[string]bool)
	sub, err := conn.Subscribe(s.members(), func(m *nats.Msg) {
		var n ownership.News
		if json.Unmarshal(m.Data, &n) == nil {
			mu.Lock()
			if heard[n.Node] = true; n.Left {
				delete(heard, n.Node)
			}
			mu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be gone
	flushing, cancel := context.WithTimeout(ctx, presentWait)
	defer cancel()
	if err := conn.FlushWithContext(flushing); err != nil {
		return nil, err
	}
	select {
	case <-time.After(cmp.Or(listen, presentWait)):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Sorted(maps.Keys(heard)), nil
}
