package browser

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHiddenTab: a tab that nobody sees has no stream, and has one again when it is seen. What
// the page asks fila for goes by way of the test, which counts its streams.
func TestHiddenTab(t *testing.T) {
	f := start(t)
	f.load("orders")
	to, err := url.Parse(f.base)
	require.NoError(t, err)
	var streams atomic.Int64
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1}
	way := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/live/") {
			streams.Add(1)
			defer streams.Add(-1)
		}
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(way.Close)
	has := func(n int64) {
		t.Helper()
		require.True(t, wait(t.Context(), func() bool { return streams.Load() == n }), "%d streams", streams.Load())
	}

	b := open(t, way.URL)
	b.visit("/")
	has(1)
	b.shows("main table", "orders")
	// The browser of a test has no window that could be hidden: the page is told that it is.
	const turn = `Object.defineProperty(document, 'hidden', {configurable: true, value: %s}) && document.dispatchEvent(new Event('visibilitychange'))`
	eval[bool](b, strings.Replace(turn, "%s", "true", 1))
	has(0)
	eval[bool](b, strings.Replace(turn, "%s", "false", 1))
	has(1)
	b.until(`[...document.querySelectorAll('main tr')].some(r => r.innerText.includes('orders') && /[1-9][\d.,]*\/s/.test(r.innerText))`)
}
