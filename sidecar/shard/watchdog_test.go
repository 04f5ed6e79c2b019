package shard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
)

// TestAStuckQueueIsSeen holds the lock of an intake, and then of a runner, for too long.
func TestAStuckQueueIsSeen(t *testing.T) {
	bubble(t, func(r *rig) {
		r.create(nil)
		q := r.Queue("orders")
		rest := func(n int) { time.Sleep(time.Duration(n)*watchInterval + watchInterval/2) }
		for want, hold := range map[string]func(release <-chan struct{}){
			"queue orders is stuck: it takes no messages": func(release <-chan struct{}) {
				q.intake.mu.Lock()
				defer q.intake.mu.Unlock()
				<-release
			},
			"queue orders is stuck: it delivers no messages": func(release <-chan struct{}) {
				q.View(func(*queue.Queue, queue.Role, int64) { <-release })
			},
		} {
			synctest.Wait() // nothing must wait for the lock: time would stand still in the bubble
			release, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				hold(release)
			}()
			rest(stuckAfter - 2)
			require.Empty(t, r.Stuck(), "not yet")
			rest(2)
			require.Equal(t, []string{want}, r.Stuck())
			rest(10)
			require.Equal(t, []string{want}, r.Stuck())
			close(release)
			<-ended
			rest(1)
			require.Empty(t, r.Stuck())
		}

		// Many short critical sections do not make a stuck queue.
		for range 3 * stuckAfter {
			q.intake.mu.Lock()
			time.Sleep(watchInterval)
			q.intake.mu.Unlock()
		}
		require.Empty(t, r.Stuck())
	})
}
