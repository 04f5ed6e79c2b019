package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// heldPermits is a guard with permits.
type heldPermits struct {
	issuer  uint64
	numbers []uint64
}

func (p *heldPermits) Permits(r api.GuardPermitsRequest) api.GuardPermitList {
	list := api.GuardPermitList{Permits: []api.GuardPermit{}, Total: len(p.numbers)}
	for _, n := range p.numbers {
		id := api.PermitID(p.issuer, n)
		switch {
		case id <= r.After:
		case len(list.Permits) == r.Limit:
			list.Next = list.Permits[r.Limit-1].ID
			return list
		default:
			list.Permits = append(list.Permits, api.GuardPermit{ID: id, Key: "v"})
		}
	}
	return list
}

func (p *heldPermits) EndPermits(r api.GuardEndRequest) (ended int64) {
	if r.Key != "v" {
		return 0
	}
	defer func() { p.numbers = nil }()
	return int64(len(p.numbers))
}

// otherNodes are nodes of a cluster; those without heldPermits do not answer.
type otherNodes struct {
	oneNode
	nodes map[string]*heldPermits
}

func (o *otherNodes) Status() api.ClusterStatus {
	st := o.oneNode.Status()
	for _, name := range []string{"a", "b", "c", "d"} {
		st.Nodes = append(st.Nodes, api.ClusterNode{Node: name})
	}
	return st
}

func (o *otherNodes) Ask(context.Context, api.Sender, int, string, string, []byte) ([]byte, []int, error) {
	return nil, nil, errors.New("it is about no queue")
}

func (o *otherNodes) AskNode(_ context.Context, _ api.Sender, node, verb, _ string, body []byte) ([]byte, error) {
	p := o.nodes[node]
	if p == nil {
		return nil, errors.New("no answer")
	}
	if verb == api.VerbGuardPermits.Name {
		r, _ := api.VerbGuardPermits.Parse("", body)
		return json.Marshal(p.Permits(r))
	}
	r, _ := api.VerbGuardEnd.Parse("", body)
	return json.Marshal(api.GuardEndReply{GuardEndRequest: r, Ended: p.EndPermits(r)})
}

// Permits are listed and ended at all nodes, and the audit log has the client and the number.
func TestPermitVerbs(t *testing.T) {
	withAdmin(t, nil, func(t *testing.T, h *rig) {
		here := &heldPermits{issuer: 2, numbers: []uint64{1, 2, 3}}
		h.permits = here
		list := func() (ids []string, missing []string) {
			for after, more := "", true; more; more = after != "" {
				var page api.GuardPermitList
				h.must(api.VerbGuardPermits, "", fmt.Sprintf(`{"limit":2,"after":%q}`, after), &page)
				require.LessOrEqual(t, len(page.Permits), 2)
				for _, p := range page.Permits {
					ids = append(ids, p.ID)
				}
				after, missing = page.Next, page.Missing
			}
			return ids, missing
		}
		ids, missing := list()
		require.Len(t, ids, 3)
		require.Empty(t, missing)
		require.Equal(t, wire.CodeBadField, h.ask(api.VerbGuardEnd, "", `{}`, nil).ErrCode)

		others := &otherNodes{nodes: map[string]*heldPermits{"b": {issuer: 1, numbers: []uint64{5, 6, 7, 8, 9}}, "c": {issuer: 3}}}
		h.cluster, h.peers, h.node = others, others, "a"
		ids, missing = list()
		require.Len(t, ids, 8)
		require.True(t, slices.IsSorted(ids))
		require.Equal(t, []string{"d"}, missing)

		var ended api.GuardEndReply
		h.must(api.VerbGuardEnd, "", `{"key":"w"}`, &ended)
		require.Equal(t, []any{int64(0), "w", []string{"d"}}, []any{ended.Ended, ended.Key, ended.Missing})
		long := `{"key":"v","ids":[`
		for i := range 50 {
			long += fmt.Sprintf("%q,", api.PermitID(1, uint64(i)))
		}
		h.must(api.VerbGuardEnd, "", long[:len(long)-1]+`]}`, &ended)
		require.Equal(t, int64(8), ended.Ended)
		require.Empty(t, here.numbers)

		var log api.ConfigLog
		h.must(api.VerbConfigLog, "", ``, &log)
		require.Len(t, log.Entries, 1, "what has ended nothing is not in it")
		e := log.Entries[0]
		require.Equal(t, []string{"guard:v", "guard-end", "tester"}, []string{e.Key, e.By, e.Client})
		var done api.GuardEndReply
		require.NoError(t, json.Unmarshal([]byte(*e.New), &done))
		require.Equal(t, int64(3), done.Ended)
		require.Len(t, done.IDs, auditedIDs)
	})
}
