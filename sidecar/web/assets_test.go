package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire/api"
)

// Third-party files in assets/: the package and version of the npm registry, the file in it, and
// its SHA-256.
var vendored = map[string]struct{ from, sum string }{
	"htmx.min.js":       {"htmx.org 4.0.1 dist/htmx.min.js", "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"},
	"hx-sse.min.js":     {"htmx.org 4.0.1 dist/ext/hx-sse.min.js", "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103"},
	"htmx.LICENSE":      {"htmx.org 4.0.1 LICENSE", "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38"},
	"uPlot.iife.min.js": {"uplot 1.6.32 dist/uPlot.iife.min.js", "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"},
	"uPlot.min.css":     {"uplot 1.6.32 dist/uPlot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"},
	"uPlot.LICENSE":     {"uplot 1.6.32 LICENSE", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"},
}

var ours = []string{"fila.css", "fila.js", "fila.svg"}

func TestAssetsAreWhatTheirMakersReleased(t *testing.T) {
	seen := 0
	require.NoError(t, fs.WalkDir(assets, "assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(assets, path)
		require.NoError(t, err)
		if v, ok := vendored[d.Name()]; ok {
			seen++
			sum := sha256.Sum256(data)
			require.Equal(t, v.sum, hex.EncodeToString(sum[:]), "%s is not %s", d.Name(), v.from)
			return nil
		}
		require.Contains(t, ours, d.Name())
		return nil
	}))
	require.Len(t, vendored, seen)
}

// The content security policy would refuse them in the browser.
func TestTemplatesHaveNothingInline(t *testing.T) {
	inline := regexp.MustCompile(`(?i)\sstyle=|<style|\son[a-z]+=|\shx-on|javascript:|<script(\s[^>]*)?>[^<]|<script>|https?://`)
	require.True(t, inline.MatchString(`<p style="x">`) && inline.MatchString("<script>x") && inline.MatchString(`<a onclick="x">`))
	require.NoError(t, fs.WalkDir(templates, "templates", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(templates, path)
		require.NoError(t, err)
		require.Empty(t, inline.FindString(string(data)), path)
		return nil
	}))
}

// TestFormsAskFirst: the script sends a form with data-asks to get its question, so the action
// has to have one.
func TestFormsAskFirst(t *testing.T) {
	asks := map[string]bool{}
	for i := range actions {
		asks[actions[i].name] = actions[i].asks != nil
	}
	found := 0
	require.NoError(t, fs.WalkDir(templates, "templates", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(templates, path)
		require.NoError(t, err)
		for _, form := range regexp.MustCompile(`"/do/([a-z-]+)"\}\}"( data-asks)?`).FindAllSubmatch(data, -1) {
			found++
			require.Equal(t, asks[string(form[1])], len(form[2]) > 0, "%s: %s", path, form[1])
		}
		return nil
	}))
	require.Positive(t, found)
}

// TestEveryPageParses, since a page is parsed at its first request.
func TestEveryPageParses(t *testing.T) {
	l, err := newLooks("/fila")
	require.NoError(t, err)
	for i := range pages {
		require.Contains(t, l.pages, pages[i].name)
	}
	for name, parse := range l.pages {
		page, err := parse()
		require.NoError(t, err, name)
		require.NotNil(t, page.Lookup("main"), name)
	}
}

// TestPagesAreLight: the largest list with all that it loads has at most 150 KB, compressed.
func TestPagesAreLight(t *testing.T) {
	r := newRig(t, nil)
	list := api.QueueList{Total: 2000}
	for i := range 2000 {
		list.Queues = append(list.Queues, api.QueueSummary{
			Name: fmt.Sprintf("queue-%04d.%08x", i, i*2654435761), Pending: int64(i * 7919), Consumers: i % 9, OldestAgeMs: int64(i) * 7717, Detail: &api.QueueDetail{Enqueued: int64(i)},
		})
	}
	r.reply(api.VerbQueueList, list)
	body := r.get("/queues").Body.Bytes()
	require.Contains(t, string(body), "1 to 50 of 2,000")
	size := len(compressed("a page", body))
	for _, found := range regexp.MustCompile(`(?:href|src)="(/assets/[^"]*)"`).FindAllSubmatch(body, -1) {
		req := request(http.MethodGet, string(found[1]), nil)
		req.Header.Set("Accept-Encoding", "gzip, br")
		rec := r.serve(req)
		require.Equal(t, "gzip", rec.Header().Get("Content-Encoding"), "%s", found[1])
		size += rec.Body.Len()
		plain, err := gzip.NewReader(bytes.NewReader(rec.Body.Bytes()))
		require.NoError(t, err)
		data, err := io.ReadAll(plain)
		require.NoError(t, err)
		require.Equal(t, r.get(string(found[1])).Body.Bytes(), data)
	}
	require.LessOrEqual(t, size, 150_000)
	t.Logf("%d bytes", size)
}

// Time alone does not change a live part: the script makes its times relative.
func TestTimesOfLiveParts(t *testing.T) {
	l, err := newLooks("")
	require.NoError(t, err)
	const at = "2026-01-02T03:04:05Z"
	shown := func(parse func() (*template.Template, error)) string {
		t.Helper()
		made, err := parse()
		require.NoError(t, err)
		var out strings.Builder
		require.NoError(t, made.ExecuteTemplate(&out, "c-time", at))
		return out.String()
	}
	require.Contains(t, shown(l.frames["overview"]), ">"+at+"<")
	require.Contains(t, shown(l.pages["overview"]), " ago<")
}
