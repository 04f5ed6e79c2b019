package admin

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/queue"
	"github.com/filaq/fila/wire/api"
)

// The owner of a queue gets a request with op and queue in its body, whatever its version: the
// same job as by the subject.
func TestAJobBySubjectIsTheSameInItsBody(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		for tail, body := range map[string]string{
			"redrive.orders":           `{"filter":{"all":true},"order":"death","limit":5}`,
			"delay.orders.eu":          `{"filter":{"keys":["a"],"enqueued_after":"1h"},"run_at":"10m","rate":7,"reason":"why"}`,
			"reprioritise.orders":      `{"filter":{"state":"pending"},"key":"k","weight":2.5,"if_count":0,"dry_run":true}`,
			"edit.orders.dlq":          `{"filter":{"ids":["` + nowhere + `"]},"payload":"","set_headers":{"a":""},"remove_headers":["b"]}`,
			"move.orders.dlq":          `{"filter":{"header":{"a":""}},"to":"other"}`,
			"delete.orders.cancel.dlq": `{"queue":"orders.cancel.dlq","op":"delete","filter":{"reason":"term"}}`,
		} {
			bySubject, err := api.VerbJobCreate.Parse(tail, []byte(body))
			require.Nil(t, err, tail)
			require.Nil(t, bySubject.Resolve(time.Now()), tail)
			rewritten, err := h.jobOfSubject(tail, []byte(body))
			require.Nil(t, err, tail)
			again, err := api.VerbJobCreate.Parse("", rewritten)
			require.Nil(t, err, "%s", rewritten)
			require.Nil(t, again.Resolve(time.Now().Add(time.Minute)), "%s", rewritten)
			require.Equal(t, bySubject, again)
		}
	})
}

// TestTheInboxOfAFetchIsAFilter: a filter by the consumer that fila shows, the inbox of a fetch,
// selects its messages in a peek and in a job.
func TestTheInboxOfAFetchIsAFilter(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		h.must(api.VerbQueueCreate, "orders", `{}`, nil)
		h.enqueue("orders", "1", nil)
		id := h.enqueue("orders", "2", nil)
		h.consume("orders", 1)
		const inbox = "_INBOX.worker-1.d5Qr0z$V~x{!}.7"
		require.True(t, h.shards.Queue("orders").Tell(queue.Fetch{Inbox: inbox, Owner: "worker-1", Batch: 1, Expires: int64(time.Hour)}))
		time.Sleep(time.Second)
		var shown api.MessageInfo
		h.must(api.VerbMessageShow, "", about(id), &shown)
		require.Equal(t, inbox, shown.Consumer)
		var p api.PeekReply
		h.must(api.VerbPeek, "orders", `{"filter":{"consumer":"`+shown.Consumer+`"}}`, &p)
		require.Len(t, p.Messages, 1)
		require.Equal(t, id, p.Messages[0].ID)
		require.Empty(t, h.peek("orders", `{"filter":{"consumer":"_INBOX.w.2"}}`).Messages)
		var job api.JobInfo
		h.must(api.VerbJobCreate, "cancel.orders", `{"filter":{"consumer":"`+p.Messages[0].Consumer+`"},"dry_run":true}`, &job)
		require.EqualValues(t, []int64{1, 1}, []int64{job.Matched, job.Left[api.LeftInFlight]})
	})
}
