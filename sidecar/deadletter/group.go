package deadletter

import (
	"slices"

	"github.com/filaq/fila/fingerprint"
	"github.com/filaq/fila/sidecar/queue/history"
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

// lastRedrive returns when the dead letter with this history was last redriven (Unix ns; 0: never), and
// from which group: the one of the death before it. If the history does not have that any more, it is
// the present group.
func (n normaliser) lastRedrive(records [][]byte, present key) (at int64, from key) {
	for _, record := range slices.Backward(records) {
		isRedrive := history.IsRedrive(record)
		if at == 0 && !isRedrive {
			continue
		}
		r, err := history.Read(record)
		switch {
		case err != nil:
			return at, present
		case at == 0:
			at = max(r.At, 1)
		case isRedrive:
			return at, present
		case r.Reason != "":
			return at, n.keyOf(&store.Dead{SourceQueue: present.source, Error: r.Error, ErrorCode: r.Code, Reason: r.Reason})
		}
	}
	return at, present
}

// Group is a group of dead letters with the same error, for one redrive.
type Group struct {
	key
	id    string
	again bool // the dead letter has been redriven from this group before, and came back
}

// Reader finds the groups of dead letters that a job redrives. It is used by one goroutine
// at a time and remembers groups, up to a limit.
type Reader struct {
	texts normaliser
	known map[Group]*Group // by key and again
}

// NewReader returns a Reader that knows no groups yet.
func NewReader() Reader { return Reader{normaliser{}, make(map[Group]*Group)} }

// Groups reads the groups of dead letters of a queue, by sequence. Dead letters that are
// gone or unreadable are left out.
func (r Reader) Groups(st store.Store, id store.QueueID, seqs []uint64) (map[uint64]*Group, error) {
	refs, found := make([]store.Ref, len(seqs)), make(map[uint64]*Group, len(seqs))
	for i, seq := range seqs {
		refs[i] = store.Ref{Queue: id, Seq: seq}
	}
	dead := make([]key, len(seqs))
	err := st.Dead(refs, func(i int, d *store.Dead) {
		if d != nil {
			dead[i] = r.texts.keyOf(d)
			found[seqs[i]] = r.group(dead[i], false)
		}
	})
	if store.Fatal(err) != nil {
		return found, store.Fatal(err)
	}
	err = st.History(refs, func(i int, records [][]byte) {
		if found[seqs[i]] == nil {
			return
		}
		if at, from := r.texts.lastRedrive(records, dead[i]); at != 0 && from == dead[i] {
			found[seqs[i]] = r.group(from, true)
		}
	})
	return found, store.Fatal(err)
}

func (r Reader) group(k key, again bool) *Group {
	g := r.known[Group{key: k, again: again}]
	if g == nil {
		g = &Group{k, k.id(), again}
		if len(r.known) < 2*maxRedriven {
			r.known[Group{key: k, again: again}] = g
		}
	}
	return g
}
