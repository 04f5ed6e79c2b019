package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/throttle"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// busy makes n throttle keys whose gates are needed, without messages.
func (r *rig) busy(prefix string, n int) {
	r.t.Helper()
	r.put("throttle:"+prefix+"*:limit", "5")
	r.put("throttle:"+prefix+"*:window_ms", "60000")
	gates := r.c.Gates()
	for i := range n {
		set, err := gates.Set([]string{fmt.Sprintf("%s%05d", prefix, i)}, now())
		require.NoError(r.t, err)
		ticket, _, ok := set.Acquire(now(), throttle.One, nil)
		require.True(r.t, ok)
		set.Release(&ticket, now(), nil)
		gates.Close(set, now())
	}
}

// A page of throttle-list reads only the gates on it, at the start, in the middle and by
// offset; throttle-show reads one gate.
func TestThrottleListLooksAtItsPageAlone(t *testing.T) {
	const n = 3000
	bubble(t, func(t *testing.T, r *rig) {
		r.busy("tenant:", n)
		gates := r.c.Gates()
		for name, req := range map[string]api.KeyListRequest{
			"the first page": {Limit: 10},
			"a prefix":       {Prefix: "tenant:01", Limit: 10},
			"the middle":     {After: "tenant:01500", Limit: 10},
			"by offset":      {Offset: 2000, Limit: 10},
			"what is gone":   {After: "tenant:01500x", Limit: 10},
		} {
			before := gates.Visits()
			list := r.c.ThrottleList(req)
			require.Len(t, list.Throttles, 10, name)
			require.NotEmpty(t, list.Next, name)
			require.LessOrEqual(t, gates.Visits()-before, uint64(10), name)
		}
		before := gates.Visits()
		r.show("tenant:00042")
		r.show("tenant:none")
		require.LessOrEqual(t, gates.Visits()-before, uint64(1))

		// All pages together read each gate once: the list is not quadratic.
		before = gates.Visits()
		keys := map[string]bool{}
		for req := (api.KeyListRequest{Prefix: "tenant:", Limit: 100}); ; {
			list := r.c.ThrottleList(req)
			require.Equal(t, n+1, list.Total, "the prefix is one of them")
			for _, i := range list.Throttles {
				require.False(t, keys[i.Key], "%s came twice", i.Key)
				keys[i.Key] = true
			}
			if req.After = list.Next; req.After == "" {
				break
			}
		}
		require.Len(t, keys, n+1)
		require.LessOrEqual(t, gates.Visits()-before, uint64(n))

		// Gates that are not needed any more are not listed, and an empty page is the
		// end.
		r.pass(2 * time.Minute)
		list := r.c.ThrottleList(api.KeyListRequest{Limit: 7})
		require.Equal(t, []string{"tenant:*"}, keysOf(list))
		list = r.c.ThrottleList(api.KeyListRequest{Prefix: "tenant:0", Limit: 7})
		require.Equal(t, api.ThrottleList{Throttles: []api.ThrottleInfo{}}, list)
	})
}

func keysOf(list api.ThrottleList) (keys []string) {
	for _, i := range list.Throttles {
		keys = append(keys, i.Key)
	}
	return keys
}

// Every list is the same in one page, by cursor and by offset.
func TestListsByPage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		require.Equal(t, `{"total":0,"pauses":[]}`, toJSON(t, r.c.PauseList(api.ListRequest{Limit: 10})))
		require.Equal(t, `{"total":0,"entries":[]}`, toJSON(t, r.c.ConfigList(api.KeyListRequest{Limit: 10})))
		r.create("orders")
		r.busy("used:", 40)
		for i := range 30 {
			r.put(fmt.Sprintf("throttle:set%d:burst", i), "5") // without effect, but set
			r.put(fmt.Sprintf("circuit:set%d:threshold", i), "5")
			r.pause(fmt.Sprintf(`{"kind":"key","queue":"orders","name":"k/%d"}`, i))
			r.pause(fmt.Sprintf(`{"kind":"throttle","name":"paused/%d"}`, i))
			r.set(fmt.Sprintf("for%d", i), `{"rate":"1","for_ms":100000}`)
			r.open1(fmt.Sprintf("open%d", i), "")
		}
		type listed struct {
			items []string
			total int
			next  string
		}
		for name, list := range map[string]func(prefix, after string, offset, limit int) listed{
			"throttles": func(prefix, after string, offset, limit int) listed {
				l := r.c.ThrottleList(api.KeyListRequest{Prefix: prefix, After: after, Offset: offset, Limit: limit})
				return listed{keysOf(l), l.Total, l.Next}
			},
			"circuits": func(prefix, after string, offset, limit int) listed {
				l := r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Prefix: prefix, After: after, Offset: offset, Limit: limit}})
				x := listed{total: l.Total, next: l.Next}
				for _, i := range l.Circuits {
					x.items = append(x.items, i.Key)
				}
				return x
			},
			"runtime configuration": func(prefix, after string, offset, limit int) listed {
				l := r.c.ConfigList(api.KeyListRequest{Prefix: prefix, After: after, Offset: offset, Limit: limit})
				x := listed{total: l.Total, next: l.Next}
				for _, i := range l.Entries {
					x.items = append(x.items, i.Key)
				}
				return x
			},
			"pauses": func(_, after string, offset, limit int) listed {
				l := r.c.PauseList(api.ListRequest{After: after, Offset: offset, Limit: limit})
				x := listed{total: l.Total, next: l.Next}
				for _, i := range l.Pauses {
					x.items = append(x.items, i.Kind+" "+i.Queue+" "+i.Name)
				}
				return x
			},
			"audit log": func(prefix, after string, offset, limit int) listed {
				l, err := r.c.ConfigLog(api.KeyListRequest{Prefix: prefix, After: after, Offset: offset, Limit: limit})
				require.Nil(t, err)
				x := listed{total: l.Total, next: l.Next}
				for _, i := range l.Entries {
					x.items = append(x.items, fmt.Sprint(i.Seq))
				}
				return x
			},
		} {
			for _, prefix := range []string{"", "set", "throttle:set1"} {
				all := list(prefix, "", 0, 1000)
				require.Empty(t, all.next, name)
				require.Len(t, all.items, all.total, name)
				var byCursor, byOffset []string
				for after := ""; ; {
					page := list(prefix, after, 0, 7)
					require.Equal(t, all.total, page.total, name)
					byCursor = append(byCursor, page.items...)
					if after = page.next; after == "" {
						break
					}
				}
				require.Equal(t, all.items, byCursor, name)
				for len(byOffset) < all.total {
					byOffset = append(byOffset, list(prefix, "", len(byOffset), 7).items...)
				}
				require.Equal(t, all.items, byOffset, name)
			}
			require.GreaterOrEqual(t, list("", "", 0, 1000).total, 60, name)
		}
		_, err := r.c.ConfigLog(api.KeyListRequest{After: "yesterday", Limit: 1})
		refused(t, wire.CodeBadField, err)

		// Removed entries are not listed.
		before := r.c.ThrottleList(api.KeyListRequest{Prefix: "set", Limit: 1}).Total
		r.delete("throttle:set7:burst")
		require.Equal(t, before-1, r.c.ThrottleList(api.KeyListRequest{Prefix: "set", Limit: 1}).Total)
		before = r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Prefix: "set", Limit: 1}}).Total
		r.delete("circuit:set7:threshold")
		require.Equal(t, before-1, r.c.CircuitList(api.CircuitListRequest{KeyListRequest: api.KeyListRequest{Prefix: "set", Limit: 1}}).Total)
		r.resume(`{"kind":"throttle","name":"paused/7"}`)
		require.Len(t, r.pauses(), 59)
	})
}
