package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/filaq/fila/sidecar/config"
)

// Role is what a principal may do.
type Role uint8

// The roles, from least to most rights.
const (
	Nobody Role = iota
	Viewer
	Operator
)

var roleNames = [...]string{"nobody", "viewer", "operator"}

func (r Role) String() string { return roleNames[r] }

// principal is the sender of a request.
type principal struct {
	Role  Role
	Name  string // for the audit log
	Login bool   // logged in by a cookie, so that a logout is possible
}

const (
	minToken   = 16 // characters
	maxToken   = 4096
	maxUser    = 128 // bytes
	cookieName = "fila_session"
	session    = 12 * time.Hour
)

// access authenticates requests.
type access struct {
	open     bool // every loopback client is an operator
	now      func() time.Time
	cfg      config.HTTPConfig
	proxies  []netip.Prefix
	tokens   [Operator + 1]string // by role; "": none
	sums     [Operator + 1][sha256.Size]byte
	failures failures
	log      *slog.Logger
}

// CheckConfig reads the files that the pages need and returns what is wrong with them.
func CheckConfig(cfg config.HTTPConfig) error {
	_, err := newAccess(cfg, time.Now, slog.New(slog.DiscardHandler))
	return err
}

func newAccess(cfg config.HTTPConfig, now func() time.Time, log *slog.Logger) (*access, error) {
	a := &access{open: cfg.Open(), now: now, cfg: cfg, log: log}
	var err error
	if a.proxies, err = cfg.Proxies(); err != nil {
		return nil, err
	}
	if a.tokens[Viewer], err = readToken("http.viewer_token", cfg.ViewerToken); err != nil {
		return nil, err
	}
	if a.tokens[Operator], err = readToken("http.operator_token", cfg.OperatorToken); err != nil {
		return nil, err
	}
	if a.tokens[Viewer] != "" && a.tokens[Viewer] == a.tokens[Operator] {
		return nil, fmt.Errorf("http.viewer_token and http.operator_token are the same token")
	}
	for role, token := range a.tokens {
		a.sums[role] = sha256.Sum256([]byte(token))
	}
	return a, nil
}

func readToken(key, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: %s: allowed is one line of %d to %d printable ASCII characters without spaces", key, file, minToken, maxToken)
	}
	return token, nil
}

// possible reports whether any request can be allowed.
func (a *access) possible() bool {
	return a.open || a.tokens[Viewer] != "" || a.tokens[Operator] != "" || a.cfg.UserHeader != ""
}

// refusal is the reason to refuse a request.
type refusal struct {
	status int
	text   string
}

// whose authenticates a request. A refusal is final; a nil refusal with [Nobody] means that
// a login may help.
func (a *access) whose(r *http.Request) (principal, *refusal) {
	if err := a.checkHost(r); err != nil {
		return principal{}, err
	}
	peer, behind := a.peer(r)
	switch {
	case a.open:
		return a.local(r, peer)
	case !a.possible():
		return principal{}, &refusal{http.StatusForbidden, "These pages are disabled: they are reachable from other hosts (http.addr, or a proxy), and the configuration has no token and no user header. Set http.viewer_token or http.operator_token (files), or http.trusted_proxies with http.user_header."}
	}
	if behind && a.cfg.UserHeader != "" {
		if user := r.Header.Get(a.cfg.UserHeader); user != "" {
			return a.named(r, user)
		}
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return a.bearer(r, token)
	}
	if cookie, err := r.Cookie(cookieName); err == nil {
		if role := a.readSession(cookie.Value); role != Nobody {
			return principal{Role: role, Name: "web " + role.String(), Login: true}, nil
		}
	}
	return principal{}, nil
}

// byProxy returns the evidence that r came through a proxy, or "". A proxy that adds none
// of these headers, speaks HTTP/1.1 and names fila as the host looks like a browser on this
// host.
func byProxy(r *http.Request) string {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") || strings.HasPrefix(name, "X-Original-") || strings.HasPrefix(name, "X-Envoy-") ||
			strings.HasPrefix(name, "Cf-") || strings.HasPrefix(name, "Tailscale-") || slices.Contains(proxyHeaders[:], name) {
			return name
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return r.Proto // browsers do not use it, nginx does by default
	}
	return ""
}

// proxyHeaders are further headers that proxies and load balancers add, in canonical form.
var proxyHeaders = [...]string{
	"Client-Ip", "Fastly-Client-Ip", "Forwarded", "Proxy-Client-Ip", "Remote-User", "True-Client-Ip", "Via", "Wl-Proxy-Client-Ip",
	"X-Amzn-Trace-Id", "X-Appengine-Remote-Addr", "X-Client-Ip", "X-Cloud-Trace-Context", "X-Cluster-Client-Ip", "X-Forwarder-For",
	"X-Proxyuser-Ip", "X-Real-Ip", "X-Remote-User", "X-Scheme",
}

// local treats every loopback client as an operator, unless the request came through a
// proxy that the configuration does not name.
func (a *access) local(r *http.Request, peer netip.Addr) (principal, *refusal) {
	if by := byProxy(r); by != "" {
		return principal{}, &refusal{http.StatusForbidden, "This request came through a proxy (" + by + "), and fila does not know the roles of its users. Set http.trusted_proxies with http.user_header, or http.viewer_token and http.operator_token (files)."}
	}
	if !peer.IsLoopback() {
		return principal{}, &refusal{http.StatusForbidden, "Only browsers on this host may see these pages, since the configuration has no token."}
	}
	return principal{Role: Operator, Name: "web"}, nil
}

// named returns the principal that a trusted proxy names.
func (a *access) named(r *http.Request, user string) (principal, *refusal) {
	if len(user) > maxUser || !utf8.ValidString(user) || strings.ContainsFunc(user, unicode.IsControl) {
		return principal{}, &refusal{http.StatusForbidden, "The user name from the proxy is invalid: allowed are up to 128 bytes of UTF-8 without control characters."}
	}
	w := principal{Role: Viewer, Name: "web " + user}
	switch role := r.Header.Get(a.cfg.RoleHeader); {
	case a.cfg.RoleHeader == "" || role == Viewer.String():
	case role == Operator.String():
		w.Role = Operator
	default:
		return principal{}, &refusal{http.StatusForbidden, fmt.Sprintf("The proxy gives %s the role %q: allowed are viewer and operator.", user, role)}
	}
	return w, nil
}

func (a *access) bearer(r *http.Request, token string) (principal, *refusal) {
	role, late := a.login(r, token)
	switch {
	case late != nil:
		return principal{}, late
	case role == Nobody:
		return principal{}, &refusal{http.StatusUnauthorized, "The token is wrong."}
	}
	return principal{Role: role, Name: "web " + role.String()}, nil
}

// login returns the role of a token. A right token always counts, however many wrong ones
// there were: the limit on wrong tokens must not lock out its holder, and tokens are too
// long to guess. A comparison costs one hash of at most maxToken bytes.
func (a *access) login(r *http.Request, token string) (Role, *refusal) {
	if len(token) <= maxToken {
		given := sha256.Sum256([]byte(token))
		for _, role := range []Role{Operator, Viewer} {
			if a.tokens[role] != "" && subtle.ConstantTimeCompare(given[:], a.sums[role][:]) == 1 {
				return role, nil
			}
		}
	}
	peer, _ := a.peer(r)
	now := a.now()
	if a.failures.tooMany(peer, now) {
		return Nobody, &refusal{http.StatusTooManyRequests, "The token is wrong, like too many before it. Try again in a minute."}
	}
	a.failures.add(peer, now)
	a.log.Warn("a login with a wrong token", "remote", r.RemoteAddr, "address", peer.String())
	return Nobody, nil
}

// A session is "role.end.mac". It needs no state, is valid at every node with the same
// token, and ends with the token.

func (a *access) newSession(role Role) string {
	text := role.String() + "." + strconv.FormatInt(a.now().Add(session).Unix(), 10)
	return text + "." + a.sign(role, text)
}

func (a *access) sign(role Role, text string) string {
	mac := hmac.New(sha256.New, []byte(a.tokens[role]))
	mac.Write([]byte("fila session\n" + text))
	return hex.EncodeToString(mac.Sum(nil))
}

func (a *access) readSession(value string) Role {
	name, rest, _ := strings.Cut(value, ".")
	end, mac, _ := strings.Cut(rest, ".")
	role := Role(max(slices.Index(roleNames[:], name), 0))
	if role == Nobody || a.tokens[role] == "" || !hmac.Equal([]byte(mac), []byte(a.sign(role, name+"."+end))) {
		return Nobody
	}
	if unix, err := strconv.ParseInt(end, 10, 64); err != nil || a.now().Unix() >= unix {
		return Nobody
	}
	return role
}

// cookie returns the cookie of a session; an empty value ends the session.
func (a *access) cookie(r *http.Request, value string) *http.Cookie {
	c := &http.Cookie{
		Name: cookieName, Value: value, Path: a.cfg.BasePath + "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: a.encrypted(r), MaxAge: int(session.Seconds()),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// encrypted reports whether the browser speaks HTTPS.
func (a *access) encrypted(r *http.Request) bool {
	_, behind := a.peer(r)
	return r.TLS != nil || behind && r.Header.Get("X-Forwarded-Proto") == "https"
}

// peer returns the client address: the last address of the request's path that is no
// trusted proxy. behind reports whether the request came through a proxy.
func (a *access) peer(r *http.Request) (addr netip.Addr, behind bool) {
	addr = address(r.RemoteAddr)
	if !a.trusts(addr) {
		return addr, false
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		next := address(strings.TrimSpace(hop))
		if !next.IsValid() {
			break
		}
		if addr = next; !a.trusts(addr) {
			break
		}
	}
	return addr, true
}

// person identifies a principal as well as possible: by name and address.
func (a *access) person(q *ask) string {
	peer, _ := a.peer(q.r)
	return q.principal.Name + " " + neighbourhood(peer).String()
}

func (a *access) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(a.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// address parses an address with or without a port; the zero value if it is invalid.
func address(text string) netip.Addr {
	if both, err := netip.ParseAddrPort(text); err == nil {
		return both.Addr().Unmap().WithZone("")
	}
	addr, _ := netip.ParseAddr(text)
	return addr.Unmap().WithZone("")
}

// checkHost prevents DNS rebinding: another site's name may resolve to this host, and a
// browser would let its pages read our answers.
func (a *access) checkHost(r *http.Request) *refusal {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	switch {
	case host == "localhost" || err == nil && (!a.open || addr.Unmap().IsLoopback()):
		return nil
	case len(a.cfg.Hosts) == 0 && !a.open:
		return nil // credentials are not sent to another name
	case slices.ContainsFunc(a.cfg.Hosts, func(allowed string) bool { return strings.EqualFold(allowed, host) }):
		return nil
	}
	return &refusal{http.StatusMisdirectedRequest, fmt.Sprintf("The host name %q is not allowed: use localhost or the address of http.addr, or add the name to http.hosts.", host)}
}

// failures counts wrong tokens: at most maxFailures per minute and address, and
// maxAllFailures in all. It remembers no more addresses than that.
type failures struct {
	sync.Mutex
	minute int64
	all    int
	by     map[netip.Prefix]int
}

const (
	maxFailures    = 10
	maxAllFailures = 1000
)

func (f *failures) tooMany(addr netip.Addr, now time.Time) bool {
	f.Lock()
	defer f.Unlock()
	f.turn(now)
	return f.all >= maxAllFailures || f.by[neighbourhood(addr)] >= maxFailures
}

func (f *failures) add(addr netip.Addr, now time.Time) {
	f.Lock()
	defer f.Unlock()
	f.turn(now)
	f.all++
	f.by[neighbourhood(addr)]++
}

func (f *failures) turn(now time.Time) {
	if minute := now.Unix() / 60; minute != f.minute || f.by == nil {
		f.minute, f.all, f.by = minute, 0, make(map[netip.Prefix]int)
	}
}

// neighbourhood is the network that one owner usually has.
func neighbourhood(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // zero without an address
	return p
}
