package job

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func testSigner(t *testing.T, secret byte) *wire.Signer {
	t.Helper()
	key := make([]byte, 32)
	key[0] = secret
	s, err := wire.NewSigner(key)
	require.NoError(t, err)
	return s
}

// TestStoredForms: other versions read and write them.
func TestStoredForms(t *testing.T) {
	n := int64(3)
	id := store.ID{0xab}
	j := &spec{JobCreateRequest: api.JobCreateRequest{Queue: "a.dlq", Op: api.JobMove, To: "b", Filter: &api.Filter{All: true}}, ID: "7", CreatedAt: 5, Last: 9, ByRedrive: true}
	at := &progress{
		State: api.JobPaused, Why: "full", Started: 1, Matched: 4, Done: 2, Left: map[string]int64{api.LeftGone: 2},
		At: position{Seq: 8, EnqueuedAt: 6, ID: id}, NewSince: &n,
	}
	out := &transfer{No: 2, Shard: 1, Before: position{Seq: 1}, Last: position{Seq: 8}, Entries: []entry{
		{Seq: 3, EnqueuedAt: 4, ID: id[:], NotBefore: 5, Delayed: true, ExpiresAt: 6}, {Seq: 8, EnqueuedAt: 4, ID: id[:], Why: api.LeftGone},
	}}
	r := &receipt{No: 3, Outcomes: "tk-", Refused: wire.NoOwner("x"), From: 2, At: 5}
	entries := append(j.entries(at, true), j.transferEntry(out), r.entry(j.ID))
	require.Equal(t, goldenEntries, entries)
	jobs, broken := readStored(entries)
	require.Empty(t, broken)
	jobs["7"].spec.Filter = j.Filter // which remembers how it was read
	require.Equal(t, map[string]*stored{"7": {j, *at, *out}}, jobs)
	require.Equal(t, []string{entries[1].Key, entries[0].Key, entries[2].Key}, j.keys())
	var read receipt
	require.NoError(t, json.Unmarshal([]byte(entries[3].Value), &read))
	require.Equal(t, *r, read)
	_, broken = readStored([]store.Entry{{Key: "color", Value: "blue"}, {Key: keyPrefix + "8/at", Value: `{"at":7}`}})
	require.Equal(t, []string{"8"}, broken)
}

// TestWireForms: nodes of other versions read and write them.
func TestWireForms(t *testing.T) {
	s := testSigner(t, 0)
	id := store.ID{0xab}
	req := &request{Shard: 1, From: 2, Job: "7", No: 3, Queue: "b", Sent: 4, Entries: []sentEntry{
		{ID: id[:], EnqueuedAt: 5, NotBefore: 6, Delayed: true, ExpiresAt: 7}, {ID: id[:], EnqueuedAt: 8},
	}}
	contents := []content{{readable: true, headers: []byte("h"), payload: []byte("body"), history: [][]byte{[]byte("r1"), []byte("r")}}, {}}
	body := packRequest(s, req, contents)
	require.Equal(t, goldenRequest, hex.EncodeToString(body[:32])+string(body[32:]))
	got, gotContents, err := unpackRequest(s, body)
	require.NoError(t, err)
	require.Equal(t, req, &got)
	require.Equal(t, contents, gotContents)

	r := &reply{receipt: receipt{No: 3, Outcomes: "tu", From: 2, At: 9}, Open: true}
	answer := packReply(s, body, r)
	require.Equal(t, goldenReply, hex.EncodeToString(answer[:32])+string(answer[32:]))
	gotReply, err := unpackReply(s, body, answer)
	require.NoError(t, err)
	require.Equal(t, *r, gotReply)

	other := packRequest(s, &request{Shard: 1, No: 4}, nil)
	_, err = unpackReply(s, other, answer)
	require.ErrorIs(t, err, errForged, "a reply to another request")
	_, _, err = unpackRequest(testSigner(t, 1), body)
	require.ErrorIs(t, err, errForged)
	_, _, err = unpackRequest(s, answer)
	require.ErrorIs(t, err, errForged)
	for i := range body { // a bit is another one, or the rest is cut off
		bad := slices.Clone(body)
		bad[i] ^= 1 << (i % 8)
		for _, body := range [][]byte{bad, body[:i]} {
			_, _, err = unpackRequest(s, body)
			require.ErrorIs(t, err, errForged)
		}
	}
}

// TestTheEndOfATransfer: each message is moved, or kept and counted by the reason; the job
// continues from the first message for which there was no room.
func TestTheEndOfATransfer(t *testing.T) {
	id := make([]byte, 16)
	tr := &transfer{No: 1, Before: position{Seq: 1}, Last: position{Seq: 9}, Entries: []entry{
		{Seq: 2, ID: id}, {Seq: 3, ID: id, Why: api.LeftGone}, {Seq: 4, ID: id}, {Seq: 5, ID: id}, {Seq: 6, ID: id, Why: api.LeftGone},
	}}
	for _, c := range []struct {
		outcomes    string
		at          uint64
		matched     int64
		moved, kept []uint64
		left        map[string]int64
	}{
		{"ttt", 9, 5, []uint64{2, 4, 5}, nil, map[string]int64{api.LeftGone: 2}},
		{"ktu", 9, 5, []uint64{4}, []uint64{2, 5}, map[string]int64{api.LeftGone: 2, api.LeftKeyFull: 1, api.LeftUnreadable: 1}},
		{"tt-", 4, 3, []uint64{2, 4}, []uint64{5}, map[string]int64{api.LeftGone: 1}},
		{"t", 3, 2, []uint64{2}, []uint64{4, 5}, map[string]int64{api.LeftGone: 1}},
		{"", 1, 0, nil, []uint64{2, 4, 5}, nil},
	} {
		next, moved, kept := tr.end(&progress{}, &receipt{Outcomes: c.outcomes})
		require.Equal(t, c.at, next.At.Seq, c.outcomes)
		require.Equal(t, []int64{c.matched, int64(len(c.moved))}, []int64{next.Matched, next.Done})
		require.Equal(t, []any{c.moved, c.kept, c.left}, []any{moved, kept, next.Left})
	}
}

// TestHistoriesAreShortened where a message does not fit otherwise: the first record stays,
// and the newest.
func TestHistoriesAreShortened(t *testing.T) {
	c := content{readable: true, payload: make([]byte, 100), history: [][]byte{[]byte("aaaa"), []byte("bbbb"), []byte("cccc"), []byte("dddd")}}
	full := c.size()
	require.True(t, c.shorten(full))
	require.Len(t, c.history, 4)
	require.True(t, c.shorten(full-1))
	require.Equal(t, [][]byte{[]byte("aaaa"), []byte("cccc"), []byte("dddd")}, c.history)
	require.False(t, c.shorten(entryOverhead))
	require.Empty(t, c.history)
}

// goldenEntries, goldenRequest and goldenReply are what the first version with jobs between shards
// stored and sent.
var goldenEntries = []store.Entry{
	{Key: "\x00job/7/at", Value: `{"state":"paused","why":"full","started":1,"matched":4,"done":2,"left":{"gone":2},"at":{"seq":8,"enqueued":6,"id":[171,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]},"new_since":3}`},
	{Key: "\x00job/7", Value: `{"queue":"a.dlq","op":"move","filter":{"all":true},"to":"b","job":"7","created":5,"last":9,"asked":true}`},
	{Key: "\x00job/7/out", Value: `{"no":2,"shard":1,"before":{"seq":1},"last":{"seq":8},"items":[{"s":3,"e":4,"i":"qwAAAAAAAAAAAAAAAAAAAA==","n":5,"d":true,"x":6},{"s":8,"e":4,"i":"qwAAAAAAAAAAAAAAAAAAAA==","w":"gone"}]}`},
	{Key: "\x00moved/7", Value: `{"no":3,"said":"tk-","refused":{"Code":503,"ErrCode":13503,"Description":"no node of the cluster serves queue \"x\" at the moment","RetryAfter":1000000000,"RateLimit":null},"from":2,"at":5}`},
}

const goldenRequest = "0f6398581c2b171c30137fb50baf124a6eb2441d33114f22567b40e0667a35d2\x00\x00\x00\xc6{\"shard\":1,\"from\":2,\"job\":\"7\",\"no\":3,\"queue\":\"b\",\"sent\":4,\"items\":[{\"i\":\"qwAAAAAAAAAAAAAAAAAAAA==\",\"e\":5,\"n\":6,\"d\":true,\"x\":7,\"h\":1,\"p\":4,\"r\":[2,1]},{\"i\":\"qwAAAAAAAAAAAAAAAAAAAA==\",\"e\":8,\"m\":true}]}hbodyr1r"

const goldenReply = "bbad2353598cc8415416755d0ee457aa2d2a80f5abd37a77bbd66d0053fd0254{\"no\":3,\"said\":\"tu\",\"from\":2,\"at\":9,\"open\":true}"
