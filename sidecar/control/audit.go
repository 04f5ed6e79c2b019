package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Who makes changes, as the audit log and events name them, beside the verbs
// themselves.
const (
	byCalls         = "calls"
	byFile          = "file"
	byOperator      = "operator"
	byMaxFailures   = "max_failures"
	byOverrideEnded = "override-ended"
	byPauseEnded    = "pause-ended"
	byTime          = "time"
	byFleet         = "fleet" // another fila that shares the circuit
)

const (
	maxAudit      = 10_000 // entries that the audit log keeps
	maxAuditValue = 1024   // bytes of a value that it shows
)

// audit is the log of what operators, the configuration file and time have
// changed: the newest maxAudit entries, in memory and kept. The zero value is an
// empty log. Its methods may be called from any goroutine.
type audit struct {
	node string // of this node in a cluster, where entries are known when they are kept; empty: alone

	mu struct {
		sync.Mutex
		entries []wire.ConfigLogEntry // oldest first
		last    uint64                // the latest sequence given out
		asking  map[string]string     // who asks for the verbs that are being carried out
	}
}

// restore takes the log out of what is kept, which is in the order of its keys.
func (a *audit) restore(kept []store.Entry, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range kept {
		digits, ok := strings.CutPrefix(e.Key, stateLog)
		if !ok {
			continue
		}
		var entry wire.ConfigLogEntry
		seq, err := strconv.ParseUint(digits, 10, 64)
		if err == nil {
			err = json.Unmarshal([]byte(e.Value), &entry)
		}
		if err != nil {
			log.Error("an entry of the audit log cannot be read", "entry", digits, "error", err)
			continue
		}
		entry.Seq = seq
		a.mu.entries = append(a.mu.entries, entry)
		a.mu.last = max(a.mu.last, seq)
	}
}

func auditKey(seq uint64) string { return fmt.Sprintf("%s%020d", stateLog, seq) }

// record adds entries for changes made by `by` at time now to the log and to kept,
// which makes the changes, and takes what the log is too long by out of both. In a
// cluster kept alone is changed, and the log learns of it.
func (a *audit) record(kept *Batch, now int64, by string, changes ...change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries := a.mu.entries
	if a.node != "" {
		entries = slices.Clip(entries)
	}
	for _, c := range changes {
		a.mu.last = a.next(now)
		entries = append(entries, wire.ConfigLogEntry{
			Seq: a.mu.last, Time: wire.Timestamp(now), Key: wire.ShowKey(c.key), Old: auditValue(c.old), New: auditValue(c.new), By: by,
			Client: a.mu.asking[by],
		})
	}
	excess := max(0, len(entries)-maxAudit)
	before := len(entries) - len(changes)
	for _, e := range entries[max(before, excess):] {
		kept.putJSON(auditKey(e.Seq), e)
	}
	for _, e := range entries[:min(before, excess)] {
		kept.Delete = append(kept.Delete, auditKey(e.Seq))
	}
	if a.node == "" {
		clear(entries[:excess])
		a.mu.entries = entries[excess:]
	}
}

// next returns the sequence of the next entry. In a cluster it is made of the time in
// milliseconds and the node, so that no two nodes give out the same one. It needs mu.
func (a *audit) next(now int64) uint64 {
	if a.node == "" {
		return a.mu.last + 1
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(a.node)) // it does not fail
	ms := max(uint64(now/int64(time.Millisecond)), a.mu.last/auditNodes+1)
	return ms*auditNodes + uint64(h.Sum32()%auditNodes)
}

// auditNodes leaves room for the time: a sequence is exact as a number of JSON.
const auditNodes = 1024

// learn takes over which entries are kept now of those with these keys.
func (a *audit) learn(keys []string, newest func(key string) (string, bool, bool), log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bySeq := func(e wire.ConfigLogEntry, seq uint64) int { return cmp.Compare(e.Seq, seq) }
	for _, key := range keys {
		value, kept, settled := newest(key)
		if !settled {
			continue
		}
		seq, err := strconv.ParseUint(strings.TrimPrefix(key, stateLog), 10, 64)
		var e wire.ConfigLogEntry
		if err == nil && kept {
			err = json.Unmarshal([]byte(value), &e)
		}
		if err != nil {
			log.Error("an entry of the audit log cannot be read", "entry", strings.TrimPrefix(key, stateLog), "error", err)
			continue
		}
		e.Seq = seq
		i, found := slices.BinarySearchFunc(a.mu.entries, seq, bySeq)
		switch {
		case kept && !found:
			a.mu.entries = slices.Insert(a.mu.entries, i, e)
		case !kept && found:
			a.mu.entries = slices.Delete(a.mu.entries, i, i+1)
		}
	}
}

// As notes who asks for a verb, "" for nobody known, until done is called: the audit log
// names the client with what the verb changes. No verb is carried out twice at a time.
func (c *Control) As(verb, client string) (done func()) {
	a := &c.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.asking == nil {
		a.mu.asking = make(map[string]string)
	}
	a.mu.asking[verb] = client
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.mu.asking, verb)
	}
}

// asks returns who asks for a verb that is being carried out, "" if that is not known.
func (a *audit) asks(verb string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.asking[verb]
}

// Audit records what a verb has done to something that is not kept here. It returns
// when the entry is on disk, or cannot be.
func (c *Control) Audit(verb, what, done string) {
	var kept Batch
	c.audit.record(&kept, c.opt.Now(), verb, change{key: what, new: &done})
	if err := <-c.opt.KV.Write(kept); err != nil {
		c.opt.Log.Error("an entry of the audit log is not kept", "verb", verb, "key", what, "error", err)
	}
}

// auditValue cuts long values.
func auditValue(v *string) *string {
	if v == nil || len(*v) <= maxAuditValue {
		return v
	}
	end := maxAuditValue
	for end > maxAuditValue-utf8.UTFMax && !utf8.RuneStart((*v)[end]) {
		end--
	}
	s := fmt.Sprintf("%s... (%d bytes)", (*v)[:end], len(*v))
	return &s
}

// ConfigLog lists the audit log, newest first. After is the sequence of the last
// entry of the page before.
func (c *Control) ConfigLog(req wire.KeyListRequest) (wire.ConfigLog, *wire.Error) {
	before := uint64(math.MaxUint64)
	if req.After != "" {
		var err error
		if before, err = strconv.ParseUint(req.After, 10, 64); err != nil {
			return wire.ConfigLog{}, wire.BadField("after", strconv.Quote(req.After), "allowed is next of the page before")
		}
	}
	a := &c.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	list := wire.ConfigLog{Entries: []wire.ConfigLogEntry{}}
	skip := req.Offset
	for _, e := range slices.Backward(a.mu.entries) { // maxAudit at most
		if !strings.HasPrefix(e.Key, wire.ShowKey(req.Prefix)) {
			continue
		}
		list.Total++
		switch n := len(list.Entries); {
		case e.Seq >= before:
		case skip > 0:
			skip--
		case n < req.Limit:
			list.Entries = append(list.Entries, e)
		case n > 0:
			list.Next = strconv.FormatUint(list.Entries[n-1].Seq, 10)
		}
	}
	return list, nil
}
