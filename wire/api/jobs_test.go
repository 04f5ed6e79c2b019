package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// parseJobCreate parses a request whose subject has no tail, and resolves its times.
func parseJobCreate(body string, now time.Time) (JobCreateRequest, *wire.Error) {
	r, err := VerbJobCreate.Parse("", []byte(body))
	if err == nil {
		err = r.Resolve(now)
	}
	return r, err
}

func TestJobRequests(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, err := parseJobCreate(`{"queue":"orders","op":"delay","filter":{"keys":["a"],"enqueued_after":"1h"},"run_at":"90m"}`, now)
	require.Nil(t, err)
	require.Equal(t, OrderArrival, r.Order)
	require.Equal(t, "2026-01-02T04:34:05Z", r.RunAt)
	require.Equal(t, "2026-01-02T02:04:05Z", r.Filter.EnqueuedAfter)
	_, err = parseJobCreate(`{"queue":"orders.dlq","op":"edit","filter":{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"]},"payload":"eA=="}`, now)
	require.Nil(t, err)

	for _, queue := range []string{"orders", "orders.dlq"} { // only dead letters can be redriven
		r, err = parseJobCreate(`{"queue":"`+queue+`","op":"redrive","filter":{"reason":"term"}}`, now)
		require.Nil(t, err)
		require.Equal(t, "orders.dlq", r.Queue)
	}

	for body, want := range map[string]string{
		`{}`: "queue",
		`{"queue":"orders","filter":{"all":true}}`:                                                                               "op is missing",
		`{"queue":"orders","op":"burn","filter":{"all":true}}`:                                                                   "allowed are redrive, move",
		`{"queue":"orders","op":"cancel"}`:                                                                                       "filter is missing",
		`{"queue":"orders","op":"cancel","filter":{}}`:                                                                           "name the messages by",
		`{"queue":"orders","op":"cancel","filter":{"reason":"term"}}`:                                                            "reason",
		`{"queue":"orders","op":"redrive","filter":{"state":"leased","gate":"throttle:x"}}`:                                      "gate",
		`{"queue":"orders","op":"delete","filter":{"all":true}}`:                                                                 "op delete (op cancel is for other queues) needs a dead letter queue",
		`{"queue":"orders.dlq","op":"cancel","filter":{"all":true}}`:                                                             "cancel",
		`{"queue":"orders","op":"move","filter":{"all":true}}`:                                                                   "to is missing",
		`{"queue":"orders.dlq","op":"move","filter":{"all":true},"to":"orders"}`:                                                 "redrive",
		`{"queue":"orders","op":"move","filter":{"all":true},"to":"slow.dlq"}`:                                                   "slow.dlq",
		`{"queue":"orders","op":"cancel","filter":{"all":true},"to":"slow"}`:                                                     "it is only for op move",
		`{"queue":"orders","op":"delay","filter":{"all":true},"run_at":"90"}`:                                                    `"90": the unit is missing, as in 90s or 90m; allowed are`,
		`{"queue":"orders","op":"delay","filter":{"all":true},"run_at":"-1h"}`:                                                   "run_at",
		`{"queue":"orders","op":"reprioritise","filter":{"all":true}}`:                                                           "key is missing",
		`{"queue":"orders","op":"reprioritise","filter":{"all":true},"weight":0.5}`:                                              "allowed are 1 to 1000000",
		`{"queue":"orders","op":"edit","filter":{"all":true},"payload":"eA=="}`:                                                  "ids is 0: an edit changes one message",
		`{"queue":"orders","op":"edit","filter":{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"]}}`:                               "is required",
		`{"queue":"orders","op":"cancel","filter":{"all":true},"order":"size"}`:                                                  "allowed are arrival and death",
		`{"queue":"orders","op":"cancel","filter":{"all":true},"rate":-1}`:                                                       "rate",
		`{"queue":"orders","op":"cancel","filter":{"all":true},"limit":-1}`:                                                      "limit",
		`{"queue":"orders","op":"cancel","filter":{"all":true},"if_count":-1}`:                                                   "if_count",
		`{"queue":"orders","op":"cancel","filter":{"all":true},"nothing":1}`:                                                     "nothing",
		`{"queue":"orders","op":"edit","filter":{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"]},"payload":"?"}`:                 "base64",
		`{"queue":"orders","op":"edit","filter":{"ids":["01981c2e-7b1c-7d3a-9b1e-2f4c5d6e7f80"]},"set_headers":{"Fila-Id":"1"}}`: "Fila-Id",
	} {
		_, err := parseJobCreate(body, now)
		require.NotNil(t, err, body)
		require.Contains(t, err.Description, want, body)
	}
	_, err = VerbJobShow.Parse("", nil)
	require.Contains(t, err.Description, "id is missing")
	_, err = VerbJobList.Parse("", []byte(`{"limit":0}`))
	require.NotNil(t, err)
}
