package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// hotPath is work that is done for each message, or for each request.
type hotPath struct {
	name   string
	allocs float64 // at most; -1: any number
	do     func()
}

func hotPaths(t testing.TB) []hotPath {
	s := newTestSubjects(t, "fila")
	signer := newTestSigner(t, 3)
	token := Token{Seq: 5, Attempt: 1, Lease: 77}
	text := signer.Append(nil, "orders", token)
	genuine, forged := string(text), strings.Repeat("A", len(text))
	subject := s.Ack(genuine, "orders")
	kept := header{
		"tenant": {"acme"}, "traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"Content-Type": {"application/json"}, "Nats-Msg-Id": {"x"},
	}
	stored := EncodeHeaders(nil, kept)
	noResponders := header{HeaderStatus: {StatusNoResponders}}
	delayed := header{HeaderMsgID: {"a"}, HeaderDelay: {"1s"}, "tenant": {"x"}}
	expiring := header{HeaderMsgID: {"a"}, HeaderDelay: {"1s"}, HeaderTTL: {"60"}, "tenant": {"x"}}
	now := testNow.UnixNano()
	buf := make([]byte, 0, 512)
	parseAck := func(payload string, h header) func() {
		p := []byte(payload)
		return func() { _, _ = ParseAck(p, h) }
	}
	return []hotPath{
		{"ack/empty", 0, parseAck("", nil)},
		{"ack/ack", 0, parseAck("+ACK", nil)},
		{"ack/nak", 0, parseAck("-NAK", nil)},
		{"ack/nak-delay", -1, parseAck(`-NAK {"delay": 1000000000}`, nil)},
		{"ack/no-responders", 0, parseAck("", noResponders)},
		{"enqueue-headers", 0, func() { _, _ = ParseEnqueueHeaders(delayed, now) }},
		// One for the error of the duration that "60" is not.
		{"enqueue-headers/ttl", 3, func() { _, _ = ParseEnqueueHeaders(expiring, now) }},
		{"headers/encode", 0, func() { buf = EncodeHeaders(buf[:0], kept) }},
		{"headers/decode", -1, func() { _, _ = DecodeHeaders(stored) }},
		{"subject/append-ack", 0, func() { buf = s.AppendAck(buf[:0], text, "orders") }},
		{"subject/deliver", 1, func() { _ = s.Deliver("worker-1", "orders") }},
		{"subject/parse-token", 0, func() { _, _, _ = s.ParseToken(subject) }},
		{"token/append", 0, func() { buf = signer.Append(buf[:0], "orders", token) }},
		{"token/parse", 0, func() { _, _ = signer.Parse(genuine, "orders") }},
		{"token/parse-forged", 0, func() { _, _ = signer.Parse(forged, "orders") }},
		{"request", -1, func() { _, _ = ParseFetch([]byte(`{"batch":10,"expires_ms":5000}`)) }},
		{"refusal", -1, func() {
			e := BacklogMessages("orders", 10, time.Second)
			_, _ = e.Headers(), e.Body()
		}},
	}
}

// TestAllocs holds the promises of the doc comments. Under the race detector
// sync.Pool drops items on purpose, so tokens are not measured there.
func TestAllocs(t *testing.T) {
	for _, p := range hotPaths(t) {
		if p.allocs < 0 || raceEnabled && strings.HasPrefix(p.name, "token/") {
			continue
		}
		// A collection may empty the pool meanwhile.
		require.Less(t, testing.AllocsPerRun(1000, p.do), p.allocs+0.5, p.name)
	}
}

func BenchmarkWire(b *testing.B) {
	for _, p := range hotPaths(b) {
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.do()
			}
		})
	}
}
