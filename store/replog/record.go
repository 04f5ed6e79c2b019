package replog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/filaq/fila/store"
)

// A record is one message of the stream:
//
//	 0       "FL"
//	 2  u8   version: 1, or 2 with a chain
//	 3  u8   kind; highest bit: the commit continues in the next record; second highest
//	         bit: its body is packed
//	 4  u32  CRC32-C of bytes 0..3 and 8..
//	 8  u64  epoch
//	16  u64  n, within the epoch
//	24  u64  with version 2: the chain of the record before, see [chainOf]; 0: not known
//	         body
//
// Integers are little endian. The body by kind:
//
//	epoch        name of the new owner, and a random token of the attempt, strings; with
//	             version 2 the epoch and the n of the last record that the owner had
//	             applied, uvarints, and the name of a snapshot, string, see [beginning]
//	commit       the number of batches, uvarint, and the batches (see batch.go); packed:
//	             all of it in a block of S2; with several records per commit: a part
//	beat         empty
//	resignation  the node that should take over, string, may be empty
//
// A string is its length as a uvarint and its bytes.
const (
	plainVersion   = 1
	chainedVersion = 2

	plainHead   = 24
	chainedHead = plainHead + 8
	recordHead  = chainedHead // space for a head of any version before a body
	flagMore    = 0x80
	flagPacked  = 0x40
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errRecord   = errors.New("is no record of a log")
	errChecksum = errors.New("checksum does not match")
	errShort    = errors.New("is cut short")
	errTrailing = errors.New("has bytes behind its end")
)

// putHead makes a record of a body with recordHead bytes before it, and returns it: a record
// without a chain begins later.
func putHead(buf []byte, h head) (record []byte) {
	record = buf
	version := byte(chainedVersion)
	if !h.chained {
		version = plainVersion
		record = buf[chainedHead-plainHead:]
	}
	k := byte(h.kind)
	if h.more {
		k |= flagMore
	}
	if h.packed {
		k |= flagPacked
	}
	copy(record, []byte{'F', 'L', version, k})
	le.PutUint64(record[8:], h.epoch)
	le.PutUint64(record[16:], h.n)
	if h.chained {
		le.PutUint64(record[plainHead:], h.before)
	}
	le.PutUint32(record[4:], recordSum(record))
	return record
}

// chainOf returns the chain of a record that counts: a hash over its bytes, and so over the
// chain of the record before. Equal chains mean equal histories. It is 0, not known, for a
// record that has no chain of the record before.
func chainOf(h head, record []byte) uint64 {
	if !h.chained {
		return 0
	}
	return sumOf(record)
}

// sumOf is a hash over a record, never 0.
func sumOf(record []byte) uint64 { return max(xxhash.Sum64(record), 1) }

func recordSum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[:4], castagnoli), castagnoli, record[8:])
}

// encode makes a record.
func encode(h head, body []byte) []byte {
	return putHead(append(make([]byte, recordHead, recordHead+len(body)), body...), h)
}

// decode decodes a record. The body is a slice of it.
func decode(record []byte) (h head, body []byte, err error) {
	switch {
	case len(record) < plainHead || record[0] != 'F' || record[1] != 'L':
		return h, nil, errRecord
	case record[2] < plainVersion || record[2] > chainedVersion:
		return h, nil, fmt.Errorf("%w: version %d of records, this program knows %d", ErrUnknown, record[2], chainedVersion)
	case le.Uint32(record[4:]) != recordSum(record):
		return h, nil, errChecksum
	}
	k := record[3]
	h = head{kind: kind(k &^ (flagMore | flagPacked)), more: k&flagMore != 0, packed: k&flagPacked != 0, epoch: le.Uint64(record[8:]), n: le.Uint64(record[16:])}
	body = record[plainHead:]
	if h.chained = record[2] == chainedVersion; h.chained {
		if len(body) < 8 {
			return h, nil, errShort
		}
		h.before, body = le.Uint64(body), body[8:]
	}
	return h, body, nil
}

const (
	// packFrom is the minimum length of a body to pack.
	packFrom = 4 << 10
	// maxUnpacked is more than the bytes of any commit.
	maxUnpacked = 2 * store.MaxBatchBytes
)

// pack appends a packed body to dst. ok is false if that saves too little.
func pack(dst, body []byte) (packed []byte, ok bool) {
	n := s2.MaxEncodedLen(len(body))
	if len(body) < packFrom || n < 0 {
		return dst, false
	}
	dst = slices.Grow(dst, n)
	block := s2.Encode(dst[len(dst):len(dst)+n], body)
	return dst[:len(dst)+len(block)], len(block) <= len(body)/8*7
}

func unpack(body []byte) ([]byte, error) {
	n, err := s2.DecodedLen(body)
	if err == nil && int64(n) > maxUnpacked {
		err = fmt.Errorf("%d bytes are packed in it", n)
	}
	if err != nil {
		return nil, err
	}
	return s2.Decode(nil, body)
}

// beginning is the body of an epoch record.
type beginning struct {
	owner string
	token string

	// Only in records with a chain.
	after    place  // the last record that the owner had applied
	snapshot string // the log lacks records before this one, and this snapshot has them
}

func (b beginning) append(dst []byte, chained bool) []byte {
	dst = putString(putString(dst, b.owner), b.token)
	if !chained {
		return dst
	}
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, b.after.epoch), b.after.n)
	return putString(dst, b.snapshot)
}

func decodeBeginning(body []byte, chained bool) (beginning, error) {
	r := reader{b: body}
	b := beginning{owner: r.str(), token: r.str()}
	if chained {
		b.after = place{epoch: r.uvarint(), n: r.uvarint()}
		b.snapshot = r.str()
	}
	return b, r.done()
}

func decodeResign(body []byte) (to string, err error) {
	r := reader{b: body}
	to = r.str()
	return to, r.done()
}

// position is how far a file applied a log. It is in the file (store.Bolt.Position):
//
//	 0  u8   version: 1, or 2 with a chain
//	 1  u64  sequence in the stream
//	 9  u64  epoch
//	17  u64  n
//	25  u8   1: the owner has resigned
//	26       incarnation of the cluster, string
//	         shard, uvarint
//	         with version 2: chain; sequence, epoch, n and chain of the newest commit; u64
//
// A position with a chain has version 2, so that a file that has seen no chain can be read
// by an older fila.
type position struct {
	seq         uint64
	at          mark // never in the middle of a commit
	data        Mark // the newest commit, whose loss would be a loss of data
	incarnation string
	shard       int
}

func (p position) append(dst []byte) []byte {
	version := byte(plainVersion)
	if p.at.chain != 0 {
		version = chainedVersion
	}
	dst = append(dst, version)
	dst = le.AppendUint64(dst, p.seq)
	dst = le.AppendUint64(dst, p.at.epoch)
	dst = le.AppendUint64(dst, p.at.n)
	ended := byte(0)
	if p.at.ended {
		ended = 1
	}
	dst = append(dst, ended)
	dst = binary.AppendUvarint(putString(dst, p.incarnation), uint64(p.shard))
	if version == chainedVersion {
		for _, v := range []uint64{p.at.chain, p.data.Seq, p.data.Epoch, p.data.N, p.data.Chain} {
			dst = le.AppendUint64(dst, v)
		}
	}
	return dst
}

func decodePosition(b []byte) (position, error) {
	r := reader{b: b}
	version := r.u8()
	if r.err == nil && (version < plainVersion || version > chainedVersion) {
		return position{}, fmt.Errorf("%w: version %d of positions, this program knows %d", ErrUnknown, version, chainedVersion)
	}
	p := position{seq: r.u64(), at: mark{epoch: r.u64(), n: r.u64()}}
	p.at.ended = r.u8() == 1
	p.incarnation = r.str()
	p.shard = int(r.uvarint())
	p.data = p.mark()
	if version == chainedVersion {
		if p.at.chain = r.u64(); r.err == nil && p.at.chain == 0 {
			r.fail(errors.New("has no chain"))
		}
		p.data = Mark{Seq: r.u64(), Epoch: r.u64(), N: r.u64(), Chain: r.u64()}
	}
	return p, r.done()
}
