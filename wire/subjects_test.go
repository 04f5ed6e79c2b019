package wire

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func newTestSubjects(t testing.TB, prefix string) Subjects {
	t.Helper()
	s, err := NewSubjects(prefix)
	require.NoError(t, err)
	return s
}

func TestNewSubjects(t *testing.T) {
	for _, ok := range []string{"fila", "f", "eu.west.fila", "fila-2_x", "INBOX", "_inbox", strings.Repeat("p", MaxPrefixLen)} {
		s, err := NewSubjects(ok)
		require.NoError(t, err, ok)
		require.Equal(t, ok, s.Prefix())
	}
	for _, bad := range []string{
		"", ".", ".fila", "fila.", "a..b", "*", "fila.*", "fila.>", ">", "fi*la", "a b", "a\tb", "a\n", "a\x00b", "a\x7f",
		"$SYS", "$JS.API", "_INBOX", "_INBOX.x", "größe", "a\xff", strings.Repeat("p", MaxPrefixLen+1),
	} {
		_, err := NewSubjects(bad)
		require.ErrorContains(t, err, "allowed are 1 to 64 bytes", "%q", bad)
	}
}

func TestSubjectsBuild(t *testing.T) {
	s := newTestSubjects(t, "fila")
	for want, got := range map[string]string{
		"fila.enqueue.orders":               s.Enqueue("orders"),
		"fila.consume.orders":               s.Consume("orders"),
		"fila.consumer.worker-1.orders.dlq": s.Consumer("worker-1", "orders.dlq"),
		"fila.fetch.orders.dlq":             s.Fetch("orders.dlq"),
		"fila.deliver.worker-1.orders.dlq":  s.Deliver("worker-1", "orders.dlq"),
		"fila.ack.0.TOKEN.orders":           s.Ack("TOKEN", "orders"),
		"fila.nack.0.TOKEN.orders.dlq":      s.Nack("TOKEN", "orders.dlq"),
		"fila.admin.queue-create.orders":    s.Admin("queue-create", "orders"),
		"fila.admin.queue-list":             s.Admin("queue-list", ""),
		"fila.event.queue-created.orders":   s.Event(EventQueueCreated, "orders"),
		"fila.event.config-changed.a:b.c":   s.Event(EventConfigChanged, "a:b.c"),
		"fila.event.config-changed._":       s.Event(EventConfigChanged, "a key"),
		"fila.ack.7.TOKEN.orders":           s.OfShard(7).Ack("TOKEN", "orders"),
		"fila.nack.7.TOKEN.orders":          s.OfShard(7).Nack("TOKEN", "orders"),
		"fila.ack.>":                        s.Wildcard(KindAck),
		"fila.nack.>":                       s.Wildcard(KindNack),
		"fila.ack.*.*.a.dlq":                s.AckOf("a.dlq"),
		"fila.nack.*.*.a.dlq":               s.NackOf("a.dlq"),
		"fila.consume.>":                    s.Wildcard(KindConsume),
		"fila.consumer.>":                   s.Wildcard(KindConsumer),
		"fila.fetch.>":                      s.Wildcard(KindFetch),
		"fila.event.>":                      s.Wildcard(KindEvent),
		"fila.node.ask":                     s.NodeAsk(),
		"fila.node.answer.X":                s.NodeAnswer("X"),
		"fila.node.announce":                s.NodeAnnounce(),
		"fila.node.*":                       s.NodeWildcard(),
		"eu.fila.enqueue.orders":            newTestSubjects(t, "eu.fila").Enqueue("orders"),
		"fila.ack.12.TOK.a.b (appended)":    string(s.OfShard(12).AppendAck(nil, []byte("TOK"), "a.b")) + " (appended)",
		"fila.ack.0.TOK.a.b (appended)":     string(s.AppendAck(nil, []byte("TOK"), "a.b")) + " (appended)",
		"<fila.ack.0.TOK.a.b (to what was)": string(s.AppendAck([]byte("<"), []byte("TOK"), "a.b")) + " (to what was)",
	} {
		require.Equal(t, want, got)
	}
}

func TestCheckReplyPrefix(t *testing.T) {
	s := newTestSubjects(t, "eu.fila")
	for prefix, ok := range map[string]bool{
		"_INBOX.": true, "_R_.": true, "_INBOX_": true, "eu.fila2.": true, "eu.fila-": true, "EU.": true, "fila.": true, "x.eu.fila.": true,
		"": false, "eu": false, "eu.": false, "eu.fil": false, "eu.fila": false, "eu.fila.": false, "eu.fila.event.": false,
		"a b": false, "*.": false, ">": false, "größe.": false, "a\n": false, strings.Repeat("p", MaxPrefixLen+1): false,
	} {
		require.Equal(t, ok, s.CheckReplyPrefix(prefix) == nil, "%q: %v", prefix, s.CheckReplyPrefix(prefix))
	}
}

func TestParseToken(t *testing.T) {
	s := newTestSubjects(t, "fila")
	for _, subject := range []string{s.Ack("TOK", "orders.dlq"), s.Nack("TOK", "orders.dlq"), s.OfShard(7).Ack("TOK", "orders.dlq")} {
		tok, queue, ok := s.ParseToken(subject)
		require.True(t, ok, subject)
		require.Equal(t, "TOK", tok)
		require.Equal(t, "orders.dlq", queue)
	}
	for _, bad := range []string{
		"", "fila", "fila.", "fila.ack", "fila.ack.", "fila.ack.0", "fila.ack.0.", "fila.ack.0.TOK", "fila.ack.0.TOK.",
		"fila.ack.0..orders", "fila.ack..TOK.orders", "fila.acks.0.TOK.orders",
		"fila.enqueue.0.TOK.orders", "other.ack.0.TOK.orders", "filaack.0.TOK.orders", "fila.tack.0.TOK.orders",
	} {
		tok, queue, ok := s.ParseToken(bad)
		require.False(t, ok, bad)
		require.Empty(t, tok+queue, bad)
	}
}

func TestParseTail(t *testing.T) {
	s := newTestSubjects(t, "eu.fila")
	for kind, subject := range map[string]string{
		KindEnqueue: s.Enqueue("a.dlq"), KindConsume: s.Consume("a.dlq"), KindFetch: s.Fetch("a.dlq"),
	} {
		tail, ok := s.ParseTail(kind, subject)
		require.True(t, ok, subject)
		require.Equal(t, "a.dlq", tail)
	}
	for _, bad := range []string{"", "eu.fila", "eu.fila.enqueue", "eu.fila.enqueue.", "eu.fila.enqueues.a", "fila.enqueue.a", "eu.fila.fetch.a"} {
		_, ok := s.ParseTail(KindEnqueue, bad)
		require.False(t, ok, bad)
	}
}

func TestParseConsumer(t *testing.T) {
	s := newTestSubjects(t, "eu.fila")
	name, queue, ok := s.ParseConsumer(s.Consumer("w", "a.b.dlq"))
	require.True(t, ok)
	require.Equal(t, []string{"w", "a.b.dlq"}, []string{name, queue})
	for _, bad := range []string{
		"", "eu.fila.consumer", "eu.fila.consumer.", "eu.fila.consumer.w", "eu.fila.consumer.w.", "eu.fila.consumer..a",
		"eu.fila.consume.w.a", "fila.consumer.w.a",
	} {
		name, queue, ok := s.ParseConsumer(bad)
		require.False(t, ok, bad)
		require.Empty(t, name+queue, bad)
	}
}

func TestParseAdmin(t *testing.T) {
	s := newTestSubjects(t, "fila")
	verb, tail, ok := s.ParseAdmin(s.Admin("redrive", "orders.dlq"))
	require.True(t, ok)
	require.Equal(t, "redrive", verb)
	require.Equal(t, "orders.dlq", tail)

	verb, tail, ok = s.ParseAdmin(s.Admin("queue-list", ""))
	require.True(t, ok)
	require.Equal(t, "queue-list", verb)
	require.Empty(t, tail)

	for _, bad := range []string{"", "fila.admin", "fila.admin.", "fila.admin..x", "fila.admin.redrive.", "fila.enqueue.x", "other.admin.redrive.x"} {
		_, _, ok := s.ParseAdmin(bad)
		require.False(t, ok, bad)
	}
}
