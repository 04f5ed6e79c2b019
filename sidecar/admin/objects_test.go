package admin

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// A redrive that waits for another job of its queue holds up no other redrive, and no other
// change of its queue.
func TestAWaitingRedriveHoldsUpNothing(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for _, name := range []string{"orders", "mails"} {
			h.must(api.VerbQueueCreate, name, ``, nil)
			h.consume(name, 1)
			for range 5 {
				h.enqueue(name, "x", nil)
				h.ack(h.one(), "+TERM")
			}
		}
		var slow api.JobInfo
		h.must(api.VerbJobCreate, "delete.orders.dlq", `{"filter":{"all":true},"rate":1}`, &slow)
		done := make(chan *wire.Error, 1)
		go func() {
			_, err := h.verbs[api.VerbRedrive].Do(api.Sender{Client: "tester"}, "orders", nil)
			done <- err
		}()
		synctest.Wait()
		require.Empty(t, done, "the redrive waits")

		var reply api.RedriveReply
		h.must(api.VerbRedrive, "mails", ``, &reply)
		require.EqualValues(t, 5, reply.Redriven)
		h.must(api.VerbQueueUpdate, "orders", `{"max_depth":5}`, nil)
		require.Empty(t, done, "the redrive still waits")
		time.Sleep(time.Minute)
		require.Nil(t, <-done)
	})
}

// Concurrent changes of one object are made one after the other: no change is lost, and the
// audit log has them in the order in which they were made.
func TestChangesOfOneObjectAreOrdered(t *testing.T) {
	const n = 20
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		var wg sync.WaitGroup
		for i := 1; i <= n; i++ {
			for verb, req := range map[api.AnyVerb][2]string{
				api.VerbQueueUpdate: {"orders", fmt.Sprintf(`{"max_depth":%d}`, i)},
				api.VerbConfigSet:   {"k", fmt.Sprintf(`{"value":"%d"}`, i)},
				api.VerbCircuitOpen: {"stripe", fmt.Sprintf(`{"for_ms":%d}`, i*60_000)},
			} {
				wg.Go(func() {
					_, err := h.verbs[verb].Do(api.Sender{Client: "tester"}, req[0], []byte(req[1]))
					require.Nil(t, err)
				})
			}
		}
		wg.Wait()
		newest := func(key string) string {
			var log api.ConfigLog
			h.must(api.VerbConfigLog, "", `{"limit":1000,"prefix":"`+key+`"}`, &log)
			for i, e := range log.Entries {
				if e.Old != nil {
					require.Equal(t, *log.Entries[i+1].New, *e.Old)
				}
			}
			return *log.Entries[0].New
		}
		var q api.QueueInfo
		h.must(api.VerbQueueInspect, "orders", ``, &q)
		require.Equal(t, fmt.Sprintf(`{"max_depth":%d}`, q.Settings.MaxDepth), newest("queue:orders"))
		var entry api.ConfigEntry
		h.must(api.VerbConfigGet, "k", ``, &entry)
		require.Equal(t, entry.Value, newest("k"))
		var circuit api.CircuitInfo
		h.must(api.VerbCircuitShow, "stripe", ``, &circuit)
		var opened api.CircuitOpenRequest
		require.NoError(t, json.Unmarshal([]byte(newest("circuit:stripe")), &opened))
		require.Equal(t, wire.Timestamp(h.shards.Now()+opened.ForMs*1e6), circuit.OpenUntil)
		require.Empty(t, h.objects.held)
	})
}

// Verbs that change one object wait for each other.
func TestChangesWaitForTheirObject(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", ``, nil)
		for object, tc := range map[string]struct {
			verb       api.AnyVerb
			tail, body string
		}{
			"config:k":          {api.VerbConfigSet, "k", `{"value":"1"}`},
			"throttle:a":        {api.VerbThrottleSet, "a", `{"rate":1}`},
			"throttle:b":        {api.VerbThrottleClear, "b", ``},
			"circuit:c":         {api.VerbCircuitOpen, "c", `{}`},
			"circuit:d":         {api.VerbPause, "", `{"kind":"circuit","name":"d"}`},
			"circuit:e":         {api.VerbResume, "", `{"kind":"circuit","name":"e"}`},
			"key:orders:tenant": {api.VerbPause, "", `{"kind":"key","queue":"orders","name":"tenant"}`},
			"queue:orders":      {api.VerbQueueUpdate, "orders", `{"max_depth":1}`},
			"store":             {api.VerbStoreBackup, "", ``},
		} {
			unlock := h.objects.lock(object)
			done := false
			go func() {
				_, _ = h.verbs[tc.verb].Do(api.Sender{Client: "tester"}, tc.tail, []byte(tc.body))
				done = true
			}()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.False(t, done, object)
			unlock()
			time.Sleep(time.Minute)
			synctest.Wait()
			require.True(t, done, object)
		}
		require.Empty(t, h.objects.held)
	})
}
