package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

var flagSeeds = flag.Uint64("fila.seeds", 1, "histories of the power failure test")

const (
	faultPage   = 4096
	faultSector = 512     // what a disk writes as a whole, or not at all
	faultMeta   = 16 + 64 // bytes of a meta page that mean something to bbolt
	faultSeal   = 512     // where the seal is
	sealRuns    = faultSeal + 4
	sealHead    = 24
	sealRun     = 16

	metaInUse = 16 + 40 // of a meta page: how many pages are in use
	metaTx    = 16 + 48 // of a meta page: its transaction
)

// image is the file after a confirmed commit, with its content.
type image struct {
	file      []byte
	want      *storetest.Content
	carried   int64 // messages that compaction has written again, up to here
	confirmed storefile.Confirmed
}

// outage is a state that a power failure can leave of the commit from one image
// to the next.
type outage struct {
	name string
	file []byte
	want *storetest.Content
	torn bool // a check must say that the last commit may be missing
}

// pair is two consecutive images.
type pair struct {
	t        *testing.T
	rng      *rand.Rand
	old, new image
	pages    []int // data pages that the commit changed
	meta     int   // the meta page that it wrote
}

// TestPowerFailure cuts the power during commits. A commit extends the file if
// necessary and syncs it, writes data pages, one meta page and its seal, and syncs all of it
// (TestOrderOfWrites in sidecar/e2e checks that). Until all is written, the file must have
// its earlier content, whatever is in the other pages, and fila must be able to continue.
// The file of the newest confirmed commit may be as it was after any commit before.
func TestPowerFailure(t *testing.T) {
	seeds, commits := *flagSeeds, 36
	if testing.Short() {
		seeds, commits = 1, 16
	}
	for name, opts := range map[string]store.Options{
		"small": store.Options{}.Small(),
		"dense": store.Options{}.Small().Dense(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				powerFailures(t, opts, seed, commits)
			}
		})
	}
}

func powerFailures(t *testing.T, opts store.Options, seed uint64, commits int) {
	opts.Now = func() int64 { return 1e18 }
	opts.KeepConfirmed = true
	images := makeImages(t, opts, seed, commits)
	f := &faultFile{t: t, path: filepath.Join(t.TempDir(), "fila.db"), opts: opts}
	var states, grown, compacting, torn, complete int
	for i := range images[1:] {
		p := newPair(t, images[i], images[i+1], rand.New(rand.NewPCG(seed, uint64(i))))
		if p.new.carried > p.old.carried {
			compacting++
		}
		if len(p.new.file) > len(p.old.file) {
			grown++
		}
		f.about = fmt.Sprintf("seed %d, commit %d, the old file", seed, i)
		f.refusesOlder(p)
		for _, o := range p.outages() {
			states++
			f.confirmed = p.old.confirmed
			if o.torn {
				torn++
			}
			if o.want == p.new.want {
				complete++
			}
			f.about = fmt.Sprintf("seed %d, commit %d, %s", seed, i, o.name)
			f.survives(o)
		}
		f.about = fmt.Sprintf("seed %d, commit %d, cut or with a page lost", seed, i)
		f.refusesCut(p)
		f.refusesLost(p)
	}
	t.Logf("seed %d: %d commits, %d of them compacting, %d growing the file; %d states, %d of them complete, %d with a commit that may be missing",
		seed, len(images)-1, compacting, grown, states, complete, torn)
	require.Positive(t, compacting, "a commit with compaction must be among them")
	require.Positive(t, grown, "a commit that makes the file larger must be among them")
	require.Positive(t, torn)
}

// makeImages commits a random history and keeps the file of every commit.
func makeImages(t *testing.T, opts store.Options, seed uint64, commits int) []image {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	dir := t.TempDir()
	s := open(t, dir, opts)
	model, err := storetest.OpenModel(t.TempDir(), opts.Now)
	require.NoError(t, err)
	h := faultHistory{rng: rng}
	var images []image
	for range commits {
		b, same := h.batch()
		before := s.Stats().Commits
		require.NoError(t, storetest.Do(s, b))
		require.NoError(t, storetest.Do(model, same))
		require.Equal(t, before+1, s.Stats().Commits, "one commit between two images")
		file, err := os.ReadFile(s.Path())
		require.NoError(t, err)
		images = append(images, image{
			file: file, want: storetest.Dump(t, model), carried: s.Stats().CarriedTotal,
			confirmed: storefile.Confirmed{Commit: uint64(before + 1)},
		})
	}
	require.NoError(t, errors.Join(s.Close(), model.Close()))
	last, err := storefile.Path(s.Path()).ReadConfirmed()
	require.NoError(t, err)
	for i := range images {
		images[i].confirmed.Store = last.Store
	}
	return images
}

// faultHistory makes batches with all kinds of changes.
type faultHistory struct {
	rng  *rand.Rand
	seq  uint64
	live []uint64
	n    int
}

// batch returns the next one twice, as a store keeps its batch.
func (h *faultHistory) batch() (one, two *store.Batch) {
	var b store.Batch
	if h.n++; h.n == 1 {
		b.PutQueues = []store.QueueRecord{{ID: 1, Name: "q"}, {ID: 2, Name: "q.dlq"}}
	}
	for range 1 + h.rng.IntN(12) {
		h.seq++
		m := store.Message{Ref: store.Ref{Queue: 1, Seq: h.seq}, Class: store.Class{Key: "k"}, EnqueuedAt: 5, Payload: storetest.Payload(1, h.seq)}
		if h.rng.IntN(6) == 0 {
			m.Payload = bytes.Repeat(m.Payload, 200) // overflow pages
		}
		b.Add = append(b.Add, m)
		h.live = append(h.live, h.seq)
	}
	for len(h.live) > 30 && h.rng.IntN(12) > 0 {
		b.Finish = append(b.Finish, store.Ref{Queue: 1, Seq: h.take()})
	}
	if len(h.live) > 10 {
		ref := store.Ref{Queue: 1, Seq: h.live[h.rng.IntN(len(h.live))]}
		b.State = []store.State{{Ref: ref, Attempts: uint32(h.n), LastError: "no reason given"}}
		if h.rng.IntN(4) == 0 {
			seq := h.take()
			b.Move = []store.Move{{From: store.Ref{Queue: 1, Seq: seq}, To: store.Message{Ref: store.Ref{Queue: 2, Seq: seq}, Class: store.Class{Key: "dead"}}}}
		}
	}
	b.Dedupe = []store.Dedupe{{Queue: 1, DedupeID: fmt.Sprint("d", h.n), Until: 2e18}}
	if h.rng.IntN(3) == 0 {
		b.PutConfig = []store.Entry{{Key: fmt.Sprint("k", h.rng.IntN(3)), Value: fmt.Sprint(h.n)}}
	}
	again := b
	return &b, &again
}

func (h *faultHistory) take() uint64 {
	i := h.rng.IntN(len(h.live))
	seq := h.live[i]
	h.live = slices.Delete(h.live, i, i+1)
	return seq
}

func newPair(t *testing.T, a, b image, rng *rand.Rand) *pair {
	t.Helper()
	p := &pair{t: t, rng: rng, old: a, new: b, meta: -1}
	require.GreaterOrEqual(t, len(b.file), len(a.file), "the file never shrinks")
	for id := range len(b.file) / faultPage {
		switch {
		case bytes.Equal(page(a.file, id), page(b.file, id)):
		case id >= 2:
			p.pages = append(p.pages, id)
		default:
			require.Equal(t, -1, p.meta, "a commit writes one meta page")
			p.meta = id
		}
	}
	require.NotEqual(t, -1, p.meta)
	require.NotEmpty(t, p.pages)
	return p
}

// page returns a page of a file, with zeros beyond the end.
func page(file []byte, id int) []byte {
	if (id+1)*faultPage > len(file) {
		return make([]byte, faultPage)
	}
	return file[id*faultPage : (id+1)*faultPage]
}

// base is the old file with the size of the new one, which is synced before any
// page is written.
func (p *pair) base() []byte {
	return append(slices.Clone(p.old.file), make([]byte, len(p.new.file)-len(p.old.file))...)
}

func (p *pair) outages() []outage {
	out := []outage{p.outage("all of it", p.new.file)}
	if n := len(p.new.file) - len(p.old.file); n > 0 {
		size := len(p.old.file) + 1 + p.rng.IntN(n)
		out = append(out, outage{fmt.Sprintf("grown to %d bytes", size), p.base()[:size], p.old.want, false})
	}
	for _, meta := range []tear{nothing, bytesOf, bytesOf, someSectors, someSectors, everything, everything} {
		out = append(out, p.mixture(everything, meta), p.mixture(anyOf, meta))
	}
	// All but one page, or but one sector, is the least that the seal must notice.
	for _, but := range []tear{nothing, oneSectorLess} {
		file, id := slices.Clone(p.new.file), p.pages[p.rng.IntN(len(p.pages))]
		copy(file[id*faultPage:], page(p.base(), id))
		out = append(out, p.outage(fmt.Sprint("all but page ", id, p.write(file, id, but)), file))
	}
	return out
}

// tear is what a power failure leaves of a page.
type tear byte

const (
	nothing tear = iota
	everything
	someSectors // disks write the sectors in any order
	oneSectorLess
	bytesOf // of the part that counts; disks write a sector as a whole or not, but the checksum does without that promise
	anyOf   // nothing, everything or some sectors
)

// mixture writes the data pages and the meta page in part.
func (p *pair) mixture(data, meta tear) outage {
	file := p.base()
	name := "data pages"
	for _, id := range p.pages {
		name += p.write(file, id, data)
	}
	return p.outage(name+", meta page"+p.write(file, p.meta, meta), file)
}

// write writes a part of a page, and returns its name.
func (p *pair) write(file []byte, id int, part tear) (name string) {
	if part == anyOf {
		part = []tear{nothing, everything, everything, someSectors}[p.rng.IntN(4)]
	}
	at, less := id*faultPage, p.rng.IntN(faultPage/faultSector)
	switch part {
	case nothing:
		return ""
	case everything:
		copy(file[at:], page(p.new.file, id))
		return fmt.Sprint(" ", id)
	case bytesOf:
		n := 1 + p.rng.IntN(faultMeta-1)
		copy(file[at:at+n], p.new.file[at:])
		return fmt.Sprintf(" %d to byte %d", id, n)
	}
	name = fmt.Sprintf(" %d (sectors", id)
	for k := range faultPage / faultSector {
		if part == oneSectorLess && k != less || part == someSectors && p.rng.IntN(2) == 0 {
			copy(file[at+k*faultSector:at+(k+1)*faultSector], p.new.file[at+k*faultSector:])
			name += fmt.Sprint(" ", k)
		}
	}
	return name + ")"
}

// sealSize returns the number of bytes of the seal.
func (p *pair) sealSize() int {
	return sealHead + int(binary.LittleEndian.Uint32(page(p.new.file, p.meta)[sealRuns:]))*sealRun
}

// outage returns a state with the content that it must have.
func (p *pair) outage(name string, file []byte) outage {
	at := p.meta * faultPage
	got, want, old := file[at:at+faultPage], page(p.new.file, p.meta), page(p.base(), p.meta)
	if !bytes.Equal(got[:faultMeta], want[:faultMeta]) { // it does not count, or is the one of two commits ago
		return outage{name, file, p.old.want, !bytes.Equal(got[:faultMeta], old[:faultMeta])}
	}
	end := faultSeal + p.sealSize()
	whole := bytes.Equal(got[:end], want[:end])
	for _, id := range p.pages {
		whole = whole && bytes.Equal(page(file, id), page(p.new.file, id))
	}
	if whole {
		return outage{name, file, p.new.want, false}
	}
	// Without a seal the commit was certainly not confirmed.
	return outage{name, file, p.old.want, bytes.Equal(got[faultSeal:faultSeal+16], want[faultSeal:faultSeal+16])}
}

// faultFile is the file for the states.
type faultFile struct {
	t     *testing.T
	path  string
	opts  store.Options
	about string

	confirmed storefile.Confirmed // the newest commit that was noted before a failure
}

func (f *faultFile) write(file []byte) {
	require.NoError(f.t, os.WriteFile(f.path, file, 0o600))
}

// survives opens a state, checks its whole content, and continues with it.
func (f *faultFile) survives(o outage) {
	f.t.Helper()
	f.write(o.file)
	require.NoError(f.t, storefile.Path(f.path).WriteConfirmed(f.confirmed))
	defer f.keep(o.file)
	f.checks(o.torn)
	s, err := store.Open(f.path, f.opts)
	require.NoError(f.t, err, f.about)
	f.holds(s, o.want)
	want := *o.want
	q := store.QueueRecord{ID: want.NextQueue, Name: "after the failure"}
	m := store.Message{Ref: store.Ref{Queue: q.ID, Seq: 1}, Payload: []byte(o.name)}
	require.NoError(f.t, storetest.Do(s, &store.Batch{PutQueues: []store.QueueRecord{q}, Add: []store.Message{m}}), f.about)
	require.NoError(f.t, s.Close(), f.about)

	want.Queues = append(slices.Clone(want.Queues), q)
	want.Messages = append(slices.Clone(want.Messages), storetest.Stored{Message: m})
	want.NextQueue++
	f.checks(false) // the commit has mended the meta page
	s, err = store.Open(f.path, f.opts)
	require.NoError(f.t, err, f.about)
	f.holds(s, &want)
	require.NoError(f.t, s.Close(), f.about)
}

func (f *faultFile) checks(torn bool) {
	f.t.Helper()
	sum, err := store.CheckFile(f.path, f.opts, func(e *store.CorruptError) {
		f.t.Errorf("%s: %v", f.about, e)
	})
	require.NoError(f.t, err, f.about)
	require.True(f.t, sum.Structure, f.about)
	require.Zero(f.t, sum.Problems, f.about)
	require.Nil(f.t, sum.Lost, f.about)
	require.Equal(f.t, torn, sum.TornMeta, "%s: a torn meta page is noticed", f.about)
}

func (f *faultFile) holds(s *store.Bolt, want *storetest.Content) {
	f.t.Helper()
	require.Equal(f.t, want, storetest.Dump(f.t, s), f.about)
}

// refusesOlder puts the old file back after the commit was noted.
func (f *faultFile) refusesOlder(p *pair) {
	f.t.Helper()
	f.write(p.old.file)
	require.NoError(f.t, storefile.Path(f.path).WriteConfirmed(p.new.confirmed))
	_, err := store.Open(f.path, f.opts)
	var lost *store.LostError
	require.ErrorAs(f.t, err, &lost, f.about)
}

// refusesCut removes the end of the new file, which no crash does: the rest must not pass for a
// store with less in it.
func (f *faultFile) refusesCut(p *pair) {
	f.t.Helper()
	meta := page(p.new.file, p.meta)
	used := int(binary.NativeEndian.Uint64(meta[metaInUse:])) * faultPage
	require.Greater(f.t, binary.NativeEndian.Uint64(meta[metaTx:]), binary.NativeEndian.Uint64(page(p.new.file, 1-p.meta)[metaTx:]))
	for _, size := range []int{1 + p.rng.IntN(used-1), used - faultPage, used - 1} {
		f.write(p.new.file[:size])
		s, err := store.Open(f.path, f.opts)
		if err == nil {
			require.NoError(f.t, s.Close())
		}
		require.ErrorContains(f.t, err, f.path, "%s, cut to %d bytes of %d", f.about, size, used)
		require.True(f.t, errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNotStore), "%s, cut to %d: %v", f.about, size, err)
		if size >= used-faultPage {
			require.ErrorContains(f.t, err, "cut short", f.about)
		}
	}
	f.survives(outage{"the pages in use", p.new.file[:used], p.new.want, false})
}

// refusesLost loses a page of a commit that was noted, as a disk does that confirms a sync
// without it, or damages the seal of the commit.
func (f *faultFile) refusesLost(p *pair) {
	f.t.Helper()
	lost := slices.Clone(p.new.file)
	id := p.pages[p.rng.IntN(len(p.pages))]
	copy(lost[id*faultPage:], page(p.base(), id))
	damaged := slices.Clone(p.new.file)
	damaged[p.meta*faultPage+faultSeal+p.rng.IntN(p.sealSize())] ^= 1 << p.rng.IntN(8)
	for _, file := range [][]byte{lost, damaged} {
		f.write(file)
		require.NoError(f.t, storefile.Path(f.path).WriteConfirmed(p.new.confirmed))
		_, err := store.Open(f.path, f.opts)
		var noted *store.LostError
		require.ErrorAs(f.t, err, &noted, f.about)
	}
}

// keep saves a state that failed, because the layout of pages differs in every run.
func (f *faultFile) keep(file []byte) {
	if !f.t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "fila-faults-")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "fila.db"), file, 0o600)
	}
	f.t.Logf("%s\nthe file: %s/fila.db (%v)", f.about, dir, err)
}
