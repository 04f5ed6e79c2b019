package web

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func TestPagesHaveThePolicy(t *testing.T) {
	r := newRig(t, nil)
	for _, path := range []string{"/", "/nowhere", "/assets/fila.js", "/login"} {
		rec := r.get(path)
		require.Equal(t, policy, rec.Header().Get("Content-Security-Policy"), path)
		require.Equal(t, "nosniff", rec.Header().Get("X-Content-Type-Options"), path)
	}
	require.Equal(t, http.StatusNotFound, r.get("/nowhere").Code)
	require.Equal(t, http.StatusNotFound, r.get("/assets/nothing.js").Code)
	rec := r.get("/")
	require.Equal(t, http.StatusOK, rec.Code, rec.Body)
	require.Contains(t, rec.Body.String(), "1,234")
}

// The overview escapes every name.
func TestNamesAreText(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbAttention, api.Attention{Total: 1, Findings: []api.Finding{{Gate: `circuit:<script>alert(1)</script>"'`, Since: "2026-01-02T12:00:00Z"}}})
	body := r.get("/").Body.String()
	require.NotContains(t, body, "<script>alert")
	require.Contains(t, body, "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;")
}

func TestAFormOfAnotherSiteIsRefused(t *testing.T) {
	r := newRig(t, nil)
	req := request(http.MethodPost, "/do/pause", nil)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, r.serve(req).Code)
	req.Header.Del("Sec-Fetch-Site")
	req.Header.Set("Origin", "http://evil.example")
	require.Equal(t, http.StatusForbidden, r.serve(req).Code)
	require.Empty(t, r.of(api.VerbPause))
}

func TestActionsAreVerbs(t *testing.T) {
	r := newRig(t, nil)
	rec := r.post("/do/pause", "kind", "queue", "name", "orders", "for", "90s", "back", "/queues?find=orders")
	require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body)
	require.Equal(t, "/queues?find=orders", rec.Header().Get("Location"))
	require.Equal(t, []asked{{api.VerbPause.Name, "web", "", `{"kind":"queue","name":"orders","for_ms":90000}`, false}}, r.of(api.VerbPause))

	// The next page says so, once.
	req := request(http.MethodGet, "/", nil)
	for _, c := range rec.Result().Cookies() {
		require.True(t, c.HttpOnly && c.SameSite == http.SameSiteStrictMode)
		req.AddCookie(c)
	}
	next := r.serve(req)
	require.Contains(t, next.Body.String(), "Paused: queue orders.")
	require.Negative(t, next.Result().Cookies()[0].MaxAge)

	require.Equal(t, http.StatusBadRequest, r.post("/do/pause", "kind", "queue", "name", "orders", "for", "soon").Code)
	require.Equal(t, http.StatusBadRequest, r.post("/do/pause", "kind", "queue").Code)
	require.Len(t, r.of(api.VerbPause), 1)
	r.reply(api.VerbResume, wire.QueueNotFound("orders"))
	rec = r.post("/do/resume", "kind", "queue", "name", "orders")
	require.Equal(t, http.StatusNotFound, rec.Code)
	require.Contains(t, rec.Body.String(), "orders")
}

func TestWhatDestroysAsks(t *testing.T) {
	r := newRig(t, nil)
	rec := r.post("/do/purge", "queue", "orders")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), "cannot be undone")
	rec = r.post("/do/purge", "queue", "orders", "confirm", "yes", "typed", "order")
	require.Equal(t, http.StatusUnprocessableEntity, rec.Code)
	require.Contains(t, rec.Body.String(), "The typed name is not orders")
	require.Empty(t, r.of(api.VerbQueuePurge))
	r.reply(api.VerbQueuePurge, api.QueuePurgeReply{Purged: 3})
	rec = r.post("/do/purge", "queue", "orders", "confirm", "yes", "typed", "orders", "back", "https://evil.example/")
	require.Equal(t, http.StatusSeeOther, rec.Code, rec.Body)
	require.Equal(t, "/", rec.Header().Get("Location"), "only pages of ours")
	require.Len(t, r.of(api.VerbQueuePurge), 1)
}

func TestViewersOnlyLook(t *testing.T) {
	r := newRig(t, withTokens(t))
	as := func(method, path, token string) int {
		req := request(method, path, nil)
		req.Header.Set("Authorization", "Bearer "+token)
		return r.serve(req).Code
	}
	require.Equal(t, http.StatusOK, as(http.MethodGet, "/", viewerToken))
	for i := range actions {
		require.Equal(t, http.StatusForbidden, as(http.MethodPost, "/do/"+actions[i].name, viewerToken), actions[i].name)
		require.NotEqual(t, http.StatusForbidden, as(http.MethodPost, "/do/"+actions[i].name, operatorToken), actions[i].name)
	}
}

func TestWaysBackAreOurs(t *testing.T) {
	r := newRig(t, func(c *config.HTTPConfig) { withTokens(t)(c); c.BasePath = "/fila" })
	for to, want := range map[string]string{
		"/fila/?find=x":         "/fila/?find=x",
		"/fila/queues/a%2Fb":    "/fila/queues/a%2Fb",
		"":                      "/fila/",
		"/other/":               "/fila/",
		"/fila/../other/":       "/fila/",
		"/fila/%2e%2e/other/":   "/fila/",
		"/fila/x/..%2F..%2Fy":   "/fila/",
		"/fila/./x":             "/fila/",
		"/fila/queues/a..b":     "/fila/queues/a..b",
		"//evil.example/":       "/fila/",
		"/\\evil.example/":      "/fila/",
		"https://evil.example/": "/fila/",
		"/fila/live/":           "/fila/",
		"javascript:alert(1)":   "/fila/",
		"/fila/\r\nSet-Cookie:": "/fila/",
	} {
		require.Equal(t, want, r.local(to), to)
	}
}

func TestPagesOfAFilaThatStops(t *testing.T) {
	r := newRig(t, nil)
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	rec := r.get("/")
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Contains(t, rec.Body.String(), "it is stopping")
	r.Stop(t.Context())
	rec = r.get("/")
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
}

// frames reads events of a live page.
func frames(t *testing.T, ctx context.Context, url string) (next func() string, close func()) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream; charset=utf-8", resp.Header.Get("Content-Type"))
	in := bufio.NewReader(resp.Body)
	return func() string {
			var b strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					require.ErrorIs(t, err, io.EOF)
					return ""
				}
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					b.WriteString(data)
				} else if b.Len() > 0 {
					return b.String()
				}
			}
		}, func() {
			_ = resp.Body.Close()
			http.DefaultClient.CloseIdleConnections()
		}
}

// All who look at the same page get the same frame, which is made once, when it has changed.
func TestLivePages(t *testing.T) {
	r := newRig(t, nil)
	server := httptest.NewServer(r)
	defer server.Close()
	r.Start()
	one, close := frames(t, t.Context(), server.URL+"/live/")
	defer close()
	two, close2 := frames(t, t.Context(), server.URL+"/live/")
	defer close2()
	require.Contains(t, one(), "1,234")
	require.Contains(t, two(), "1,234")
	r.live.mu.Lock()
	require.Len(t, r.live.mu.scenes, 1)
	require.Equal(t, 2, r.live.mu.viewers)
	r.live.mu.Unlock()
	r.reply(api.VerbQueueList, api.QueueList{Total: 1, Queues: []api.QueueSummary{{Name: "orders", Pending: 98_765_432_109_876_543, Detail: &api.QueueDetail{}}}})
	for _, next := range []func() string{one, two} {
		for text := ""; !strings.Contains(text, "98,765,432,109,876,543"); {
			text = next()
			require.NotEmpty(t, text)
		}
	}
	// The end of the pages ends the streams.
	r.Stop(t.Context())
	for one() != "" {
	}
}

func TestLiveIsBounded(t *testing.T) {
	r := newRig(t, nil)
	p := &pages[1]
	var leaves []func()
	look := func(person int, query string) string {
		req := request(http.MethodGet, "/live/queues?"+query, nil)
		req.RemoteAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(person >> 8), byte(person)}), 1234).String()
		v, leave, refused := r.live.look(&ask{web: r.Web, principal: principal{Role: Viewer}, r: req}, p)
		require.Equal(t, v == nil, refused != "")
		if v != nil {
			leaves = append(leaves, leave)
		}
		return refused
	}
	scenes := func() int { return len(r.live.mu.scenes) }
	for i := range maxOfPerson {
		require.Empty(t, look(0, "n="+strconv.Itoa(i)+"&find="), "the page does not use n")
	}
	require.Equal(t, 1, scenes())
	require.Contains(t, look(0, "find=x"), "25 live pages", "the most of one person")
	for i := range maxScenes - 1 {
		require.Empty(t, look(1+i/maxOfPerson, "find=x"+strconv.Itoa(i)))
	}
	require.Contains(t, look(9, "find=another"), "Too many", "pages")
	for i := maxOfPerson + maxScenes - 1; i < maxViewers; i++ {
		require.Empty(t, look(10+i/maxOfPerson, ""))
	}
	require.Contains(t, look(9, ""), "Too many", "viewers")
	for _, leave := range leaves {
		leave()
	}
	require.Empty(t, r.live.mu.scenes)
	require.Empty(t, r.live.mu.of)
	require.Zero(t, r.live.mu.viewers)

	// A slow viewer gets the newest frame.
	v := &viewer{frames: make(chan []byte, 1)}
	v.show([]byte("old"))
	v.show([]byte("new"))
	require.Equal(t, "new", string(<-v.frames))
}

func TestHistory(t *testing.T) {
	var r ring
	at := time.Unix(1_000_000_000, 0)
	d := api.QueueDetail{Waits: make([]int64, len(api.WaitBounds)+1)}
	for i := range 2*historyPoints + 1 {
		d.Enqueued = int64(i) * 50
		d.Waits = slices.Clone(d.Waits)
		d.Waits[3] = int64(i) * 100
		r.add(at.Add(time.Duration(i)*historyStep), &api.QueueSummary{Pending: int64(i), Ready: int64(i) - 3, Blocked: 3, Detail: new(d)})
	}
	points := r.recent(historyPoints)
	require.Len(t, points, historyPoints, "an hour")
	for i, p := range points {
		require.Equal(t, at.Add(time.Duration(historyPoints+1+i)*historyStep).Unix(), p.at)
		require.EqualValues(t, 5, p.Enqueued)
		require.EqualValues(t, historyPoints+1+i, p.Depth)
		require.InEpsilon(t, (api.WaitBounds[2]+api.WaitBounds[3])/2, p.WaitMedian, 1e-6)
		require.EqualValues(t, 3, p.Blocked)
		require.EqualValues(t, historyPoints+1+i-3, p.Ready)
	}
	// A queue whose node was started anew counts from 0.
	d.Enqueued = 20
	r.add(at.Add(time.Duration(2*historyPoints+1)*historyStep), &api.QueueSummary{Detail: &d})
	require.EqualValues(t, 2, r.recent(1)[0].Enqueued)
}

// TestHistoryOfSamples: rates are over the times at which the owner read the queue, a sample that is
// there already changes nothing, and a clock that was set back begins anew.
func TestHistoryOfSamples(t *testing.T) {
	var r ring
	now := time.Unix(1_000_000_000, 0)
	sample := func(arrives, read time.Duration, enqueued int64) (pushed bool) {
		return r.add(now.Add(arrives), &api.QueueSummary{Detail: &api.QueueDetail{AtMs: now.Add(read).UnixMilli(), Enqueued: enqueued}})
	}
	require.False(t, sample(0, 0, 0))
	require.True(t, sample(11*time.Second, 10*time.Second, 100))
	require.EqualValues(t, 10, r.rate.Enqueued, "per second of the owner")
	require.EqualValues(t, 10, r.recent(1)[0].Enqueued)
	require.False(t, sample(21*time.Second, 10*time.Second, 100), "the same sample")
	require.EqualValues(t, 10, r.rate.Enqueued)
	require.Equal(t, now.Add(21*time.Second), r.seen)
	require.False(t, sample(22*time.Second, -time.Hour, 200), "the clock was set back")
	require.True(t, sample(32*time.Second, 10*time.Second-time.Hour, 250))
	require.EqualValues(t, 5, r.recent(1)[0].Enqueued)
}

// An hour is kept of queues in which something has been, and no longer than they are there.
func TestHistoryOfIdleQueues(t *testing.T) {
	r := newRig(t, nil)
	detail := func(enqueued int64) *api.QueueDetail { return &api.QueueDetail{Enqueued: enqueued} }
	list := func(queues ...api.QueueSummary) {
		r.reply(api.VerbQueueList, api.QueueList{Total: len(queues), Queues: queues})
		r.history.sample(r.Web)
	}
	list(api.QueueSummary{Name: "idle", Detail: detail(0)}, api.QueueSummary{Name: "done", Detail: detail(3)}, api.QueueSummary{Name: "full", Pending: 1, Detail: detail(0)})
	require.ElementsMatch(t, []string{"done", "full"}, slices.Collect(maps.Keys(r.history.mu.rings)))
	require.Equal(t, line{}, r.history.of("idle", historyPoints))
	list(api.QueueSummary{Name: "full", Detail: detail(1)})
	require.Contains(t, r.history.mu.rings, "done", "for an hour")
	r.history.mu.rings["done"].seen = time.Now().Add(-2 * time.Hour)
	list(api.QueueSummary{Name: "full", Detail: detail(1)})
	require.NotContains(t, r.history.mu.rings, "done")
}

// Queues are sorted once for all pages of a sample; equal ones are by name.
func TestSortedQueues(t *testing.T) {
	s := &snapshot{queues: []api.QueueSummary{
		{Name: "a", Pending: 1, InFlight: 1, Blocked: 3, OldestAgeMs: 5}, {Name: "b", Pending: 3, Delayed: 2, Consumers: 4}, {Name: "c", Pending: 1, InFlight: 1, OldestAgeMs: 9},
	}}
	names := func(list []*api.QueueSummary) (text string) {
		for _, q := range list {
			text += q.Name
		}
		return text
	}
	for by, want := range map[string]string{
		"depth": "bac", "nonsense": "bac", "": "bac", "name": "abc", "in_flight": "acb", "blocked": "abc", "age": "cab", "consumers": "bac",
	} {
		require.Equal(t, want, names(s.sorted(by)), by)
		require.Equal(t, want, names(s.sorted(by)), by)
	}
	require.Len(t, s.mu.orders, 6, "what nobody can sort by is not kept")
	require.Equal(t, "bc", names(s.pick("depth", func(q *api.QueueSummary) bool { return q.Name != "a" })))
}

func TestTexts(t *testing.T) {
	require.Equal(t, "9,223,372,036,854,775,807", grouped(int64(9223372036854775807)))
	require.Equal(t, "-1,000", grouped(-1000))
	require.Equal(t, "999", grouped(999))
	require.Equal(t, "1.5 s", wire.Span(1500*time.Millisecond))
	require.Equal(t, "3 h 5 min", wire.Span(185*time.Minute))
	require.Equal(t, "1.5 KiB", bytesText(1536))
	require.Equal(t, "ab…", short(3, "abcd"))
}

// A page takes a sample itself only where that is quick, or the last one is very old.
func TestPagesWaitForNoLongSample(t *testing.T) {
	r := newRig(t, nil)
	samples := func(age, took time.Duration) int {
		t.Helper()
		r.history.mu.Lock()
		r.history.mu.at, r.history.mu.took = time.Now().Add(-age), took
		r.history.mu.Unlock()
		before := len(r.of(api.VerbQueueList))
		require.Equal(t, http.StatusOK, r.get("/").Code)
		return len(r.of(api.VerbQueueList)) - before
	}
	require.Equal(t, 1, samples(-time.Hour, time.Millisecond), "there is none")
	require.Zero(t, samples(-time.Hour, time.Millisecond), "it is from a moment ago")
	require.Equal(t, 1, samples(2*freshFor, time.Millisecond))
	require.Zero(t, samples(2*freshFor, time.Hour))
	require.Equal(t, 1, samples(staleFor+time.Second, time.Hour))
}

// The page of a queue shows the texts of settings, not their JSON.
func TestSettingsAreShownAsTheyAre(t *testing.T) {
	list, err := settingsOf(wire.QueueSettings{Name: "q", FairnessHeader: `"{a}"<&{b}`, ThrottleHeaders: []string{"{a}&"}, Quantum: 2, OnFailure: "x"})
	require.NoError(t, err)
	require.Equal(t, []field{
		{"fairness_header", `"{a}"<&{b}`}, {"on_failure", "a script"}, {"quantum", "2"}, {"throttle_headers", `["{a}&"]`},
	}, list)
}
