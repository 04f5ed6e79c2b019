package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// moving is true when the page shows a rate of the queue orders; its first figures have none.
const moving = `[...document.querySelectorAll('main tr')].some(r => r.innerText.includes('orders') && /[1-9][\d.,]*\/s/.test(r.innerText))`

// way returns the address of a proxy to f that calls look for each request.
func (f *fila) way(look func(r *http.Request) (done func())) string {
	f.t.Helper()
	to, err := url.Parse(f.base)
	require.NoError(f.t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, FlushInterval: -1}
	way := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer look(r)()
		proxy.ServeHTTP(rw, r)
	}))
	f.t.Cleanup(way.Close)
	return way.URL
}

// TestHiddenTab: a hidden tab closes its stream, and opens it again when it is visible. A proxy
// counts the streams.
func TestHiddenTab(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.load("orders")
	var streams atomic.Int64
	base := f.way(func(r *http.Request) func() {
		if !strings.HasPrefix(r.URL.Path, "/live/") {
			return func() {}
		}
		streams.Add(1)
		return func() { streams.Add(-1) }
	})
	has := func(n int64) {
		t.Helper()
		require.True(t, wait(t.Context(), func() bool { return streams.Load() == n }), "%d streams", streams.Load())
	}

	b := open(t, base)
	b.visit("/", "orders")
	b.updates()
	has(1)
	// A headless browser has no window to hide, so the test sets the state.
	const turn = `Object.defineProperty(document, 'hidden', {configurable: true, value: %s}) && document.dispatchEvent(new Event('visibilitychange'))`
	eval[bool](b, strings.Replace(turn, "%s", "true", 1))
	has(0)
	eval[bool](b, strings.Replace(turn, "%s", "false", 1))
	has(1)
	b.updates()
}

// updates waits until the page has updated itself.
func (b *tab) updates() {
	b.t.Helper()
	const asOf = "document.querySelector('main time').dateTime"
	b.until(fmt.Sprintf("%s != %q", asOf, eval[string](b, asOf)))
}

// TestSlowScripts: a page updates itself whichever of its scripts loads late.
func TestSlowScripts(t *testing.T) {
	t.Parallel()
	f := start(t)
	f.queue("orders")
	var ways []string
	for _, late := range []string{"htmx", "hx-sse", "uPlot.iife", "fila.js"} {
		ways = append(ways, f.way(func(r *http.Request) func() {
			if strings.HasPrefix(r.URL.Path, "/assets/"+late) {
				time.Sleep(300 * time.Millisecond)
			}
			return func() {}
		}))
	}
	b := open(t, f.base)
	for _, b.base = range ways { // each has a cache of its own
		b.visit("/", "orders")
		b.updates()
	}
}
