package sidecar

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

// TestBadBodiesOfVerbs: each verb reads its body strictly, and what it refuses changes
// nothing.
func TestBadBodiesOfVerbs(t *testing.T) {
	bubble(t, func(t *testing.T, x *testSite) {
		x.must("fila.admin.queue-create.orders", ``, nil)
		x.must("fila.admin.throttle-set.k", `{"rate":1}`, nil)
		state := func() string {
			var all []any
			for _, verb := range []string{"queue-list", "config-list", "config-log", "throttle-list", "circuit-list", "pause-list"} {
				var reply any
				x.must("fila.admin."+verb, "", &reply)
				all = append(all, reply)
			}
			text, err := json.Marshal(all)
			require.NoError(t, err)
			return string(text)
		}
		before := state()
		for _, tc := range []struct {
			verb, body string
			code       int
			names      string
		}{
			{"circuit-show._", ``, wire.CodeBadField, "key"},
			{"circuit-show.nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{"circuit-close.nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{"circuit-close.x", `{"key":"y"}`, wire.CodeBadField, "key"},
			{"circuit-reset.nobody", ``, wire.CodeCircuitNotFound, "nobody"},
			{"circuit-open.x", `{"for_ms":-1}`, wire.CodeBadField, "for_ms"},
			{"circuit-open.x", `{"for":1}`, wire.CodeUnknownField, "for"},
			{"circuit-list", `{"limit":0}`, wire.CodeBadField, "limit"},
			{"throttle-show.k", `{"x":1}`, wire.CodeUnknownField, "x"},
			{"throttle-clear.k", `{"x":1}`, wire.CodeUnknownField, "x"},
			{"throttle-clear._", ``, wire.CodeBadField, "key"},
			{"throttle-list", `{"limit":0}`, wire.CodeBadField, "limit"},
			{"config-log", `{"limit":0}`, wire.CodeBadField, "limit"},
			{"config-log", `{"limit":1001}`, wire.CodeBadField, "limit"},
			{"config-log", `{"offset":-1}`, wire.CodeBadField, "offset"},
			{"config-log", `{"before":1}`, wire.CodeUnknownField, "before"},
			{"config-log", `[]`, wire.CodeBadJSON, "JSON"},
			{"reload", `{"force":true}`, wire.CodeUnknownField, "force"},
		} {
			werr := x.request("fila.admin."+tc.verb, tc.body, nil, nil)
			require.NotNil(t, werr, tc)
			require.Equal(t, tc.code, werr.ErrCode, "%v: %v", tc, werr)
			require.Contains(t, werr.Description, tc.names, tc)
		}
		require.Equal(t, before, state())
	})
}
