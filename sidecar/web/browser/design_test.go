package browser

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/client"
	"github.com/filaq/fila/wire/api"
)

// slash and ctrlK are the keys that open the search. A text is typed only if the page does not
// prevent it, unlike with [tab.press].
var (
	slash = input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Text: "/", WindowsVirtualKeyCode: 191}
	ctrlK = input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "k", Modifiers: 2, WindowsVirtualKeyCode: 'K'}
)

// strike presses and releases a key.
func (b *tab) strike(key input.DispatchKeyEventParams) {
	b.t.Helper()
	ask(b, input.DispatchKeyEvent, key)
	key.Type, key.Text = input.DispatchKeyEventTypeKeyUp, ""
	ask(b, input.DispatchKeyEvent, key)
}

// TestSearchByKeyboard: / and Ctrl-K open the search, arrow keys choose, Enter opens, Esc closes.
func TestSearchByKeyboard(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	f.queue("orders-eu")
	id := f.publish("orders", "x", tenant("acme"))
	b.visit("/queues", "orders-eu") // the search knows the queues of the last sample
	b.strike(slash)
	b.shows("dialog .results", "Pages and actions") // without a text: all pages
	b.press("orders")
	b.shows("dialog .results", "orders-eu")
	b.sound("search")
	b.press(kb.ArrowDown)
	b.press(kb.ArrowDown)
	b.until("document.activeElement.innerText.trim() == 'orders-eu'")
	b.press(kb.Enter)
	b.at("/queues/orders-eu")

	b.strike(ctrlK)
	b.until("document.querySelector('dialog[open]')")
	b.press(kb.Escape)
	b.until("!document.querySelector('dialog')")
	for text, found := range map[string][2]string{
		"acme": {"Fairness key acme", "/queues/orders/messages?key=acme"}, "vendor": {"Gates", "/gates/throttle?key=vendor%3Astripe"},
		"add a": {"Pages and actions", "/schedules#add"}, id: {"Message", "/messages/" + id}, "audit": {"Pages and actions", "/activity/audit"},
	} {
		b.strike(ctrlK)
		b.fill("dialog [name=text]", text)
		b.shows("dialog .results h2", found[0])
		b.until("document.querySelector('dialog .results').dataset.text == " + quote(text))
		b.press(kb.Enter)
		b.until("(location.pathname + location.search + location.hash) == " + quote(found[1]) + " && document.readyState == 'complete'")
	}
	b.strike(ctrlK)
	b.fill("dialog [name=text]", "orders")
	b.shows("dialog .results", "Tabs of orders")
	require.NotContains(t, b.text("dialog .results"), "orders.dlq", "its tab has the dead letters")
	b.press(kb.Escape)
	b.strike(ctrlK)
	b.fill("dialog [name=text]", "<b>nobody</b>")
	b.shows("dialog .results", "Nothing matches <b>nobody</b>.")
	b.strike(slash) // types
	require.Equal(t, "<b>nobody</b>/", eval[string](b, "document.querySelector('dialog input').value"))
}

// TestMenusByKeyboard: a menu opens, stays open while its page updates itself, and closes by keys.
func TestMenusByKeyboard(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.load("orders")
	_, err := f.c.ScheduleAdd(t.Context(), "orders", api.ScheduleAddRequest{Name: "often", Schedule: "@every 1s"})
	require.NoError(t, err)
	b.visit("/schedules", "often")
	b.until("document.querySelector('td.act [popovertarget]')?.focus() || true")
	b.press(kb.Enter)
	b.until("document.querySelector('td.act [popover]:popover-open')")
	runs := eval[string](b, "document.querySelector('main tbody tr').cells[6].innerText")
	b.until("document.querySelector('main tbody tr').cells[6].innerText != " + quote(runs))
	b.until("document.querySelector('td.act [popover]:popover-open')")
	b.press(kb.Tab)
	require.Equal(t, "Delete", eval[string](b, "document.activeElement.innerText"))
	b.press(kb.Escape)
	b.until("!document.querySelector(':popover-open')")
	require.True(t, eval[bool](b, "document.activeElement.matches('[popovertarget]')"))
	b.press(kb.Enter)
	b.press(kb.Tab)
	b.press(kb.Enter)
	b.shows("dialog[open]", "Delete the schedule often of orders?")
	b.press(kb.Escape)
	b.until("!document.querySelector('dialog')")
	b.shows("main table", "often")
}

// TestFirstMessage: an empty fila shows three commands, and what has taken effect by itself.
func TestFirstMessage(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	done := func(n int) string {
		return "document.querySelectorAll('.steps .done').length == " + string(rune('0'+n))
	}
	b.visit("/", "fila queue create orders", "fila publish orders hello", "fila consume orders")
	b.until(done(0))
	b.sound("first-steps")
	f.queue("orders")
	b.until(done(1))
	f.publish("orders", "hello", tenant("acme"))
	b.until(done(2))
	release := make(chan struct{})
	f.consume("orders", "worker", func(context.Context, *client.Message) error {
		<-release
		return nil
	})
	b.until(done(3))
	close(release)
	b.until("!document.querySelector('.steps')")
	b.shows("main table", "orders")
}

// TestTimesAndCopies: the exact time is a title, also on focus, and an id can be copied.
func TestTimesAndCopies(t *testing.T) {
	t.Parallel()
	f, b := run(t)
	f.queue("orders")
	id := f.publish("orders", "x", tenant("acme"), client.Delay(time.Hour))
	b.visit("/messages/"+id, "in 59 min")
	b.until(`[...document.querySelectorAll('dd time')].every(e => e.tabIndex == 0 && e.title.includes(e.dateTime) && /\d\d:\d\d:\d\d/.test(e.dataset.at))`)
	eval[bool](b, `navigator.clipboard.writeText = async text => { window.copied = text }, true`)
	b.click("main dd .copy")
	b.until("window.copied == " + quote(id))
	b.visit("/queues/orders/messages", short(id))
	require.Equal(t, id, eval[string](b, "document.querySelector('tbody .id a').title"))
}
