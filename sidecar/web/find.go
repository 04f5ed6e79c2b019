package web

import (
	"strings"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// findData are the results: a message by its id, queues by a part of their names, and
// queues in which a fairness key has messages.
type findData struct {
	Text    string
	Message *api.MessageInfo
	Queues  []string
	More    int // queues that are not shown
	Keys    []api.ExplainKey
	Asked   int // queues searched for the key
	Of      int
}

// Bounds of a search.
const (
	maxFoundQueues = 50
	maxKeyQueues   = 200 // queues that are searched for a key, the ones with the most messages
)

func find(a *ask) (any, error) {
	d := findData{Text: strings.TrimSpace(a.query("text"))}
	if d.Text == "" {
		return d, nil
	}
	if _, ok := wire.ParseID(d.Text); ok {
		var m api.MessageInfo
		switch err := a.verb(api.VerbMessageShow, "", showRequest("", d.Text, 0), &m); {
		case err == nil:
			d.Message = &m
		case !refusedWith(err, wire.CodeMessageNotFound):
			return nil, err
		}
	}
	s, err := a.web.history.fresh(a.web)
	if err != nil {
		return nil, err
	}
	text := strings.ToLower(d.Text)
	for i := range s.queues {
		switch {
		case !strings.Contains(strings.ToLower(s.queues[i].Name), text):
		case len(d.Queues) == maxFoundQueues:
			d.More++
		default:
			d.Queues = append(d.Queues, s.queues[i].Name)
		}
	}
	if wire.CheckNamedKey(d.Text) != nil {
		return d, nil
	}
	full := s.pick("depth", func(q *api.QueueSummary) bool { return depthOf(q) > 0 })
	d.Of = len(full)
	for _, q := range full[:min(len(full), maxKeyQueues)] {
		var k api.ExplainKey
		d.Asked++
		err := a.verb(api.VerbExplain, "", api.ExplainRequest{Kind: "key", Queue: q.Name, Key: d.Text}, &k)
		switch {
		case err == nil:
			d.Keys = append(d.Keys, k)
		case refusedWith(err, wire.CodeKeyNotFound), refusedWith(err, wire.CodeQueueNotFound):
		default:
			return nil, err
		}
	}
	return d, nil
}
