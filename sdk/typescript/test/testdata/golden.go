//go:build ignore

// Command golden prints what the Go code makes and reads of the protocol, for the tests of
// this package:
//
//	go run ./sdk/typescript/test/testdata/golden.go > sdk/typescript/test/testdata/golden.json
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

type message struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Payload string `json:"payload"`
}

type ack struct {
	Payload string `json:"payload"`
	Kind    string `json:"kind"`
	DelayMs *int64 `json:"delay_ms,omitempty"`
	Error   string `json:"error,omitempty"`
	ErrCode string `json:"code,omitempty"`
	AfterMs int64  `json:"retry_after_ms,omitempty"`
	Cost    *int64 `json:"cost_thousandths,omitempty"`
}

// ackPayloads are what the package sends; ParseAck says what they mean.
var ackPayloads = []string{
	"+ACK",
	`+ACK {"cost":3.12}`,
	`+ACK {"cost":0}`,
	`+ACK {"cost":12,"remaining":4000,"reset_ms":801}`,
	"-NAK",
	`-NAK {"code":"429","cost":0,"remaining":0}`,
	`-NAK {"delay":"30000ms","error":"timeout \"x\"\n2nd line","code":"E42","retry_after_ms":1000}`,
	`-NAK {"delay":"0ms"}`,
	"+TERM",
	`+TERM {"error":"no such\nuser"}`,
	`+TERM {"error":"no such user","code":"gone"}`,
	"+WPI",
}

func main() {
	must := func(err *wire.Error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	messages := []message{{"tenant", "acme", `{"id":1}`}, {"", "", ""}, {"nämlich", "äöü ✓", "\x00\xff"}}
	messages[2].Name = "x-note"
	var batch, delivered []byte
	for i, m := range messages {
		h := map[string][]string{}
		if m.Name != "" {
			h[m.Name] = []string{m.Value}
		}
		batch = wire.AppendBatch(batch, h, []byte(m.Payload))
		d := wire.Delivered{
			ID: uuid.MustParse(fmt.Sprintf("01981c2e-0000-7000-8000-00000000000%d", i)), Attempt: uint32(i + 1),
			Deadline: 1893596645123456789, Data: []byte(m.Payload),
		}
		delivered = wire.AppendDelivered(delivered, &d, nil, wire.AppendHeaderLines(nil, h))
		messages[i].Payload = hex.EncodeToString([]byte(m.Payload))
	}

	var acks []ack
	for _, p := range ackPayloads {
		a, err := wire.ParseAck([]byte(p), nil)
		must(err)
		out := ack{Payload: p, Kind: a.Kind.String(), Error: a.Error, ErrCode: a.ErrorCode, AfterMs: a.RetryAfter.Milliseconds()}
		if a.HasDelay {
			ms := a.Delay.Milliseconds()
			out.DelayMs = &ms
		}
		if a.HasCost {
			cost := int64(a.Cost)
			out.Cost = &cost
		}
		acks = append(acks, out)
	}

	lines := "0-1 +ACK\n2 -NAK {\"error\":\"timeout\"}\n3 +WPI\n4-6 +ACK\n"
	parts, err := wire.ParseBatchAck([]byte(lines), nil, 7, wire.ParseAck)
	must(err)
	kinds := make([]string, 7)
	for _, p := range parts {
		kinds[p.Index] = p.Ack.Kind.String()
	}

	reply := wire.BatchReply{Queue: "orders", Duplicates: []int{1}}
	full := &wire.Error{Code: 429, ErrCode: 10429, Description: "queue \"orders\" is full", RetryAfter: 500e6}
	reply.Refuse(2, full)
	reply.Refuse(3, full)
	ids := make([]byte, 4*16)
	for i := range ids[:32] {
		ids[i] = byte(i)
	}

	tails := map[string]string{}
	for _, key := range []string{"vendor:stripe", "tenant:*", "two words", "a..b", "a.*.b", "", "a>b", "käse", "tab\tkey", "no\u00a0break"} {
		tails[key], _ = api.KeyTail(key)
	}

	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string]any{
		"messages": messages, "batch": hex.EncodeToString(batch), "delivered": hex.EncodeToString(delivered),
		"acks": acks, "lines": lines, "kinds": kinds, "batch_reply": json.RawMessage(reply.Encode(ids)), "key_tails": tails,
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
