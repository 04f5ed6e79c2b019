package sidecar

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
)

// Who makes changes, as the audit log and events name them, beside the verbs
// themselves.
const (
	byFile          = "file"
	byOperator      = "operator"
	byMaxFailures   = "max_failures"
	byOverrideEnded = "override-ended"
	byPauseEnded    = "pause-ended"
	byTime          = "time"
)

const (
	// maxAudit is how many entries the audit log keeps.
	maxAudit = 10_000
	// maxAuditValue is how many bytes of a value it shows.
	maxAuditValue = 1024
)

// audit is the log of what operators, the configuration file and time have
// changed: the newest maxAudit entries, in memory and in the store. The zero value
// is an empty log. Its methods may be called from any goroutine.
type audit struct {
	mu struct {
		sync.Mutex
		entries []wire.ConfigLogEntry // oldest first
		last    uint64                // the latest sequence given out
	}
}

// restore takes the log out of the store's configuration, which is in the order of
// its keys.
func (a *audit) restore(entries []store.Entry, log *slog.Logger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Key, stateLog)
		if !ok {
			continue
		}
		seq, err := strconv.ParseUint(digits, 10, 64)
		var entry wire.ConfigLogEntry
		if err == nil {
			err = json.Unmarshal([]byte(e.Value), &entry)
		}
		if err != nil {
			log.Error("an entry of the audit log cannot be read", "entry", e.Key[len(stateLog):], "error", err)
			continue
		}
		entry.Seq = seq
		a.mu.entries = append(a.mu.entries, entry)
		a.mu.last = max(a.mu.last, seq)
	}
}

func auditKey(seq uint64) string { return fmt.Sprintf("%s%020d", stateLog, seq) }

// record adds entries for changes made by `by` at time now to the log and to b,
// the batch that makes the changes, and takes what the log is too long by out of
// both.
func (a *audit) record(b *store.Batch, now int64, by string, changes ...change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range changes {
		a.mu.last++
		e := wire.ConfigLogEntry{
			Seq: a.mu.last, Time: timestamp(now), Key: c.key, Old: auditValue(c.old), New: auditValue(c.new), By: by,
		}
		a.mu.entries = append(a.mu.entries, e)
	}
	fresh := min(len(changes), maxAudit)
	for _, e := range a.mu.entries[len(a.mu.entries)-fresh:] {
		value, err := json.Marshal(e)
		if err != nil {
			panic("sidecar: strings do not marshal: " + err.Error())
		}
		b.PutConfig = append(b.PutConfig, store.Entry{Key: auditKey(e.Seq), Value: string(value)})
	}
	excess := max(0, len(a.mu.entries)-maxAudit)
	stored := len(a.mu.entries) - len(changes)
	for _, e := range a.mu.entries[:min(excess, stored)] {
		b.DeleteConfig = append(b.DeleteConfig, auditKey(e.Seq))
	}
	clear(a.mu.entries[:excess])
	a.mu.entries = a.mu.entries[excess:]
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

// list returns the entries whose key starts with prefix, newest first, and how
// many there are in all.
func (a *audit) list(prefix string, offset, limit int) ([]wire.ConfigLogEntry, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := []wire.ConfigLogEntry{}
	total := 0
	for i := len(a.mu.entries) - 1; i >= 0; i-- {
		if !strings.HasPrefix(a.mu.entries[i].Key, prefix) {
			continue
		}
		if total >= offset && len(found) < limit {
			found = append(found, a.mu.entries[i])
		}
		total++
	}
	return found, total
}

func (s *Server) configLog(_ string, body []byte) (any, *wire.Error) {
	req, err := wire.ParseConfigLog(body)
	if err != nil {
		return nil, err
	}
	entries, total := s.throttles.audit.list(req.Prefix, req.Offset, req.Limit)
	return wire.ConfigLog{Total: total, Entries: entries}, nil
}
