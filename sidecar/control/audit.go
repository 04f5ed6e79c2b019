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

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// Actor is who makes a change, as the audit log names it: a verb of the admin protocol with
// the sender of its request, or one of the constants below.
type Actor struct {
	By string
	api.Sender
}

// Actors other than verbs, in the audit log and in events.
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

// MaxAuditValue is how many bytes of a value the audit log keeps.
const MaxAuditValue = 1024

const maxAudit = 10_000 // entries that the audit log keeps

// audit is the log of changes by operators, the configuration file and time: the newest
// maxAudit entries, in memory and in the store. The zero value is an empty log. Its methods
// may be called from any goroutine.
type audit struct {
	node  string                        // of this node in a cluster, where learn adds entries when they are stored; "": no cluster
	owner func(object string) api.Owner // of objects before their changes; nil: they have none

	mu struct {
		sync.Mutex
		entries []api.ConfigLogEntry // oldest first
		last    uint64               // the latest sequence
	}
}

// restore reads the log from the store's entries, which are in the order of their keys.
func (a *audit) restore(kept []store.Entry, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range kept {
		digits, ok := strings.CutPrefix(e.Key, stateLog)
		if !ok {
			continue
		}
		var entry api.ConfigLogEntry
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

// record adds entries for changes at time now to the log and to kept, the batch that stores
// the changes, and removes the oldest entries beyond maxAudit from both. In a cluster it
// changes only kept, and learn changes the log.
func (a *audit) record(kept *Batch, now int64, by Actor, changes ...change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entries := a.mu.entries
	if a.node != "" {
		entries = slices.Clip(entries)
	}
	for _, c := range changes {
		a.mu.last = a.next(now)
		e := api.ConfigLogEntry{
			Seq: a.mu.last, Time: wire.Timestamp(now), Key: wire.ShowKey(c.key), Old: auditValue(c.old), New: auditValue(c.new),
			By: by.By, Client: by.Client, Owner: by.Owner, Reason: by.Reason,
		}
		if a.owner != nil {
			if owner := a.owner(objectOf(c.key)).Owner; owner != by.Owner {
				e.OwnedBy = owner
			}
		}
		entries = append(entries, e)
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

// next returns the sequence of the next entry. In a cluster it consists of the time in
// milliseconds and the node, so that it is unique. The caller holds mu.
func (a *audit) next(now int64) uint64 {
	if a.node == "" {
		return a.mu.last + 1
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(a.node)) // it does not fail
	ms := max(uint64(now/int64(time.Millisecond)), a.mu.last/auditNodes+1)
	return ms*auditNodes + uint64(h.Sum32()%auditNodes)
}

// auditNodes is small enough that a sequence is exact as a JSON number.
const auditNodes = 1024

// learn adds or removes the entries with these keys, as the store has them.
func (a *audit) learn(keys []string, newest newest, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bySeq := func(e api.ConfigLogEntry, seq uint64) int { return cmp.Compare(e.Seq, seq) }
	for _, key := range keys {
		value, kept, settled := newest(key)
		if !settled {
			continue
		}
		seq, err := strconv.ParseUint(strings.TrimPrefix(key, stateLog), 10, 64)
		var e api.ConfigLogEntry
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

// Audit records a change of an object that another package keeps. It returns when the entry
// is on disk, or writing it has failed.
func (c *Control) Audit(by Actor, object, value string) {
	c.auditMade(by, change{key: object, new: &value})
}

// auditMade records a change that is made already, whether or not the entry can be written.
func (c *Control) auditMade(by Actor, ch change) {
	var kept Batch
	c.audit.record(&kept, c.opt.Now(), by, ch)
	if err := <-c.opt.KV.Write(kept); err != nil {
		c.opt.Log.Error("an entry of the audit log cannot be written", "verb", by.By, "key", ch.key, "error", err)
	}
}

// auditValue cuts long values.
func auditValue(v *string) *string {
	if v == nil || len(*v) <= MaxAuditValue {
		return v
	}
	return new(fmt.Sprintf("%s... (%d bytes)", wire.Cut(*v, MaxAuditValue), len(*v)))
}

// ConfigLog lists the audit log, newest first. After is the sequence of the last entry of
// the previous page.
func (c *Control) ConfigLog(req api.KeyListRequest) (api.ConfigLog, *wire.Error) {
	before := uint64(math.MaxUint64)
	if req.After != "" {
		var err error
		if before, err = strconv.ParseUint(req.After, 10, 64); err != nil {
			return api.ConfigLog{}, wire.BadField("after", strconv.Quote(req.After), "allowed is next of the page before")
		}
	}
	a := &c.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	list := api.ConfigLog{Entries: []api.ConfigLogEntry{}}
	skip, prefix := req.Offset, wire.ShowKey(req.Prefix)
	for _, e := range slices.Backward(a.mu.entries) { // maxAudit at most
		if !strings.HasPrefix(e.Key, prefix) {
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

// clockSkew bounds how much the clocks of two nodes differ.
const clockSkew = time.Minute

// AuditSince returns the entries of the audit log since a time, the newest first.
func (c *Control) AuditSince(at time.Time) []api.ConfigLogEntry {
	a := &c.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []api.ConfigLogEntry
	for _, e := range slices.Backward(a.mu.entries) {
		switch t, err := time.Parse(time.RFC3339Nano, e.Time); {
		case err != nil:
		case t.Before(at.Add(-clockSkew)):
			return list
		case !t.Before(at):
			list = append(list, e)
		}
	}
	return list
}

// each calls fn with the entries whose keys begin with a text, the newest first, until that
// returns false.
func (a *audit) each(prefix string, fn func(*api.ConfigLogEntry) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range slices.Backward(a.mu.entries) { // maxAudit at most
		if e := &a.mu.entries[i]; strings.HasPrefix(e.Key, prefix) && !fn(e) {
			return
		}
	}
}
