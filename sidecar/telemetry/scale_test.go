package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// startScale starts a listener that knows two queues.
func startScale(t *testing.T, serving *error) string {
	t.Helper()
	h := NewHTTP(HTTPOptions{
		Log: slog.New(slog.DiscardHandler), Addr: "127.0.0.1:0", Metrics: New(),
		Wanted: func(queue string, horizon time.Duration) (w api.QueueWanted, _ error) {
			if *serving != nil {
				return w, *serving
			}
			switch queue {
			case "orders":
				return api.QueueWanted{Queue: queue, Wanted: 5 + int64(horizon.Seconds()), Pending: 1e6, InFlight: 5}, nil
			case "mails":
				return api.QueueWanted{Queue: queue, Wanted: 3000, Pending: 3000, AttemptMs: 250}, nil
			case "idle":
				return api.QueueWanted{Queue: queue}, nil
			}
			return w, wire.QueueNotFound(queue)
		},
		Guard: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Guarded", "yes")
				h.ServeHTTP(w, r)
			})
		},
	})
	addr, err := h.Start()
	require.NoError(t, err)
	t.Cleanup(func() { h.Stop(context.WithoutCancel(t.Context())) })
	return "http://" + addr + "/scale/"
}

func TestScale(t *testing.T) {
	var serving error
	base := startScale(t, &serving)
	for path, want := range map[string]api.Scale{
		"idle":                    {Why: "idle: 0 in flight and 0 of 0 pending can be worked on within 1m; no attempt has ended lately"},
		"orders":                  {Wanted: 65, Workers: 65, Active: true, Why: "orders: 5 in flight and 60 of 1000000 pending can be worked on within 1m; no attempt has ended lately"},
		"orders?per_worker=64":    {Wanted: 65, Workers: 2, Active: true, Why: "orders: 5 in flight and 60 of 1000000 pending can be worked on within 1m; no attempt has ended lately"},
		"orders?horizon=0s":       {Wanted: 5, Workers: 5, Active: true, Why: "orders: 5 in flight and 0 of 1000000 pending can be worked on within 0s; no attempt has ended lately"},
		"mails?target_wait=30s":   {Wanted: 3000, Workers: 25, Active: true, Why: "mails: 0 in flight and 3000 of 3000 pending can be worked on within 1m; an attempt takes 250ms"},
		"mails?target_wait=1s":    {Wanted: 3000, Workers: 750, Active: true, Why: "mails: 0 in flight and 3000 of 3000 pending can be worked on within 1m; an attempt takes 250ms"},
		"mails,idle?per_worker=5": {Wanted: 3000, Workers: 5, Active: true, Why: "mails: 0 in flight and 3000 of 3000 pending can be worked on within 1m; an attempt takes 250ms; idle: 0 in flight and 0 of 0 pending can be worked on within 1m; no attempt has ended lately"},
	} {
		status, body := httpGet(t, "GET", base+path)
		require.Equal(t, http.StatusOK, status, path)
		var got api.Scale
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.Equal(t, want, got, path)
	}
	for path, want := range map[string]string{
		"orders?per_worker=0":                   "per_worker is 0: allowed are 1 to 1000000",
		"orders?per_worker=many":                `per_worker is "many": allowed are 1 to 1000000`,
		"orders?target_wait=30":                 `target_wait is "30": allowed are 1s to 24h, as in 30s`,
		"orders?target_wait=10ms":               "target_wait is 10ms: allowed are 1s to 24h",
		"orders?horizon=45s":                    "horizon is 45s: allowed are 0s, 30s, 1m, 5m",
		"orders?horizon=":                       `horizon is "": allowed are 0s, 30s, 1m, 5m`,
		"orders?horizon=0s&horizon=30s":         "horizon is given 2 times",
		"orders?perWorker=64":                   `unknown parameter "perWorker": allowed are per_worker, target_wait and horizon`,
		strings.Repeat("orders,", 100) + "idle": "101 queues: allowed are 1 to 100, separated by commas",
	} {
		status, body := httpGet(t, "GET", base+path)
		require.Equal(t, http.StatusBadRequest, status, path)
		require.Equal(t, want+"\n", body)
	}
	status, body := httpGet(t, "GET", base+"orders,none")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "none")
	status, _ = httpGet(t, "POST", base+"orders")
	require.Equal(t, http.StatusMethodNotAllowed, status)
	serving = errors.New("it is starting")
	status, body = httpGet(t, "GET", base+"orders")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "it is starting\n", body)
}

// The same tokens open /scale and /metrics.
func TestScaleIsGuarded(t *testing.T) {
	var serving error
	req, err := http.NewRequestWithContext(t.Context(), "GET", startScale(t, &serving)+"idle", nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "yes", resp.Header.Get("Guarded"))
}
