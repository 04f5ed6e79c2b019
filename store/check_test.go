package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storefile"
	"github.com/filaq/fila/store/storetest"
)

// check returns the problems of a file as texts.
func check(t require.TestingT, file string) (storefile.Checked, []string) {
	var found []string
	sum, err := store.CheckFile(file, store.Options{}, func(e *store.CorruptError) {
		require.Equal(t, file, e.File)
		found = append(found, e.Error())
	})
	require.NoError(t, err)
	require.Len(t, found, int(sum.Problems))
	return sum, found
}

func dump(t require.TestingT, file string) *storetest.Content {
	s, err := store.Open(file, store.Options{NoSync: true})
	require.NoError(t, err)
	c := storetest.Dump(t, s)
	require.NoError(t, s.Close())
	return c
}

func TestCheckFileSound(t *testing.T) {
	_, file := variety(t, store.Options{NoSync: true}.Small().Dense())
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	sum, found := check(t, file)
	require.Empty(t, found)
	require.True(t, sum.Structure)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "a check changes nothing")

	c := dump(t, file)
	var size, states int
	for _, m := range c.Messages {
		size += len(m.Headers) + len(m.Payload)
		if m.State != nil {
			states++
		}
	}
	require.EqualValues(t, len(c.Messages), sum.Messages)
	require.EqualValues(t, size, sum.Bytes)
	require.EqualValues(t, states, sum.States)
	require.GreaterOrEqual(t, sum.DedupeIDs, int64(len(c.Dedupes)))
	require.Len(t, sum.Queues, len(c.Queues))
	require.Positive(t, sum.Finished)
	require.Less(t, sum.UsedPages, sum.Pages)
}

func TestCheckFileRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fila.db")
	refused := func(want error) {
		t.Helper()
		_, err := store.CheckFile(file, store.Options{Timeout: time.Millisecond}, func(*store.CorruptError) { require.Fail(t, "called") })
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, file)
	}
	refused(os.ErrNotExist)
	require.NoFileExists(t, file, "a check makes nothing")
	require.NoError(t, os.Mkdir(file, 0o700))
	refused(store.ErrNotStore)
	require.NoError(t, os.Remove(file))

	s := open(t, dir, store.Options{})
	refused(store.ErrLocked)
	require.NoError(t, s.Close())
	edit(t, file, func(tx *bbolt.Tx) error { return store.PutVersion(tx, 7) })
	refused(store.ErrVersion)
}

// Two processes may read a file, but none can serve it then.
func TestFileIsShared(t *testing.T) {
	s := open(t, t.TempDir(), store.Options{NoSync: true})
	require.NoError(t, s.Close())
	f, err := store.OpenFile(s.Path(), store.Options{})
	require.NoError(t, err)
	_, found := check(t, s.Path())
	require.Empty(t, found)
	_, err = store.Open(s.Path(), store.Options{Timeout: time.Millisecond})
	require.ErrorIs(t, err, store.ErrLocked)
	require.NoError(t, f.Close())
	require.NoError(t, open(t, filepath.Dir(s.Path()), store.Options{}).Close())
}

// unknownState, lateQueue and spoiltConfig damage a file.
func unknownState(tx *bbolt.Tx) error {
	return store.PutState(tx, &store.State{Ref: store.Ref{Queue: 1, Seq: 99}})
}

func lateQueue(tx *bbolt.Tx) error {
	return store.PutQueue(tx, &store.QueueRecord{ID: 99, Name: "late"})
}

func spoiltConfig(tx *bbolt.Tx) error {
	return tx.Bucket([]byte("config")).Put([]byte("throttle:api:rate"), []byte("12345678"))
}

// TestCheckFileFindsAll damages a file step by step. Each check still finds the earlier
// damage.
func TestCheckFileFindsAll(t *testing.T) {
	var more []store.Batch
	for seq := uint64(10); seq < 16; seq++ {
		more = append(more, store.Batch{Add: []store.Message{
			{Ref: store.Ref{Queue: 1, Seq: seq}, Payload: bytes.Repeat([]byte{byte(seq)}, 700)},
		}})
	}
	file := goldenFile(t, store.Options{NoSync: true}.Small(), more...)
	_, found := check(t, file)
	require.Empty(t, found)
	wants := []string{}
	for _, tc := range []struct {
		want string
		edit func(tx *bbolt.Tx) error
	}{
		{`state 000000010000000000000063: message 99 of queue 1 does not exist`, unknownState},
		{`has the name "orders" of queue 1`, func(tx *bbolt.Tx) error {
			return store.PutQueue(tx, &store.QueueRecord{ID: 3, Name: "orders"})
		}},
		{`queue 00000063: id 99, the next id is 4`, lateQueue},
		{`of queue 55, which does not exist`, func(tx *bbolt.Tx) error {
			return store.PutConsumer(tx, &store.ConsumerRecord{Queue: 55, Name: "c"})
		}},
		{`belongs to no segment`, func(tx *bbolt.Tx) error {
			return storefile.PutSealed(tx.Bucket([]byte("bitmaps")), binary.BigEndian.AppendUint64(nil, 777), []byte{1, 0, 0, 0, 0})
		}},
		{`config "throttle:api:rate": checksum does not match`, spoiltConfig},
		{`secret: checksum does not match`, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("meta")).Put([]byte("secret"), make([]byte, 36))
		}},
		{`message 12 of queue 1 is there twice`, func(tx *bbolt.Tx) error { return copySegment(tx, 12, nil) }},
		{`checksum does not match`, func(tx *bbolt.Tx) error {
			return copySegment(tx, 13, func(index, value []byte) { value[len(value)-1] ^= 1 })
		}},
		{`segment of segment 904: cut short`, func(tx *bbolt.Tx) error {
			if err := copySegment(tx, 14, nil); err != nil {
				return err
			}
			b := tx.Bucket([]byte("segments")).Bucket(binary.BigEndian.AppendUint64(nil, 904))
			return b.Put([]byte("v"), []byte{1})
		}},
	} {
		edit(t, file, tc.edit)
		wants = append(wants, tc.want)
		sum, found := check(t, file)
		require.True(t, sum.Structure)
		for _, want := range wants {
			if want == wants[0] && len(wants) >= 9 {
				continue // with lost messages, a state may belong to one of them
			}
			in := func(problem string) bool { return strings.Contains(problem, want) }
			require.True(t, slices.ContainsFunc(found, in), "%q is not in %q", want, found)
		}
	}
}

// copySegment copies the segment whose only message is seq to segment 890+seq, after fn
// changed it.
func copySegment(tx *bbolt.Tx, seq uint64, fn func(index, value []byte)) error {
	segments := tx.Bucket([]byte("segments"))
	var index, value []byte
	err := segments.ForEach(func(k, _ []byte) error {
		v := segments.Bucket(k).Get([]byte("v"))
		if bytes.Contains(v, bytes.Repeat([]byte{byte(seq)}, 700)) {
			index, value = bytes.Clone(segments.Bucket(k).Get([]byte("i"))), bytes.Clone(v)
		}
		return nil
	})
	if err != nil || index == nil {
		return fmt.Errorf("no segment has message %d: %w", seq, err)
	}
	id := 890 + seq
	store.SetBlockID(index, id)
	store.SetBlockID(value, id)
	if fn != nil {
		fn(index, value)
	}
	b, err := segments.CreateBucket(binary.BigEndian.AppendUint64(nil, id))
	if err != nil {
		return err
	}
	return errors.Join(b.Put([]byte("i"), index), b.Put([]byte("v"), value))
}

// TestCheckFileCounts: a check notices a missing segment.
func TestCheckFileCounts(t *testing.T) {
	file := goldenFile(t, store.Options{NoSync: true})
	edit(t, file, func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("dedupe")).Cursor()
		c.First()
		return c.Delete()
	})
	_, found := check(t, file)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "is corrupt: tally: found 2 segments, ")
}

// TestCheckFilePages damages several pages. One run finds all of them.
func TestCheckFilePages(t *testing.T) {
	_, file := variety(t, store.Options{NoSync: true}.Small().Dense())
	image, err := os.ReadFile(file)
	require.NoError(t, err)
	// All leaves but the one with the names of the buckets.
	broken := 0
	for at := 2 * 4096; at < len(image) && broken < 400; at += 4096 {
		if binary.NativeEndian.Uint16(image[at+8:]) == 2 && !bytes.Contains(image[at:at+4096], []byte("bitmaps")) {
			poke(t, file, at+8, 0x40)
			broken++
		}
	}
	sum, found := check(t, file)
	require.False(t, sum.Structure)
	require.Greater(t, len(found), 3)
	require.Contains(t, found[0], "is corrupt: page of ")

	require.NoError(t, os.WriteFile(file, image[:len(image)/2], 0o600))
	sum, found = check(t, file)
	require.False(t, sum.Structure)
	require.Len(t, found, 1)
	require.Contains(t, found[0], "cut short")
}

// TestOpenReportsLikeCheck: opening a file names a fault in the same words as a check.
func TestOpenReportsLikeCheck(t *testing.T) {
	segment := func(tx *bbolt.Tx) *bbolt.Bucket {
		b := tx.Bucket([]byte("segments"))
		k, _ := b.Cursor().First()
		return b.Bucket(k)
	}
	for want, damage := range map[string]func(tx *bbolt.Tx) error{
		`config "throttle:api:rate": checksum does not match`: spoiltConfig,
		`index of segment 1: cut short`:                       func(tx *bbolt.Tx) error { return segment(tx).Put([]byte("i"), []byte{1}) },
		`message 99 of queue 1 does not exist`:                unknownState,
		`queue 00000063: id 99, the next id is 4`:             lateQueue,
		`message 9 of queue 88, which does not exist`: func(tx *bbolt.Tx) error {
			return store.PutState(tx, &store.State{Ref: store.Ref{Queue: 88, Seq: 9}})
		},
	} {
		file := goldenFile(t, store.Options{NoSync: true}.Small())
		edit(t, file, damage)
		_, checked := check(t, file)
		require.True(t, slices.ContainsFunc(checked, func(p string) bool { return strings.Contains(p, want) }), "%q is not in %q", want, checked)
		var met []string
		s, err := store.Open(file, store.Options{NoSync: true})
		if err == nil {
			_, err = s.Snapshot()
		}
		if err == nil {
			var stats store.RecoveryStats
			stats, err = s.Recover(store.Visitor{})
			for _, e := range stats.Corrupt {
				met = append(met, e.Error())
			}
		}
		if err != nil {
			met = append(met, err.Error())
		}
		if s != nil {
			require.NoError(t, s.Close())
		}
		require.NotEmpty(t, met, want)
		for _, m := range met {
			if strings.Contains(m, ": tally: found") {
				continue // a check says nothing about sums when it knows why they are wrong
			}
			require.True(t, slices.ContainsFunc(checked, func(p string) bool { return strings.HasSuffix(m, p) }), "%q is not in %q", m, checked)
		}
	}
}
