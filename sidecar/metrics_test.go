package sidecar

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// scrape returns what /metrics says.
func (x *testSite) scrape() string {
	x.t.Helper()
	w := httptest.NewRecorder()
	x.s.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(x.t, http.StatusOK, w.Code)
	return w.Body.String()
}

// TestMetricsOfARefusedQueue: a queue that is refused leaves no series, whatever its
// name.
func TestMetricsOfARefusedQueue(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		const hook = `"on_enqueue":"function on_enqueue(msg) return {} end"`
		x.must("fila.admin.queue-create.taken", `{`+hook+`}`, nil)
		err := x.request("fila.admin.queue-create.orders", `{`+hook+`,"on_failure":"function on_failure(msg"}`, nil, nil)
		require.NotNil(t, err)
		require.Equal(t, wire.CodeHookLoad, err.ErrCode)
		metrics := x.scrape()
		require.Contains(t, metrics, `fila_hook_runs_total{hook="on_enqueue",queue="taken"} 0`)
		require.NotContains(t, metrics, `queue="orders"`)
	})
}
