package filatest

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServer runs with its own data whatever the configuration says, and keeps them over a restart.
func TestServer(t *testing.T) {
	elsewhere := t.TempDir()
	s := Start(t, `
data_dir = "`+filepath.ToSlash(elsewhere)+`"
[[queue]]
name = "orders"
max_deliveries = 1
[nats]
url = "nats://127.0.0.1:1"
[http]
addr = ""
`)
	c := s.Client(client.WithTimeout(time.Minute))
	receipt, err := c.PublishJSON(t.Context(), "orders", map[string]int{"id": 7})
	require.NoError(t, err)
	url := s.URL()
	s.Stop()
	s.Stop()
	s.Again()
	require.Equal(t, url, s.URL())
	require.Eventually(t, c.Conn().IsConnected, time.Minute, time.Millisecond)

	info, err := c.QueueInspect(t.Context(), "orders", 0)
	require.NoError(t, err)
	require.Equal(t, int64(1), *info.Settings.MaxDeliveries)
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, c.Work(ctx, "orders", client.JSONHandler(func(_ context.Context, m *client.Message, order struct{ ID int }) error {
		defer stop()
		require.Equal(t, receipt.ID, m.ID)
		require.Equal(t, 7, order.ID)
		return nil
	})))
	response, err := http.Get(s.HTTP() + "/readyz")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	files, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	require.Empty(t, files)
}
