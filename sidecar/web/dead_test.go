package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestDeadRatesPicture draws what the verb says: a step for each minute, the present one up to now,
// and all other groups on top.
func TestDeadRatesPicture(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 9, 30, 0, time.UTC)
	d := deadRates{Minutes: 10, DeadRates: api.DeadRates{
		From: "2026-01-02T12:00:00Z", Messages: 20, Other: []int64{0, 0, 0, 0, 0, 0, 0, 0, 0, 5},
		Groups: []api.DeadRate{
			{Group: "a", Error: "first", Messages: 11, Minutes: []int64{0, 0, 0, 0, 0, 0, 0, 0, 6, 5}},
			{Group: "b", Error: "second", Messages: 4, Minutes: []int64{4, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		},
	}}
	require.NoError(t, d.draw(now))
	require.EqualValues(t, 10, d.Top)
	require.Len(t, d.Areas, 3)
	require.Equal(t, []any{1, int64(5), int64(11)}, []any{d.Areas[0].Color, d.Areas[0].Last, d.Areas[0].Messages})
	require.Equal(t, []any{0, int64(5), int64(5), ""}, []any{d.Areas[2].Color, d.Areas[2].Last, d.Areas[2].Messages, d.Areas[2].Group})
	require.Contains(t, d.Areas[0].Points, "850,40.0 950,40.0 950,50.0 1000,50.0", "minutes 8 and 9, which has begun")
	require.True(t, strings.HasPrefix(d.Areas[1].Points, "50,60.0 150,60.0 150,100.0 "), d.Areas[1].Points)
	require.Contains(t, d.Areas[2].Points, "950,0.0 1000,0.0")

	nothing := deadRates{Minutes: 10}
	require.NoError(t, nothing.draw(now))
	require.Empty(t, nothing.Areas)
}

// TestDeadRatesOnPages: the page of all queues and the tab of one ask for the time in the query, and
// link the other one and the groups.
func TestDeadRatesOnPages(t *testing.T) {
	r := newRig(t, nil)
	r.reply(api.VerbDeadRates, api.DeadRates{
		From: wire.Timestamp(time.Now().Add(-time.Minute).UnixNano()), Messages: 3, Other: []int64{0, 0}, Total: 1,
		Groups: []api.DeadRate{{Group: "0123", SourceQueue: "orders", ErrorCode: "402", Error: "card declined", Messages: 3, Minutes: []int64{1, 2}}},
	})
	for _, path := range []string{"/dead", "/queues/orders/dead"} {
		body := r.get(path).Body.String()
		require.Contains(t, body, "card declined", path)
		require.Contains(t, body, `href="/queues/orders/dead?error_group=0123`, path)
		require.Contains(t, body, `href="`+path+`?minutes=60"`)
		r.get(path + "?minutes=60&error_code=402")
	}
	var bodies []string
	for _, a := range r.of(api.VerbDeadRates) {
		bodies = append(bodies, a.body)
	}
	ask := func(queue string, minutes int) string {
		return fmt.Sprintf(`{%s"minutes":%d,"limit":7}`, queue, minutes)
	}
	require.Equal(t, []string{ask("", 10), ask("", 60), ask(`"queue":"orders",`, 10), ask(`"queue":"orders",`, 60)}, bodies)
	kept := r.get("/queues/orders/dead?error_code=402&minutes=60").Body.String()
	require.Contains(t, kept, `href="/queues/orders/dead?error_code=402"`, "the filter stays")
}

// TestDeadGroupsOnPages: the table of groups explains all of the picture, also groups that are
// empty now, and has the actions of a group and the change before it with what sets it back.
func TestDeadGroupsOnPages(t *testing.T) {
	r := newRig(t, nil)
	first := time.Now().Add(-5 * time.Minute)
	at := func(ago time.Duration) string { return wire.Timestamp(first.Add(-ago).UnixNano()) }
	old, is := "1", "2"
	r.reply(api.VerbDeadRates, api.DeadRates{
		From: wire.Timestamp(time.Now().Add(-time.Minute).UnixNano()), Messages: 5, Other: []int64{0, 0}, Total: 2,
		Groups: []api.DeadRate{
			{Group: "aaaa", SourceQueue: "orders", ErrorCode: "402", Error: "card declined", Messages: 3, Minutes: []int64{1, 2}},
			{Group: "gone", SourceQueue: "orders", Error: "all deleted", Messages: 2, Minutes: []int64{2, 0}},
		},
	})
	r.reply(api.VerbDeadGroups, api.DeadGroups{Queue: "orders.dlq", Messages: 4, Total: 2, Groups: []api.DeadGroup{
		{Group: "aaaa", SourceQueue: "orders", ErrorCode: "402", Error: "card declined", Messages: 3, First: at(0), Before: []api.Mark{
			{At: at(time.Second), Kind: api.MarkAnnotation, Text: "release 2", Client: "deploy-bot"},
			{At: at(90 * time.Second), Kind: api.MarkConfig, Text: "release from 1 to 2", Client: "deploy-bot", Undo: &api.Undo{Text: "Set release back to 1", Key: "release", Old: &old, New: &is}},
		}},
		{Group: "long", SourceQueue: "orders", Error: "of yesterday", Messages: 1, First: at(24 * time.Hour), Before: []api.Mark{
			{At: at(24*time.Hour + time.Minute), Kind: api.MarkHook, Object: "queue:orders", Text: "on_failure set", Client: "maria", Undo: &api.Undo{Text: "Roll on_failure back", Hook: "on_failure"}},
		}},
	}})
	page := strings.Join(strings.Fields(r.get("/queues/orders/dead?error_group=aaaa").Body.String()), " ")
	for _, text := range []string{
		`<tr class="chosen">`, "card declined", "all deleted", "of yesterday",
		`90 s before: <strong>release from 1 to 2</strong> <span class="soft">deploy-bot</span>`,
		`name="key" value="release"><input type="hidden" name="old" value="1"><input type="hidden" name="new" value="2"><button>Set release back to 1</button>`,
		`action="/do/rollback-hook"`, `name="queue" value="orders"><input type="hidden" name="hook" value="on_failure"><button>Roll on_failure back</button>`,
		`name="error_group" value="aaaa"><button name="op" value="redrive">Redrive</button>`,
		`<span class="soft">error group</span> 402 card declined`, // not the id
	} {
		require.Contains(t, page, text)
	}
	require.Equal(t, 2, strings.Count(page, `<button name="op" value="redrive">Redrive</button></form>`), "nothing of the third group is left")

	r.reply(api.VerbConfigSet, api.ConfigSetReply{Key: "release", Value: "1"})
	r.post("/do/config-back", "key", "release", "old", "1", "new", "2", "confirm", "yes")
	require.JSONEq(t, `{"value":"1","if_value":"2"}`, r.of(api.VerbConfigSet)[0].body)
}
