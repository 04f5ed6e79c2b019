package web

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
)

const (
	viewerToken   = "viewer-token-0123456789"
	operatorToken = "operator-token-0123456789"
)

func withTokens(t *testing.T) func(*config.HTTPConfig) {
	viewer, operator := tokenFile(t, viewerToken), tokenFile(t, operatorToken)
	return func(c *config.HTTPConfig) {
		c.Addr, c.ViewerToken, c.OperatorToken = "0.0.0.0:8222", viewer, operator
	}
}

// Roles by configuration and request.
func TestWhoMay(t *testing.T) {
	tokens := withTokens(t)
	proxy := func(c *config.HTTPConfig) {
		c.TrustedProxies, c.UserHeader, c.RoleHeader = []string{"10.0.0.0/8"}, "X-User", "X-Role"
	}
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	from := func(addr string, more ...func(*http.Request)) func(*http.Request) {
		return func(r *http.Request) {
			r.RemoteAddr = addr
			for _, f := range more {
				f(r)
			}
		}
	}
	for name, tc := range map[string]struct {
		config  func(*config.HTTPConfig)
		request func(*http.Request)
		role    Role
		user    string
		refused int
	}{
		"loopback":                  {role: Operator, user: "web"},
		"loopback, IPv6":            {request: from("[::1]:5555"), role: Operator, user: "web"},
		"localhost":                 {config: func(c *config.HTTPConfig) { c.Addr = "localhost:8222" }, role: Operator, user: "web"},
		"an unknown proxy":          {request: header("X-Forwarded-For", "192.0.2.1"), refused: 403},
		"an unknown proxy, RFC7239": {request: header("Forwarded", "for=192.0.2.1"), refused: 403},
		"an unknown proxy, Via":     {request: header("Via", "1.1 x"), refused: 403},
		"an unknown proxy, bare":    {request: func(r *http.Request) { r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0 }, refused: 403},
		"an unknown proxy, a cloud": {request: header("CF-Connecting-IP", "192.0.2.1"), refused: 403},
		"an unknown proxy, port":    {request: header("X-Forwarded-Port", "443"), refused: 403},
		"an unknown proxy, user":    {request: header("Remote-User", "ann"), refused: 403},
		"this host by its address":  {request: func(r *http.Request) { r.Host = "192.0.2.1:8222" }, refused: 421},
		"its address with a token":  {config: tokens, request: func(r *http.Request) { r.Host = "192.0.2.1:8222" }},
		"not from here":             {request: from("192.0.2.1:5555"), refused: 403},
		"all addresses, no token":   {config: func(c *config.HTTPConfig) { c.Addr = ":8222" }, refused: 403},
		"an address, no token":      {config: func(c *config.HTTPConfig) { c.Addr = "192.0.2.1:8222" }, refused: 403},
		"a base path, no token":     {config: func(c *config.HTTPConfig) { c.BasePath = "/fila" }, refused: 403},
		"a proxy without a header":  {config: func(c *config.HTTPConfig) { c.TrustedProxies = []string{"127.0.0.1"} }, refused: 403},

		"nothing shown":     {config: tokens},
		"the viewer's":      {config: tokens, request: header("Authorization", "Bearer "+viewerToken), role: Viewer, user: "web viewer"},
		"the operator's":    {config: tokens, request: header("Authorization", "Bearer "+operatorToken), role: Operator, user: "web operator"},
		"a wrong one":       {config: tokens, request: header("Authorization", "Bearer no"), refused: 401},
		"an empty one":      {config: tokens, request: header("Authorization", "Bearer "), refused: 401},
		"a made up session": {config: tokens, request: header("Cookie", cookieName+"=operator.9999999999.00"), role: Nobody},
		"no role":           {config: tokens, request: header("Cookie", cookieName+"=nobody.9999999999.00"), role: Nobody},

		"by a proxy":               {config: proxy, request: from("10.1.2.3:5", header("X-User", "ann", "X-Role", "operator")), role: Operator, user: "web ann"},
		"no role by a proxy":       {config: proxy, request: from("10.1.2.3:5", header("X-User", "ann")), refused: 403},
		"another role":             {config: proxy, request: from("10.1.2.3:5", header("X-User", "ann", "X-Role", "root")), refused: 403},
		"another person's header":  {config: proxy, request: from("192.0.2.1:5", header("X-User", "ann", "X-Role", "operator"))},
		"nobody by a proxy":        {config: proxy, request: from("10.1.2.3:5")},
		"this host is no proxy":    {config: proxy, request: header("X-User", "ann", "X-Role", "operator")},
		"a name with a line break": {config: proxy, request: from("10.1.2.3:5", header("X-User", "a\x01b")), refused: 403},
		"roles not by the proxy": {
			config: func(c *config.HTTPConfig) { proxy(c); c.RoleHeader = "" }, request: from("10.1.2.3:5", header("X-User", "ann", "X-Role", "operator")),
			role: Viewer, user: "web ann",
		},

		"another host":           {request: func(r *http.Request) { r.Host = "evil.example:8222" }, refused: 421},
		"localhost as a host":    {request: func(r *http.Request) { r.Host = "LocalHost:8222" }, role: Operator, user: "web"},
		"an address as a host":   {request: func(r *http.Request) { r.Host = "[::1]:8222" }, role: Operator, user: "web"},
		"a host that is named":   {config: func(c *config.HTTPConfig) { c.Hosts = []string{"fila.example"} }, request: func(r *http.Request) { r.Host = "Fila.example." }, role: Operator, user: "web"},
		"a host beside a named":  {config: func(c *config.HTTPConfig) { tokens(c); c.Hosts = []string{"fila.example"} }, request: func(r *http.Request) { r.Host = "evil.example" }, refused: 421},
		"any host with a token":  {config: tokens, request: func(r *http.Request) { r.Host = "fila.example" }},
		"no host but a loopback": {request: func(r *http.Request) { r.Host = "" }, refused: 421},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default().HTTP
			if tc.config != nil {
				tc.config(&cfg)
			}
			a, err := newAccess(cfg, time.Now, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			r := request(http.MethodGet, "/", nil)
			if tc.request != nil {
				tc.request(r)
			}
			somebody, refused := a.whose(r)
			if tc.refused != 0 {
				require.NotNil(t, refused)
				require.Equal(t, tc.refused, refused.status, refused.text)
				return
			}
			require.Nil(t, refused, "%+v", refused)
			require.Equal(t, tc.role, somebody.Role)
			require.Equal(t, tc.user, somebody.Name)
		})
	}
}

func TestTokensAreChecked(t *testing.T) {
	for name, tc := range map[string]struct{ viewer, operator, mistake string }{
		"short":    {"short", operatorToken, "http.viewer_token: "},
		"same":     {viewerToken, viewerToken, "are the same token"},
		"two":      {"0123456789 0123456789", operatorToken, "one line of 16 to"},
		"unicode":  {"0123456789012345é", operatorToken, "printable ASCII"},
		"none":     {"", operatorToken, "one line of 16"},
		"are good": {viewerToken, operatorToken, ""},
	} {
		cfg := config.Default().HTTP
		cfg.ViewerToken, cfg.OperatorToken = tokenFile(t, tc.viewer), tokenFile(t, tc.operator)
		_, err := newAccess(cfg, time.Now, slog.New(slog.DiscardHandler))
		if tc.mistake == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, tc.mistake, name)
	}
	cfg := config.Default().HTTP
	cfg.OperatorToken = "nowhere"
	_, err := newAccess(cfg, time.Now, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "http.operator_token: open nowhere")
}

// login shows a token to the page and returns what it answers with.
func login(r *rig, token, to string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	req := request(http.MethodPost, r.base+"/login", url.Values{"token": {token}, "to": {to}})
	for _, f := range change {
		f(req)
	}
	return r.serve(req)
}

func TestLogin(t *testing.T) {
	r := newRig(t, func(c *config.HTTPConfig) { withTokens(t)(c); c.BasePath = "/fila" })
	clock := &clock{time.Unix(1_000_000_000, 0)}
	r.access.now = clock.now

	rec := r.get("/fila/?find=x")
	require.Equal(t, http.StatusSeeOther, rec.Code)
	require.Equal(t, "/fila/login?to=%2Ffila%2F%3Ffind%3Dx", rec.Header().Get("Location"))
	require.Equal(t, http.StatusUnauthorized, r.post("/fila/do/pause").Code, "a form is not carried out later")
	rec = r.get("/fila/login?to=%2Ffila%2F%3Ffind%3Dx")
	require.Equal(t, http.StatusOK, rec.Code)
	require.Contains(t, rec.Body.String(), `value="/fila/?find=x"`)

	rec = login(r, "wrong", "/fila/")
	require.Equal(t, http.StatusUnauthorized, rec.Code)
	require.Contains(t, rec.Body.String(), "The token is wrong")
	require.Empty(t, rec.Result().Cookies())

	rec = login(r, operatorToken+"\n", "/fila/?find=x")
	require.Equal(t, http.StatusSeeOther, rec.Code)
	require.Equal(t, "/fila/?find=x", rec.Header().Get("Location"))
	cookies := rec.Result().Cookies()
	require.Len(t, cookies, 1)
	c := cookies[0]
	require.True(t, c.HttpOnly && c.SameSite == http.SameSiteStrictMode && c.Path == "/fila/" && !c.Secure)
	require.NotContains(t, c.Value, operatorToken)

	with := func(value string) int {
		req := request(http.MethodGet, "/fila/", nil)
		req.AddCookie(&http.Cookie{Name: cookieName, Value: value})
		return r.serve(req).Code
	}
	require.Equal(t, http.StatusOK, with(c.Value))
	require.Equal(t, http.StatusSeeOther, with(strings.Replace(c.Value, "operator", "viewer", 1)), "it is signed")
	clock.at = clock.at.Add(session)
	require.Equal(t, http.StatusSeeOther, with(c.Value), "it ends")

	rec = r.post("/fila/logout")
	require.Equal(t, http.StatusSeeOther, rec.Code)
	require.Negative(t, rec.Result().Cookies()[0].MaxAge)
}

// A session ends with its token, and holds at every node that has the same.
func TestSessionsAreOfTheToken(t *testing.T) {
	one, same := newRig(t, withTokens(t)), newRig(t, withTokens(t))
	other := newRig(t, func(c *config.HTTPConfig) { c.OperatorToken = tokenFile(t, "another-token-0123456789") })
	value := one.access.newSession(Operator)
	require.Equal(t, Operator, same.access.readSession(value))
	require.Equal(t, Nobody, other.access.readSession(value))
}

func TestCookiesAreSecureBehindHTTPS(t *testing.T) {
	r := newRig(t, func(c *config.HTTPConfig) { withTokens(t)(c); c.TrustedProxies = []string{"10.0.0.1"} })
	https := func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }
	rec := login(r, viewerToken, "/", https)
	require.False(t, rec.Result().Cookies()[0].Secure, "anybody can say so")
	rec = login(r, viewerToken, "/", https, func(r *http.Request) { r.RemoteAddr = "10.0.0.1:3" })
	require.True(t, rec.Result().Cookies()[0].Secure)
}

// Wrong tokens are counted by address, and all together; a right one is taken whatever was
// tried before.
func TestWrongTokensAreLimited(t *testing.T) {
	r := newRig(t, func(c *config.HTTPConfig) { withTokens(t)(c); c.TrustedProxies = []string{"10.0.0.1"} })
	clock := &clock{time.Unix(1_000_000_000, 0)}
	r.access.now = clock.now
	by := func(proxy, addr string) func(*http.Request) {
		return func(r *http.Request) { r.RemoteAddr = proxy; r.Header.Set("X-Forwarded-For", addr) }
	}
	for range maxFailures {
		require.Equal(t, http.StatusUnauthorized, login(r, "wrong", "/", by("10.0.0.1:3", "6.6.6.6, 192.0.2.1")).Code)
	}
	by1 := by("10.0.0.1:3", "7.7.7.7, 192.0.2.1")
	require.Equal(t, http.StatusTooManyRequests, login(r, "wrong", "/", by1).Code)
	require.Equal(t, http.StatusSeeOther, login(r, operatorToken, "/", by1).Code, "the right one")
	require.Equal(t, http.StatusUnauthorized, login(r, "wrong", "/", by("10.0.0.1:3", "192.0.2.2")).Code)
	require.Equal(t, http.StatusUnauthorized, login(r, "wrong", "/", by("192.0.2.7:3", "192.0.2.1")).Code, "only a proxy can say for which address")
	clock.at = clock.at.Add(time.Minute)
	require.Equal(t, http.StatusUnauthorized, login(r, "wrong", "/", by1).Code)

	// From all addresses together.
	for i := range maxAllFailures {
		login(r, "wrong", "/", by("10.0.0.1:3", netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}).String()))
	}
	require.Equal(t, http.StatusTooManyRequests, login(r, "wrong", "/", by("10.0.0.1:3", "203.0.113.1")).Code)
	require.Equal(t, http.StatusSeeOther, login(r, operatorToken, "/", by("10.0.0.1:3", "203.0.113.1")).Code)
	req := request(http.MethodGet, "/", nil)
	req.Header.Set("Authorization", "Bearer "+viewerToken)
	require.Equal(t, http.StatusOK, r.serve(req).Code)
}

// TestWrongTokensAreLogged shows them to a page and as a Bearer token.
func TestWrongTokensAreLogged(t *testing.T) {
	r := newRig(t, withTokens(t))
	var log bytes.Buffer
	r.access.log = slog.New(slog.NewTextHandler(&log, nil))
	login(r, "wrong", "/")
	req := request(http.MethodGet, "/", nil)
	req.Header.Set("Authorization", "Bearer wrong")
	require.Equal(t, http.StatusUnauthorized, r.serve(req).Code)
	require.Equal(t, 2, strings.Count(log.String(), `msg="a login with a wrong token"`))
	require.Contains(t, log.String(), "address=")
}

func TestFailuresAreBounded(t *testing.T) {
	var f failures
	now := time.Unix(1_000_000_000, 0)
	for i := range 3 * maxAllFailures {
		addr := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		if !f.tooMany(addr, now) {
			f.add(addr, now)
		}
	}
	require.Len(t, f.by, maxAllFailures)
	for i := range maxFailures {
		f.add(netip.MustParseAddr("2001:db8::"+string(rune('1'+i%9))), now.Add(time.Minute))
	}
	require.True(t, f.tooMany(netip.MustParseAddr("2001:db8::ffff"), now.Add(time.Minute)), "one owner has many addresses")
	require.False(t, f.tooMany(netip.MustParseAddr("2001:db8:0:1::1"), now.Add(time.Minute)))
}

func TestMetricsBehindTheToken(t *testing.T) {
	r := newRig(t, withTokens(t))
	h := r.Guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	code := func(token string) int {
		req := request(http.MethodGet, "/metrics", nil)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		return rec.Code
	}
	require.Equal(t, http.StatusUnauthorized, code(""))
	require.Equal(t, http.StatusUnauthorized, code("wrong"))
	require.Equal(t, http.StatusTeapot, code(viewerToken))
}
