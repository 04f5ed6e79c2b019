package deadletter

import (
	"github.com/filaq/fila/fingerprint"
	"github.com/filaq/fila/store"
)

// maxTexts is how many error texts a normaliser remembers.
const maxTexts = 1024

// key is what the dead letters of a group have in common.
type key struct{ source, code, text string }

func (k key) id() string { return fingerprint.Of(k.source, k.code, k.text) }

// GroupID returns the id of the group that a dead letter belongs to.
func GroupID(d *store.Dead) string { return keyOf(d).id() }

func keyOf(d *store.Dead) key { return key{d.SourceQueue, d.ErrorCode, groupText(d)} }

// groupText is the normalised error of a dead letter, or its reason if it has no error.
func groupText(d *store.Dead) string {
	if d.Error == "" && d.ErrorCode == "" {
		return d.Reason
	}
	return fingerprint.Normalise(d.Error)
}

// normaliser remembers the normalised form of error texts: normalising takes most of the
// time of grouping, and most dead letters share a few texts.
type normaliser map[string]string

func (n normaliser) keyOf(d *store.Dead) key {
	if d.Error == "" {
		return keyOf(d)
	}
	text, known := n[d.Error]
	if !known {
		text = groupText(d)
		if len(n) < maxTexts {
			n[d.Error] = text
		}
	}
	return key{d.SourceQueue, d.ErrorCode, text}
}

// Group is a group of dead letters with the same error.
type Group struct {
	key
	id string
}

// Reader finds the groups of dead letters that a job redrives. It is used by one goroutine
// at a time and remembers groups, up to a limit.
type Reader struct {
	texts normaliser
	known map[key]*Group
}

// NewReader returns a Reader that knows no groups yet.
func NewReader() Reader { return Reader{normaliser{}, make(map[key]*Group)} }

// Groups reads the groups of dead letters of a queue, by sequence. Dead letters that are
// gone or unreadable are left out.
func (r Reader) Groups(st store.Store, id store.QueueID, seqs []uint64) (map[uint64]*Group, error) {
	refs, found := make([]store.Ref, len(seqs)), make(map[uint64]*Group, len(seqs))
	for i, seq := range seqs {
		refs[i] = store.Ref{Queue: id, Seq: seq}
	}
	err := st.Dead(refs, func(i int, d *store.Dead) {
		if d != nil {
			found[seqs[i]] = r.groupOf(d)
		}
	})
	return found, store.Fatal(err)
}

func (r Reader) groupOf(d *store.Dead) *Group {
	k := r.texts.keyOf(d)
	g := r.known[k]
	if g == nil {
		g = &Group{k, k.id()}
		if len(r.known) < maxRedriven {
			r.known[k] = g
		}
	}
	return g
}
