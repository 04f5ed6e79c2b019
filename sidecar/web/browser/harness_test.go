package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// policy is the content security policy of fila's pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// serve serves pages under this policy.
func serve(t *testing.T, pages map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		switch {
		case strings.HasSuffix(r.URL.Path, ".js"):
			w.Header().Set("Content-Type", "text/javascript")
		default:
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// document returns a faultless page around a body.
func document(body string) string {
	return `<!doctype html><html lang="en"><head><meta name="viewport" content="width=device-width"><title>A page</title><link rel="icon" href="/icon.js"></head><body><main><h1>A page</h1>` + body + `</main></body></html>`
}

// TestHarness: the harness reports each kind of fault on a page, so its silence means that a
// page has none.
func TestHarness(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body, want string
	}{
		"nothing":       {"<p>all is well</p>", ""},
		"inline script": {"<script>window.x = 1</script>", "policy: script-src-elem forbids inline"},
		"inline style":  {`<p style="color: red">red</p>`, "policy: style-src-attr forbids inline"},
		"foreign image": {`<img alt="" src="http://127.0.0.2:9/x.png">`, "policy: img-src forbids http://127.0.0.2:9/x.png"},
		"handler":       {`<img alt="" src="/missing.png" onerror="window.x = 1">`, "policy: script-src-attr forbids inline"},
		"missing":       {`<img alt="" src="/missing.png">`, "request refused: 404"},
		"console":       {`<script src="/console.js"></script>`, "console error: \"it broke\""},
		"exception":     {`<script src="/throw.js"></script>`, "exception: "},
		"unreachable":   {`<script src="/fetch.js"></script>`, "policy: connect-src forbids"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, serve(t, map[string]string{
				"/": document(tc.body), "/icon.js": "", "/console.js": `console.error("it broke")`, "/throw.js": `throw new Error("it broke")`,
				"/fetch.js": `fetch("http://127.0.0.2:9/").catch(() => {})`,
			}))
			b.visit("/")
			if tc.want == "" {
				b.sound("harness")
				return
			}
			var all []string
			require.True(t, wait(b.ctx, func() bool {
				all = append(all, b.complaints()...)
				return strings.Contains(strings.Join(all, "\n"), tc.want)
			}), "%q", all)
			b.visit("/icon.js") // later complaints belong to the same fault
			b.complaints()
		})
	}
}

// TestHarnessSees: reading and operating a page works.
func TestHarnessSees(t *testing.T) {
	t.Parallel()
	b := open(t, serve(t, map[string]string{
		"/icon.js": "",
		"/": document(`<p><a href="/next">Go on</a> <label>Name <input name="who"></label> <label>Colour <select name="colour"><option>red<option>blue</select></label></p>
			<details><summary>More</summary><p>Here it is</p></details>`),
		"/next":   document(`<p id="there">It is there</p>`),
		"/faulty": document(`<p><input name="nameless"> <img src="/icon.js"></p>`),
	}))
	b.visit("/")
	b.reachable()
	b.fill("who", "<b>x</b>")
	require.Equal(t, "<b>x</b>", eval[string](b, "document.querySelector('input').value"))
	b.choose("colour", "blue")
	require.Equal(t, "blue", eval[string](b, "document.querySelector('select').value"))
	b.click("summary")
	b.shows("details p", "Here it is")
	b.follow("Go on")
	b.at("/next")
	b.shows("#there", "It is there")
	require.Equal(t, "It is there", b.text("#there"))

	b.expect(http.StatusNotFound)
	b.visit("/missing")
	b.shows("body", "404")

	b.visit("/faulty")
	var ids []string
	for _, f := range b.serious("") {
		ids = append(ids, f.ID)
	}
	require.Subset(t, ids, []string{"image-alt", "label"})
}
