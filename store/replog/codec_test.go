package replog

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
)

var update = flag.Bool("update", false, "write the golden files")

// everything returns a batch with all fields set.
func everything() *store.Batch {
	ref := store.Ref{Queue: 7, Seq: 1 << 40}
	full := store.Message{
		Ref: ref, ID: store.ID{1, 2, 15: 16}, EnqueuedAt: 1e18, NotBefore: 2e18, Delayed: true, ExpiresAt: -3, Attempts: 9,
		Class:   store.Class{Weight: 1000, Cost: 1<<32 - 1, Key: "tenant", ThrottleKeys: []string{"a", "", "ccc"}, CircuitKey: "stripe"},
		Dead:    &store.Dead{Reason: "max_deliveries", Error: "boom", ErrorCode: "E1", SourceQueue: "q", At: 5e17, Attempts: 20},
		Headers: []byte("headers"), Payload: []byte("payload"),
	}
	to := full
	to.Headers, to.Payload, to.Dead, to.Delayed = nil, nil, nil, false
	return &store.Batch{
		Add:             []store.Message{full, {Ref: store.Ref{Queue: 1, Seq: 2}}},
		Move:            []store.Move{{From: store.Ref{Queue: 2, Seq: 3}, To: to}},
		Finish:          []store.Ref{ref, {Queue: 1}},
		State:           []store.State{{Ref: ref, Attempts: 3, ReadyAt: 4, Lease: store.Lease{ID: 1 << 60, Consumer: "c", Deadline: 5}, LastError: "e"}},
		Dedupe:          []store.Dedupe{{Queue: 1, DedupeID: "d", ID: store.ID{9}, Until: 1 << 62}},
		PutQueues:       []store.QueueRecord{{ID: 1, Name: "q", Settings: []byte("{}")}},
		DeleteQueues:    []store.QueueID{4, 5},
		PutConsumers:    []store.ConsumerRecord{{Queue: 1, Name: "c", MaxInFlight: 64, ExpiresAt: 6, Reg: 7}},
		DeleteConsumers: []store.ConsumerRecord{{Queue: 1, Name: "x"}},
		PutConfig:       []store.Entry{{Key: "k", Value: "v"}, {Key: "l"}},
		DeleteConfig:    []string{"m"},
	}
}

// remembering returns a batch with data that came after version 1. Batches without such data are
// written as before, and a program that does not know it reports an error.
func remembering() *store.Batch {
	ref := store.Ref{Queue: 7, Seq: 1 << 40}
	return &store.Batch{
		History: []store.Attempt{{Ref: ref, Record: []byte("record")}, {Ref: store.Ref{Queue: 1}, Record: []byte{0}}},
		State: []store.State{
			{Ref: ref, Attempts: 1},
			{Ref: ref, Lease: store.Lease{ID: 1, Consumer: "c", Deadline: 5, DeliveredAt: 1e18, Held: "held"}},
		},
	}
}

// prioritised returns a batch of messages with priorities, which are in bits that were 0 before.
func prioritised() *store.Batch {
	return &store.Batch{Add: []store.Message{
		{Ref: store.Ref{Queue: 1, Seq: 2}, Class: store.Class{Weight: 1000, Cost: 1000, Key: "k", Priority: 9}},
		{Ref: store.Ref{Queue: 1, Seq: 3}, Delayed: true, NotBefore: 5, Class: store.Class{Priority: 1}},
	}}
}

func routed() *store.Batch {
	return &store.Batch{Add: []store.Message{{Ref: store.Ref{Queue: 1, Seq: 2}, Class: store.Class{
		Weight: 1000, Cost: 1000, Key: "k", ThrottleKeys: []string{"own"}, CircuitKey: "own",
		Routes: []store.Route{{Name: "one", Weight: 3000, ThrottleKeys: []string{"one:tpm", ""}, CircuitKey: "one"}, {Name: "two"}},
	}}}}
}

// Records and positions of version 1 remain readable, because logs and files have them.
func TestGolden(t *testing.T) {
	batches := []*store.Batch{everything(), {Finish: []store.Ref{{Queue: 1, Seq: 1}}}, {}}
	for name, b := range map[string][]byte{
		"epoch":    encode(head{kind: kindEpoch, epoch: 3, n: 1}, beginning{owner: "node-a", token: "ABC"}.append(nil, false)),
		"commit":   encode(head{kind: kindCommit, epoch: 3, n: 2}, appendBatches(nil, batches)),
		"history":  encode(head{kind: kindCommit, epoch: 3, n: 2}, appendBatches(nil, []*store.Batch{remembering()})),
		"priority": encode(head{kind: kindCommit, epoch: 3, n: 2}, appendBatches(nil, []*store.Batch{prioritised()})),
		"routes":   encode(head{kind: kindCommit, epoch: 3, n: 2}, appendBatches(nil, []*store.Batch{routed()})),
		"part":     encode(head{kind: kindCommit, more: true, epoch: 3, n: 3}, []byte("part")),
		"beat":     encode(head{kind: kindBeat, epoch: 3, n: 1 << 33}, nil),
		"resign":   encode(head{kind: kindResign, epoch: 3, n: 5}, putString(nil, "node-b")),
		"position": position{seq: 77, at: mark{epoch: 3, n: 5, ended: true}, incarnation: "inc", shard: 300}.append(nil),
	} {
		path := filepath.Join("testdata", name+".v1")
		if *update {
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, b, name)
	}
	read := func(name string) (head, []byte) {
		b, err := os.ReadFile(filepath.Join("testdata", name+".v1"))
		require.NoError(t, err)
		h, body, err := decode(b)
		require.NoError(t, err)
		return h, body
	}
	h, body := read("epoch")
	require.Equal(t, head{kind: kindEpoch, epoch: 3, n: 1}, h)
	b, err := decodeBeginning(body, false)
	require.NoError(t, err)
	require.Equal(t, beginning{owner: "node-a", token: "ABC"}, b)
	_, body = read("commit")
	got, err := decodeBatches(body)
	require.NoError(t, err)
	require.Equal(t, batches, got)
	_, body = read("history")
	got, err = decodeBatches(body)
	require.NoError(t, err)
	require.Equal(t, []*store.Batch{remembering()}, got)
	_, body = read("routes")
	got, err = decodeBatches(body)
	require.NoError(t, err)
	require.Equal(t, []*store.Batch{routed()}, got)
	h, _ = read("part")
	require.True(t, h.more)
	_, body = read("resign")
	to, err := decodeResign(body)
	require.NoError(t, err)
	require.Equal(t, "node-b", to)
	// Packed bytes may differ between versions of the packer; existing ones must be readable.
	long := []*store.Batch{everything(), {PutConfig: []store.Entry{{Key: "k", Value: strings.Repeat("value ", 1000)}}}}
	if *update {
		packed, ok := pack(nil, appendBatches(nil, long))
		require.True(t, ok)
		require.NoError(t, os.WriteFile("testdata/packed.v1", encode(head{kind: kindCommit, packed: true, epoch: 3, n: 4}, packed), 0o644))
	}
	h, body = read("packed")
	require.Equal(t, head{kind: kindCommit, packed: true, epoch: 3, n: 4}, h)
	body, err = unpack(body)
	require.NoError(t, err)
	got, err = decodeBatches(body)
	require.NoError(t, err)
	require.Equal(t, long, got)
	raw, err := os.ReadFile("testdata/position.v1")
	require.NoError(t, err)
	p, err := decodePosition(raw)
	require.NoError(t, err)
	require.Equal(t, position{seq: 77, at: mark{epoch: 3, n: 5, ended: true}, data: Mark{Epoch: 3, N: 5, Seq: 77}, incarnation: "inc", shard: 300}, p)
}

// Records and positions with a chain remain readable, too.
func TestGoldenChains(t *testing.T) {
	begins := beginning{owner: "node-a", token: "ABC", after: place{2, 700}, snapshot: "3/repair"}
	heads := map[string]head{
		"epoch":  {kind: kindEpoch, epoch: 3, n: 1, chained: true, before: 0x1122334455667788},
		"commit": {kind: kindCommit, epoch: 3, n: 2, chained: true},
	}
	bodies := map[string][]byte{"epoch": begins.append(nil, true), "commit": appendBatches(nil, []*store.Batch{everything()})}
	p := position{
		seq: 77, at: mark{epoch: 3, n: 5, chain: 9, ended: true}, data: Mark{Epoch: 2, N: 4, Seq: 70, Chain: 8}, incarnation: "inc", shard: 300,
	}
	golden := map[string][]byte{"position": p.append(nil)}
	for name, h := range heads {
		golden[name] = encode(h, bodies[name])
	}
	for name, b := range golden {
		path := filepath.Join("testdata", name+".v2")
		if *update {
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, b, name)
		if name == "position" {
			got, err := decodePosition(want)
			require.NoError(t, err)
			require.Equal(t, p, got)
			continue
		}
		h, body, err := decode(want)
		require.NoError(t, err)
		require.Equal(t, heads[name], h)
		require.Equal(t, bodies[name], body)
	}
	got, err := decodeBeginning(bodies["epoch"], true)
	require.NoError(t, err)
	require.Equal(t, begins, got)
	require.Equal(t, uint64(0xd33ecdb2f47847d3), chainOf(heads["commit"], golden["commit"]), "stored in files")
	_, _, err = decode(golden["commit"][:plainHead+7])
	require.Error(t, err)
}

// A body is packed if that saves enough.
func TestPack(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want bool
	}{
		"nothing": {"", false}, "short": {strings.Repeat("x", packFrom-1), false}, "text": {strings.Repeat("x", packFrom), true},
		"long": {strings.Repeat("text ", 1<<20), true}, "noise": {noise(1 << 20), false}, "both": {noise(packFrom) + strings.Repeat("x", packFrom), true},
	} {
		packed, ok := pack([]byte("head"), []byte(c.body))
		require.Equal(t, c.want, ok, name)
		if !ok {
			continue
		}
		require.Less(t, len(packed), len(c.body), name)
		require.Equal(t, "head", string(packed[:4]), name)
		body, err := unpack(packed[4:])
		require.NoError(t, err, name)
		require.Equal(t, c.body, string(body), name)
		_, err = unpack(packed[4 : len(packed)-1])
		require.Error(t, err, name)
	}
	_, err := unpack(binary.AppendUvarint(nil, maxUnpacked+1))
	require.ErrorContains(t, err, "bytes are packed in it")
}

// noise returns a text that cannot be compressed.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return string(b)
}

// Every flipped bit of a record is noticed.
func TestDamageShows(t *testing.T) {
	record := encode(head{kind: kindCommit, epoch: 3, n: 2}, appendBatches(nil, []*store.Batch{everything()}))
	for i := range record {
		for bit := range 8 {
			record[i] ^= 1 << bit
			_, _, err := decode(record)
			require.Error(t, err, "byte %d", i)
			record[i] ^= 1 << bit
		}
		_, _, err := decode(record[:i])
		require.Error(t, err)
	}
	_, _, err := decode(record)
	require.NoError(t, err)
}

func TestLeasesAreThoseOfTheStates(t *testing.T) {
	b := remembering()
	body := appendBatches(nil, []*store.Batch{b})
	cut := appendBatches(nil, []*store.Batch{{State: b.State[:1]}})
	states := appendBatches(nil, []*store.Batch{{State: []store.State{{Ref: b.State[0].Ref, Attempts: 1}, {Ref: b.State[1].Ref, Lease: store.Lease{ID: 1, Consumer: "c", Deadline: 5}}}}})
	wrong := append(cut[:len(cut)-1:len(cut)-1], body[len(states)-1:]...) // one state, and the leases of two
	_, err := decodeBatches(wrong)
	require.ErrorContains(t, err, "2 leases of 1 states")
	unknown := append(cut[:len(cut)-1:len(cut)-1], sectionLeases+1, 1, 0)
	_, err = decodeBatches(unknown)
	require.ErrorIs(t, err, ErrUnknown)
}

func TestPositionOfANewerVersion(t *testing.T) {
	p := position{seq: 1}.append(nil)
	p[0] += 2
	_, err := decodePosition(p)
	require.ErrorIs(t, err, ErrUnknown)
}

// A readable record encodes to the same bytes again, and no input makes the decoder
// panic or allocate without bound.
func FuzzRecord(f *testing.F) {
	for _, name := range []string{"epoch", "commit", "history", "routes", "part", "beat", "resign", "packed", "position"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".v1"))
		require.NoError(f, err)
		f.Add(b)
		if len(b) > recordHead {
			f.Add(b[recordHead:])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, body, err := decode(b); err == nil {
			require.Equal(t, b, encode(h, body))
		}
		if batches, err := decodeBatches(b); err == nil {
			again, err := decodeBatches(appendBatches(nil, batches))
			require.NoError(t, err)
			require.Equal(t, batches, again)
		}
		for _, chained := range []bool{false, true} {
			if x, err := decodeBeginning(b, chained); err == nil {
				again, err := decodeBeginning(x.append(nil, chained), chained)
				require.NoError(t, err)
				require.Equal(t, x, again)
			}
		}
		if p, err := decodePosition(b); err == nil && p.shard >= 0 {
			again, err := decodePosition(p.append(nil))
			require.NoError(t, err)
			require.Equal(t, p, again)
		}
	})
}
