package browser

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/css"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/web"
)

// patience bounds each wait for a page; no test fails because the machine is slow.
const patience = 2 * time.Minute

// Widths of a desktop window and of a phone, in px.
const (
	wide   = 1440
	narrow = 400
)

// chrome is the browser of all tests. The first test that needs it starts it.
var chrome struct {
	once sync.Once
	ctx  context.Context
	stop []context.CancelFunc
	err  error
}

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue { // tests mostly wait for pages
		_ = flag.Set("test.parallel", strconv.Itoa(4*goruntime.GOMAXPROCS(0)))
	}
	code := m.Run()
	if missing := missingRoutes(); code == 0 && len(missing) > 0 {
		fmt.Printf("FAIL: no test in the browser has got an answer to\n  %s\n", strings.Join(missing, "\n  "))
		code = 1
	}
	for i := len(chrome.stop) - 1; i >= 0; i-- {
		chrome.stop[i]()
	}
	os.Exit(code)
}

// asked has the patterns of [web.Routes] that the browser requested from a fila successfully.
var asked struct {
	sync.Mutex
	patterns map[string]bool
}

// table finds the pattern of a request.
var table = sync.OnceValue(func() *http.ServeMux {
	mux := http.NewServeMux()
	for _, pattern := range web.Routes() {
		mux.Handle(pattern, http.NotFoundHandler())
	}
	return mux
})

// got records a successful reply. A form counts when it has acted, which ends in a redirect; a
// confirmation page does not count. Trying a hook changes nothing and counts.
func (b *tab) got(id network.RequestID, answer *network.Response) {
	b.mu.Lock()
	method, counts := b.mu.methods[id], b.mu.counts
	b.mu.Unlock()
	u, err := url.Parse(answer.URL)
	if err != nil || !counts || !strings.HasPrefix(answer.URL, b.base) || answer.Status >= http.StatusBadRequest {
		return
	}
	_, pattern := table().Handler(&http.Request{Method: method, URL: u})
	if method == http.MethodPost && answer.Status != http.StatusSeeOther && pattern != "POST /do/try-hook" {
		return
	}
	asked.Lock()
	defer asked.Unlock()
	if asked.patterns == nil {
		asked.patterns = make(map[string]bool)
	}
	asked.patterns[pattern] = true
}

// missingRoutes returns the routes that no test has requested. It returns none if only some tests
// ran, or none for lack of a browser.
func missingRoutes() (missing []string) {
	for _, name := range []string{"test.run", "test.skip", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return nil
		}
	}
	asked.Lock()
	defer asked.Unlock()
	if len(asked.patterns) == 0 {
		return nil
	}
	for _, pattern := range web.Routes() {
		if !asked.patterns[pattern] {
			missing = append(missing, pattern)
		}
	}
	return missing
}

// findChromium returns the path of a browser, or "".
func findChromium() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	return ""
}

// needBrowser starts the browser. It skips the test without one, except in CI.
func needBrowser(t *testing.T) context.Context {
	t.Helper()
	path := findChromium()
	if path == "" {
		require.NotEqual(t, "true", os.Getenv("CI"), "chromium is missing")
		t.Skip("chromium is missing: install it, or name a browser by CHROMIUM, to test the pages in it")
	}
	chrome.once.Do(func() {
		opts := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, // the sandbox needs rights that containers lack
			chromedp.Flag("lang", "en-US"),
			// Each of them starts processes that no test needs.
			chromedp.Flag("disable-features", "Translate,SpareRendererForSitePerProcess,ProactivelySwapBrowsingInstance,BackForwardCache"),
		)
		alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
		ctx, end := chromedp.NewContext(alloc)
		chrome.ctx, chrome.stop = ctx, []context.CancelFunc{stop, end}
		chrome.err = chromedp.Do(ctx)
	})
	require.NoError(t, chrome.err)
	return chrome.ctx
}

// tab is a browser tab in one test. It keeps the complaints of the browser until [tab.quiet]
// reads them.
type tab struct {
	*target
	t    *testing.T
	base string // http://host:port

	mu struct {
		sync.Mutex
		complaints []string
		refusals   map[int64]bool // expected error statuses
		methods    map[network.RequestID]string
		counts     bool // record the requests in asked
	}
}

// target is a tab of the browser with its own cookies. Tests use it one after the other, since
// a new one costs a second of processor time.
type target struct {
	ctx context.Context
	end context.CancelFunc
	tab atomic.Pointer[tab] // hears the browser
}

// idle has the targets that no test uses.
var idle = make(chan *target, 100)

// listener reports policy violations, which the log of the browser does not have in every
// version. It calls a binding, since the policy leaves a page no other way out.
const listener = `document.addEventListener('securitypolicyviolation', e =>
	complain(e.violatedDirective + ' forbids ' + (e.blockedURI || 'inline') + ' at ' + e.sourceFile + ':' + e.lineNumber))`

// open opens a tab for pages at base. Complaints that are left at the end of the test fail it.
func open(t *testing.T, base string) *tab {
	t.Helper()
	parent := needBrowser(t)
	b := &tab{t: t, base: strings.TrimSuffix(base, "/")}
	b.mu.refusals, b.mu.methods = map[int64]bool{}, map[network.RequestID]string{}
	select {
	case b.target = <-idle:
		b.tab.Store(b)
	default:
		b.newTarget(parent)
	}
	b.look(wide, "light")
	t.Cleanup(func() {
		if b.quiet(); t.Failed() { // the page may be in any state
			b.end()
			return
		}
		b.do(chromedp.Navigate("about:blank"))
		ask(b, network.ClearBrowserCookies, cdp.Empty{})
		b.scripts(true)
		idle <- b.target
	})
	return b
}

func (b *tab) newTarget(parent context.Context) {
	b.t.Helper()
	o := new(target)
	o.ctx, o.end = chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	o.tab.Store(b)
	b.target = o
	require.NoError(b.t, chromedp.Listen(o.ctx, func(event any) { o.tab.Load().listen(event) }))
	ask(b, css.Disable, cdp.Empty{}) // the tests read pages by scripts alone
	ask(b, dom.Disable, cdp.Empty{})
	ask(b, network.Enable, network.EnableParams{})
	ask(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}) // tabs do not take the focus from each other
	ask(b, runtime.AddBinding, runtime.AddBindingParams{Name: "complain"})
	ask(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: listener})
	ask(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"}) // pages show times in the viewer's time zone
}

// listen collects the complaints of the browser.
func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *runtime.EventBindingCalled:
		b.complain("policy: %s", e.Payload)
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if thrown := e.ExceptionDetails.Exception; thrown != nil {
			text += " " + thrown.Description
		}
		b.complain("exception: %s (%s)", text, e.ExceptionDetails.URL)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var text []string
			for _, arg := range e.Args {
				text = append(text, string(arg.Value)+arg.Description)
			}
			b.complain("console %s: %s", e.Type, strings.Join(text, " "))
		}
	case *log.EventEntryAdded: // events tell more about the network than the log
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			b.complain("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventLoadingFailed: // a stream is canceled when its page closes
		if !e.Canceled {
			b.complain("request failed: %s %s %s", e.Type, e.ErrorText, e.BlockedReason)
		}
	case *network.EventRequestWillBeSent:
		if e.RedirectResponse != nil {
			b.got(e.RequestID, e.RedirectResponse)
		}
		b.mu.Lock()
		b.mu.methods[e.RequestID] = e.Request.Method
		b.mu.Unlock()
	case *network.EventResponseReceived:
		b.got(e.RequestID, e.Response)
		b.mu.Lock()
		expected := b.mu.refusals[e.Response.Status]
		b.mu.Unlock()
		if e.Response.Status >= 400 && !expected {
			b.complain("request refused: %d %s", e.Response.Status, e.Response.URL)
		}
	}
}

func (b *tab) complain(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.complaints = append(b.mu.complaints, fmt.Sprintf(format, args...))
}

// complaints returns the complaints since the last call.
func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.mu.complaints
	b.mu.complaints = nil
	return all
}

// quiet fails the test if the browser has complained.
func (b *tab) quiet() {
	b.t.Helper()
	if all := b.complaints(); len(all) > 0 {
		b.t.Errorf("the browser complains:\n  %s", strings.Join(all, "\n  "))
	}
}

// expect allows error statuses of replies from here on.
func (b *tab) expect(statuses ...int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, status := range statuses {
		b.mu.refusals[status] = true
	}
}

// do runs actions that must succeed.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// ask sends a command of the browser's protocol.
func ask[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	reply, err := chromedp.Call(ctx, command, params)
	require.NoError(b.t, err)
	return reply
}

// visit opens a path and waits until its page shows all texts.
func (b *tab) visit(path string, texts ...string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
	for _, text := range texts {
		b.shows("main", text)
	}
}

// eval evaluates an expression of JavaScript.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := try[T](b, expression)
	require.NoError(b.t, err)
	return value
}

func try[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until waits until an expression is true. Errors while a page is being replaced do not count.
func (b *tab) until(expression string) {
	b.t.Helper()
	var err error
	ok := wait(b.ctx, func() bool {
		var holds bool
		holds, err = try[bool](b, "Boolean("+expression+")")
		return err == nil && holds
	})
	if !ok {
		body, _ := try[string](b, "location.href + '\\n' + document.body.innerText")
		require.Fail(b.t, "the page does not get there", "%s (%v)\n%s", expression, err, body)
	}
}

// wait calls ask until it returns true, at most for the patience. It asks less and less often, to
// leave the processor to what it waits for.
func wait(ctx context.Context, ask func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := 5 * time.Millisecond; !ask(); pause = min(2*pause, 200*time.Millisecond) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
	}
	return true
}

// text returns the visible text of the first matching element.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("(document.querySelector(%s) || {innerText: ''}).innerText", quote(selector)))
}

// shows waits until a matching element contains a text.
func (b *tab) shows(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("[...document.querySelectorAll(%s)].some(e => e.innerText.includes(%s))", quote(selector), quote(text)))
}

// at waits until the path starts with this one and the page is loaded.
func (b *tab) at(path string) {
	b.t.Helper()
	b.until(fmt.Sprintf("(location.pathname + location.search).startsWith(%s) && document.readyState == 'complete'", quote(path)))
}

// click clicks the first visible matching element.
func (b *tab) click(selector string) {
	b.t.Helper()
	find := fmt.Sprintf("[...document.querySelectorAll(%s)].find(e => e.checkVisibility())", quote(selector))
	b.until(find)
	eval[bool](b, find+".click() || true")
}

// follow clicks the link or button with a text and waits until the next page is loaded.
func (b *tab) follow(text string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll(document.querySelector('dialog[open]') ? 'dialog a, dialog button' : 'main a, main button, main summary, nav a')].find(e => e.innerText.trim() == %s && e.checkVisibility())`, quote(text))
	b.until(find)
	eval[bool](b, "window.left = false")
	eval[bool](b, find+".click() || true")
	b.until("window.left === undefined && document.readyState == 'complete'")
}

// menu opens the menu or the form behind the button for a popover with an id.
func (b *tab) menu(id string) {
	b.t.Helper()
	b.click("[popovertarget=" + quote(id) + "]")
	b.until("document.getElementById(" + quote(id) + ").matches(':popover-open')")
}

// asks clicks the button with a text, which asks first, and waits for the dialog with a text.
func (b *tab) asks(text, question string) {
	b.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll('main button')].find(e => e.innerText.trim() == %s && e.checkVisibility())`, quote(text))
	b.until(find)
	eval[bool](b, find+".click() || true")
	b.shows("dialog[open]", question)
}

// short returns an id as pages show it.
func short(id string) string { return "…" + id[len(id)-8:] }

// does follows a button, and waits until the next page shows a note.
func (b *tab) does(text, note string) {
	b.t.Helper()
	b.follow(text)
	b.shows(".note", note)
}

// sends submits the form of an element, and waits until the next page shows a note.
func (b *tab) sends(selector, note string) {
	b.t.Helper()
	b.submit(selector)
	b.shows(".note", note)
}

// submit submits the form of an element with its last button, and waits for the next page.
func (b *tab) submit(selector string) {
	b.t.Helper()
	form := fmt.Sprintf("document.querySelector(%s)", quote(selector))
	b.until(form)
	eval[bool](b, "window.left = false")
	eval[bool](b, fmt.Sprintf("(f => { f.requestSubmit([...f.querySelectorAll('button')].pop()); return true })(%s.closest('form'))", form))
	b.until("window.left === undefined && document.readyState == 'complete'")
}

// fill inserts a text into a field, as pasting does. The field has this name in main, or
// matches a selector such as #rate.
func (b *tab) fill(name, value string) {
	b.t.Helper()
	selector := name
	if !strings.ContainsAny(name, "#[") {
		selector = fmt.Sprintf("main [name=%s]", quote(name))
	}
	field := fmt.Sprintf("document.querySelector(%s)", quote(selector))
	b.until(field + "?.checkVisibility()")
	eval[bool](b, fmt.Sprintf("(e => { e.focus(); e.value = ''; return true })(%s)", field))
	ask(b, input.InsertText, input.InsertTextParams{Text: value})
	require.Equal(b.t, value, eval[string](b, field+".value"))
}

// choose selects a value of the field with a name or, as in fill, an id.
func (b *tab) choose(name, value string) {
	b.t.Helper()
	selector := name
	if !strings.HasPrefix(name, "#") {
		selector = fmt.Sprintf("main select[name=%s]", quote(name))
	}
	field := fmt.Sprintf("document.querySelector(%s)", quote(selector))
	b.until(field + "?.checkVisibility()")
	require.Equal(b.t, value, eval[string](b, fmt.Sprintf("(e => { e.value = %s; e.dispatchEvent(new Event('change', {bubbles: true})); return e.value })(%s)", quote(value), field)))
}

// press presses a key, such as kb.Tab.
func (b *tab) press(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key))
}

// look sets the width of the window and the preferred colour scheme, light or dark.
func (b *tab) look(width int64, scheme string) {
	b.t.Helper()
	height := int64(400) // less is drawn
	if os.Getenv("SCREENSHOTS") != "" {
		height = 800
	}
	ask(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width <= narrow})
	ask(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// scripts enables or disables scripts from the next page on.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	ask(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

// printed shows the page as on paper.
func (b *tab) printed() {
	b.t.Helper()
	ask(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
}

// shot saves a screenshot of the whole page, if SCREENSHOTS is set.
func (b *tab) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(dir, 0o750))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// window saves a screenshot of the visible part, if SCREENSHOTS is set.
func (b *tab) window(name string) {
	b.t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		return
	}
	require.NoError(b.t, os.MkdirAll(dir, 0o750))
	shot := ask(b, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o600))
}

// finding is a problem that axe reports.
type finding struct {
	ID     string
	Impact string
	Help   string
	Nodes  []string
}

func (f finding) String() string {
	return fmt.Sprintf("%s (%s): %s\n    %s", f.ID, f.Impact, f.Help, strings.Join(f.Nodes, "\n    "))
}

// axe is axe-core with the checksum of the published file.
var axe = sync.OnceValues(func() (string, error) {
	const sum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
	text, err := os.ReadFile(filepath.Join("testdata", "axe", "axe.min.js"))
	if got := sha256.Sum256(text); err == nil && hex.EncodeToString(got[:]) != sum {
		err = fmt.Errorf("axe.min.js is not what was published: its SHA-256 is %x", got)
	}
	return string(text), err
})

// lookRules are the rules of axe that depend on the width and the colours of a page.
const lookRules = `, runOnly: ['color-contrast', 'link-in-text-block', 'scrollable-region-focusable']`

// serious returns the serious and critical findings of axe. option selects rules; "" takes all.
func (b *tab) serious(option string) (found []finding) {
	b.t.Helper()
	script, err := axe()
	require.NoError(b.t, err)
	question := `axe.run(document, {resultTypes: ['violations']` + option + `}).then(r => JSON.stringify(r.violations
		.filter(v => v.impact == 'serious' || v.impact == 'critical')
		.map(v => ({id: v.id, impact: v.impact, help: v.help, nodes: v.nodes.map(n => n.html + ' ' + n.any.map(a => a.message).join(' '))}))))`
	if !eval[bool](b, "typeof axe == 'object'") {
		eval[int](b, script+"\n;0")
	}
	require.NoError(b.t, json.Unmarshal([]byte(eval[string](b, question)), &found))
	return found
}

// sound checks the page wide and light, and narrow and dark: axe finds nothing serious, and the
// page is not wider than its window. It saves screenshots under the name.
func (b *tab) sound(name string) {
	b.t.Helper()
	b.fits(name, wide, "light")
	b.usable(name, "")
	b.fits(name+"-400-dark", narrow, "dark")
	b.usable(name+"-400-dark", lookRules)
	b.look(wide, "light")
	b.quiet()
}

// fits checks that the page is not wider than a window of this width, in one colour scheme.
func (b *tab) fits(name string, width int64, scheme string) {
	b.t.Helper()
	b.look(width, scheme)
	b.shot(name)
	if over := eval[int](b, "document.documentElement.scrollWidth - "+fmt.Sprint(width)); over > 0 {
		b.t.Errorf("%s: the page is %d px wider than its window", name, over)
	}
}

// usable fails the test for each finding of axe.
func (b *tab) usable(name, option string) {
	b.t.Helper()
	for _, f := range b.serious(option) {
		b.t.Errorf("%s: axe finds %s", name, f)
	}
}

// reachable walks through the page by keyboard: Tab reaches every visible link, button and
// field in document order, and each has a visible focus and a name. Elements that scripts add
// meanwhile do not count.
func (b *tab) reachable() {
	b.t.Helper()
	const stops = `(() => {
		window.stops = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
			.filter(e => !e.disabled && e.checkVisibility({visibilityProperty: true}))
			.filter(e => !e.closest('details:not([open]) > :not(summary)'))
			.filter(e => e.type != 'radio' || e.checked || !document.querySelector('input[type=radio][name="' + e.name + '"]:checked'))
		document.body.tabIndex = -1 // Tab starts here
		document.body.focus()
		return stops.length
	})()`
	const here = `(() => {
		document.body.removeAttribute('tabindex')
		const e = document.activeElement, s = getComputedStyle(e)
		return {
			place: window.stops.indexOf(e), html: e.outerHTML.slice(0, 200),
			marked: s.outlineStyle != 'none' && parseFloat(s.outlineWidth) > 0 || s.boxShadow != 'none',
			named: Boolean(e.innerText || e.ariaLabel || e.labels && e.labels.length || e.title || e.value && e.type == 'submit'),
		}
	})()`
	n := eval[int](b, stops)
	require.Positive(b.t, n, "there is nothing to reach")
	last := -1
	for range n {
		ask(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Tab", Code: "Tab", WindowsVirtualKeyCode: 9})
		at := eval[struct {
			Place         int
			HTML          string
			Marked, Named bool
		}](b, here)
		if at.Place < 0 { // added meanwhile, or another kind of element, such as a part that scrolls
			continue
		}
		require.Greater(b.t, at.Place, last, "Tab leads back: %s", at.HTML)
		require.True(b.t, at.Marked, "it is not shown that this is meant: %s", at.HTML)
		require.True(b.t, at.Named, "it has no name: %s", at.HTML)
		last = at.Place
	}
}

// quote returns a text as a JavaScript string.
func quote(text string) string {
	data, err := json.Marshal(text)
	if err != nil {
		panic(errors.Join(errors.New("a text cannot be quoted"), err))
	}
	return string(data)
}
