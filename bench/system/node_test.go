package system

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodeSaysThatItIsReady(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RunNode(ctx, string(JetStream), t.TempDir(), write) }()
	line, err := bufio.NewReader(read).ReadString('\n')
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "node is ready: nats=")
	require.True(t, ok, line)
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	nc.Close()
	cancel()
	require.NoError(t, <-ended)
}

func TestNodeRefusesUnknownKinds(t *testing.T) {
	for _, kind := range []string{"fila", "abacus"} {
		require.ErrorContains(t, RunNode(t.Context(), kind, t.TempDir(), &bytes.Buffer{}), `"`+kind+`" is not known: allowed is one of hops, hops-wire, jet`)
	}
}

// A message of hops-wire is as long as a delivery of fila.
func TestImitationIsAsLongAsADelivery(t *testing.T) {
	const key = "key"
	node, err := StartNode(HopsWire, t.TempDir())
	require.NoError(t, err)
	defer node.Close()
	nc, err := nats.Connect(node.URL())
	require.NoError(t, err)
	defer nc.Close()
	sub, err := nc.SubscribeSync(hopsDeliver)
	require.NoError(t, err)
	m := nats.NewMsg(hopsEnqueue)
	m.Header.Set(key, "7")
	m.Data = []byte("payload")
	_, err = nc.RequestMsgWithContext(t.Context(), m)
	require.NoError(t, err)
	got, err := sub.NextMsgWithContext(t.Context())
	require.NoError(t, err)
	require.Equal(t, "payload", string(got.Data))
	require.Equal(t, "7", got.Header.Get(key))
	require.Len(t, got.Header.Get(wire.HeaderID), 36)
	require.Len(t, got.Header, 7)
	token := strings.Split(got.Reply, ".")[3]
	signer, err := wire.NewSigner(make([]byte, 32))
	require.NoError(t, err)
	require.Len(t, token, len(signer.Append(nil, "q", wire.Token{Seq: 1e6, Attempt: 1})))
	reply, err := nc.RequestWithContext(t.Context(), got.Reply, nil)
	require.NoError(t, err)
	require.Empty(t, reply.Data)
}
