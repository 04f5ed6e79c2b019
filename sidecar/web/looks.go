package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"math"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

//go:embed templates
var templates embed.FS

// looks has the templates: layout.html is common to all pages, and each other file of
// templates/ is a page with "main" and, if it has a live part, "live". A page is parsed at
// its first use: the trees of all pages are megabytes of small objects, which every garbage
// collection would walk even if no page is used.
//
// Live parts have exact times, which the script turns into relative ones. So a part that has not
// changed is not sent again because time has passed.
type looks struct {
	pages, frames map[string]func() (*template.Template, error) // by name
}

func newLooks(base string) (looks, error) {
	l := looks{make(map[string]func() (*template.Template, error)), make(map[string]func() (*template.Template, error))}
	files, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return l, err
	}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" {
			continue
		}
		parse := func(funcs template.FuncMap) (*template.Template, error) {
			return template.New("").Funcs(funcs).ParseFS(templates, "templates/layout.html", "templates/components/*.html", "templates/parts/*.html", file)
		}
		l.pages[name] = sync.OnceValues(func() (*template.Template, error) { return parse(funcs(base)) })
		l.frames[name] = sync.OnceValues(func() (*template.Template, error) {
			exact := funcs(base)
			exact["ago"] = func(text string) string { return text }
			return parse(exact)
		})
	}
	return l, nil
}

func (l looks) page(out io.Writer, name string, v *view) error {
	return part(out, l.pages, name, "layout", v)
}

func (l looks) live(out io.Writer, name string, v *view) error {
	if name == "error" {
		return part(out, l.frames, name, "main", v)
	}
	return part(out, l.frames, name, "changing", v)
}

func part(out io.Writer, from map[string]func() (*template.Template, error), name, part string, v *view) error {
	parse, ok := from[name]
	if !ok {
		return fmt.Errorf("there is no template %s", name)
	}
	t, err := parse()
	if err != nil {
		return err
	}
	var made bytes.Buffer
	if err := t.ExecuteTemplate(&made, part, v); err != nil {
		return err
	}
	_, err = out.Write(unturned(made.Bytes()))
	return err
}

// turners are invisible characters that change the direction of text.
const turners = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

// turned matches each of them, and values and textareas, which a form sends back unchanged.
// Quotes within a text are escaped.
var turned = regexp.MustCompile(`(?s)<textarea.*?</textarea>| value="[^"]*"|[` + turners + `]`)

// unturned shows turners as code points, such as ⟨U+202E⟩, except in form fields.
func unturned(page []byte) []byte {
	if !turns(page) {
		return page
	}
	return turned.ReplaceAllFunc(page, func(found []byte) []byte {
		if r, n := utf8.DecodeRune(found); n == len(found) {
			return fmt.Appendf(nil, "⟨%U⟩", r)
		}
		return found
	})
}

// turns reports whether a text has turners. It first searches for their first UTF-8 bytes,
// which are rare.
func turns(text []byte) bool {
	for _, begin := range []string{"\u061c", "\xe2\x80", "\xe2\x81"} {
		if bytes.Contains(text, []byte(begin)) {
			return bytes.ContainsAny(text, turners)
		}
	}
	return false
}

// funcs are the functions of templates. Templates escape their results.
func funcs(base string) template.FuncMap {
	return template.FuncMap{
		// href returns the address of a page from its path and query pairs.
		"href": func(path string, query ...string) string { return href(base, path, query...) },
		// segment escapes a name for a path.
		"segment": url.PathEscape,
		"asset":   func(name string) string { return assetPath(base, name) },
		"num":     grouped,
		"count":   howMany,
		"rate":    rateText,
		"rate32":  func(v float64) string { return rateText(float32(v)) },
		"inc":     func(n int) int { return n + 1 },
		"wait":    waitText,
		"ms":      spanMs,
		"bytes":   bytesText,
		"percent": func(part float64) string { return strconv.FormatFloat(part*100, 'f', 1, 64) + " %" },
		"spark":   spark,
		// hundred returns a percentage, for lengths in an svg.
		"hundred":  func(part float64) string { return strconv.FormatFloat(min(max(part, 0), 1)*100, 'f', 2, 64) },
		"gatePath": func(gate string) string { return gatePath(base, gate) },
		"dict":     dict,
		"short":    short,
		"list":     func(all ...string) []string { return all },
		"int64":    func(n int) int64 { return int64(n) },
		"filter":   filterFields,
		"skipped":  api.SkippedText,
		"waitsFor": api.WaitsForText,
		"pieces":   pieces,
		"shortID":  shortID,
		"icon":     icon,
		"ago":      ago,
		"earlier":  api.EarlierText,
		"later":    later,
		"meaning":  func(term string) string { return terms[strings.ToLower(term)] },
		"clock":    clockText,
		"tab":      queuePath,
		"severity": severityTone,
		"tone":     tone,
		"isDLQ":    wire.IsDLQ,
		"prefix":   api.IsThrottlePrefix,
		"lower":    strings.ToLower,
		"pathOf":   pathOf,
		"domID":    domID,
		"ended":    func(a *api.AttemptInfo) string { return a.EndText(spanMs) },
		"then":     func(a *api.AttemptInfo) string { return a.ThenText(spanMs) },
		"setBy":    api.SetByText,
		"author":   api.ActorText,
		"source":   api.Source.Text,
		"words":    func(name string) string { return strings.ReplaceAll(name, "_", " ") },
		"after": func(mark, text string) string {
			_, rest, _ := strings.Cut(text, mark)
			return rest
		},
		"without": func(end, text string) string { return strings.TrimSuffix(text, end) },
	}
}

// terms explains the terms of the field where the pages name them first.
var terms = map[string]string{
	"burst":              "How much a rate admits at once after a rest, in cost: the size of its token bucket.",
	"tokens":             "What a rate admits at once now, in cost: a message of cost 1 takes one. They come back at the rate.",
	"credit":             "How many more messages a consumer takes now: its maximum in flight, less what it has.",
	"deficit":            "What a fairness key may still send in its turn, in cost. Below zero it has sent more and waits longer for its next turn.",
	"quantum":            "What a fairness key of weight 1 may send in a turn, in cost.",
	"entitled":           "The share of deliveries by weight, among the fairness keys that compete now.",
	"in flight":          "Delivered and not yet acked: a consumer has a lease on the message.",
	"nacked":             "The consumer said that the attempt failed.",
	"redriven":           "Messages of the group that were sent back to their queue in the last week. Each counts once, however often it was redriven.",
	"dead letters again": "Messages that this job has redriven and that have failed for good again.",
	"came back":          "Of these, the ones that are dead letters again now, whatever their error is now.",
	"blocked":            "Ready, but a gate (throttle, circuit, pause or order) keeps it back.",
}

// shortID returns the end of an id, which is enough for people. Ids that are made in the same
// minute begin alike.
func shortID(id string) string {
	if len(id) <= 8 {
		return id
	}
	return "…" + id[len(id)-8:]
}

// ago returns a time as people say it, such as "2 min ago" or "in 5 s". A text that is no time
// stays as it is.
func ago(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return relative(time.Since(at))
}

// clockText returns a time in a sentence, in UTC.
func clockText(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	return at.UTC().Format("2006-01-02 15:04:05")
}

// relative prints how long ago something was; negative: how long until it is.
func relative(d time.Duration) string {
	switch {
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + wire.Span((-d).Round(time.Second))
	}
	return wire.Span(d.Truncate(time.Second)) + " ago"
}

// tone returns the colour of a state: good, warn, bad, or "" for one without a judgement.
func tone(state string) string {
	switch state {
	case "closed", "admits", "running", "active", "serves", "ok", "allowed", "done", "ready":
		return "good"
	case "half-open", "paused", "blocks", "draining", "leaving", "delayed", "blocked", "canceled":
		return "warn"
	case "open", "failed", "refused", "degraded", "none", "dead":
		return "bad"
	}
	return ""
}

// pathOf returns an address without its query.
func pathOf(address string) string {
	path, _, _ := strings.Cut(address, "?")
	return path
}

// domID returns an id for an element of a page that stands for these names.
func domID(kind string, names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return kind + "-" + hex.EncodeToString(sum[:6])
}

// gatePath returns the path of a gate's page, or "".
func gatePath(base, gate string) string {
	kind, key, _ := strings.Cut(gate, ":")
	switch kind {
	case "throttle", "circuit":
		return href(base, "/gates/"+kind, "key", key)
	case "queue":
		return href(base, "/queues/"+url.PathEscape(key))
	}
	return ""
}

// dict returns a map of pairs, for templates with several arguments.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has a name without a value")
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is no name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// grouped prints an integer, or the one that n points to, in groups of three digits.
func grouped(n any) string {
	v := reflect.Indirect(reflect.ValueOf(n))
	if v.CanUint() {
		return wire.Grouped(int64(v.Uint()))
	}
	return wire.Grouped(v.Int())
}

// howMany prints a number with a noun whose plural ends in s.
func howMany(n any, thing string) string {
	text := grouped(n)
	if text != "1" {
		thing += "s"
	}
	return text + " " + thing
}

// rateText prints a rate per second.
func rateText(r float32) string {
	switch {
	case r == 0:
		return "0"
	case r < 10:
		return strconv.FormatFloat(float64(r), 'f', 1, 32)
	}
	return grouped(int64(math.Round(float64(r))))
}

func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < len(units)-1 {
		v, unit = v/1024, unit+1
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[unit:unit+1] + "iB"
}

// short cuts a text that is too long for a cell; put the whole text in the title.
func short(n int, text string) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n-1]) + "…"
}

// sparkPoints is the number of points of a sparkline: ten minutes.
const sparkPoints = 60

// spark returns the points of a sparkline over the whole width of an svg of 120 by 24; "" if
// there are too few, or all are 0.
func spark(l line, what string) string {
	past := l.Past
	past = past[max(len(past)-sparkPoints, 0):]
	if len(past) < 2 {
		return ""
	}
	figure, top := pointFigures[what], float32(0)
	for i := range past {
		top = max(top, figure(&past[i]))
	}
	if top == 0 {
		return ""
	}
	var b strings.Builder
	for i := range past {
		y := 23 - 22*figure(&past[i])/top
		fmt.Fprintf(&b, "%.1f,%.1f ", float64(i)*120/float64(len(past)-1), y)
	}
	return strings.TrimSpace(b.String())
}

// pointFigures are the figures of a point, by the names that templates use.
var pointFigures = map[string]func(*point) float32{
	"enqueued": func(p *point) float32 { return p.Enqueued },
	"acked":    func(p *point) float32 { return p.Acked },
	"failed":   func(p *point) float32 { return p.Failed },
	"depth":    func(p *point) float32 { return p.Depth },
	"median":   func(p *point) float32 { return orGap(p.WaitMedian) },
	"high":     func(p *point) float32 { return orGap(p.WaitHigh) },

	"terminated": func(p *point) float32 { return p.Terminated },
	"dead":       func(p *point) float32 { return p.Dead },
	"ready":      func(p *point) float32 { return p.Ready },
	"blocked":    func(p *point) float32 { return p.Blocked },
	"delayed":    func(p *point) float32 { return p.Delayed },
	"in flight":  func(p *point) float32 { return p.InFlight },
}

// orGap is NaN for a wait of 0: nothing was delivered.
func orGap(wait float32) float32 {
	if wait == 0 {
		return float32(math.NaN())
	}
	return wait
}

// assetPath returns the address of an asset, which changes with its content.
func assetPath(base, name string) string {
	data, err := fs.ReadFile(assets, "assets/"+name)
	if err != nil {
		return base + "/assets/" + name
	}
	sum := sha256.Sum256(data)
	return base + "/assets/" + name + "?" + hex.EncodeToString(sum[:4])
}
