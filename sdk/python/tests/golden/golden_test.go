// Package golden keeps golden.json, which the tests of the Python library compare its bytes with,
// equal to what the server makes and understands.
package golden

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

var update = flag.Bool("update", false, "write golden.json")

// acks are payloads that the Python library sends.
var acks = []string{
	"+ACK",
	`+ACK {"cost": 3120.5}`,
	`+ACK {"cost": 12, "remaining": 4000, "reset_ms": 801}`,
	`-NAK {"error": "too many", "code": "429", "cost": 0, "remaining": 0}`,
	"+WPI",
	`-NAK {"error": "timeout", "code": "E42", "delay": "1.5s", "retry_after_ms": 30000}`,
	`-NAK {"error": "the worker stopped", "code": "stopped", "delay": "0s"}`,
	`-NAK {"error": "\u00fc\ud83d\ude00"}`,
	`+TERM {"error": "the order\ris cancelled", "code": "E7"}`,
	`+TERM {"code": "E7"}`,
	"+TERM",
}

const batchAck = "0-61 +ACK\n62 -NAK {\"error\": \"timeout\", \"code\": \"E42\"}\n63 +TERM {\"error\": \"bad\"}\n"

type golden struct {
	Batch     string      `json:"batch"`     // hex
	Delivered string      `json:"delivered"` // hex
	Reply     string      `json:"reply"`
	Error     errorReply  `json:"error"`
	Acks      []parsedAck `json:"acks"`
	BatchAck  batchAcks   `json:"batch_ack"`
}

type errorReply struct {
	Headers map[string][]string `json:"headers"`
	Body    string              `json:"body"`
}

type parsedAck struct {
	Payload string   `json:"payload"`
	Ack     wire.Ack `json:"ack"`
}

type batchAcks struct {
	Payload string         `json:"payload"`
	Kinds   map[string]int `json:"kinds"`
}

func TestGolden(t *testing.T) {
	var g golden
	batch := wire.AppendBatch(nil, map[string][]string{"tenant": {"acme"}}, []byte(`{"n":1}`))
	g.Batch = hex.EncodeToString(wire.AppendBatch(batch, nil, nil))
	id := [16]byte{0x01, 0x98, 0x1c, 0x2e, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1}
	first := wire.Delivered{ID: id, Attempt: 1, Deadline: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(), Data: []byte("one")}
	second := wire.Delivered{ID: id, Attempt: 300, Deadline: first.Deadline + 1_500_000_000, Data: nil}
	delivered := wire.AppendDelivered(nil, &first, nil, wire.AppendHeaderLines(nil, map[string][]string{"Fila-Key": {"ümlaut: a"}}))
	g.Delivered = hex.EncodeToString(wire.AppendDelivered(delivered, &second, nil, nil))

	full := &wire.Error{Code: 429, ErrCode: wire.CodeBacklogMessages, Description: `queue "orders" is full`, RetryAfter: 1500 * time.Millisecond}
	reply := wire.BatchReply{Queue: "orders", Duplicates: []int{0}}
	reply.Refuse(1, full)
	reply.Refuse(2, full)
	g.Reply = string(reply.Encode(append(id[:], make([]byte, 32)...)))
	g.Error = errorReply{full.Headers(), string(full.Body())}

	for _, a := range acks {
		parsed, err := wire.ParseAck([]byte(a), nil)
		require.Nil(t, err, a)
		g.Acks = append(g.Acks, parsedAck{a, parsed})
	}
	g.BatchAck = batchAcks{batchAck, map[string]int{}}
	parts, err := wire.ParseBatchAck([]byte(batchAck), nil, 64, wire.ParseAck)
	require.Nil(t, err)
	for _, p := range parts {
		g.BatchAck.Kinds[p.Ack.Kind.String()]++
	}

	made, fail := json.MarshalIndent(g, "", "  ")
	require.NoError(t, fail)
	made = append(made, '\n')
	if *update {
		require.NoError(t, os.WriteFile("golden.json", made, 0o600))
	}
	kept, fail := os.ReadFile("golden.json")
	require.NoError(t, fail)
	require.Equal(t, string(kept), string(made), "golden.json is old: go test ./sdk/python/tests/golden -update")
}
