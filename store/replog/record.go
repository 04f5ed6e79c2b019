package replog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/klauspost/compress/s2"

	"github.com/filaq/fila/store"
)

// A record is one message of the stream:
//
//	 0       "FL"
//	 2  u8   version
//	 3  u8   kind; highest bit: the commit continues in the next record; second highest
//	         bit: its body is packed
//	 4  u32  CRC32-C of bytes 0..3 and 8..
//	 8  u64  epoch
//	16  u64  n, within the epoch
//	24       body
//
// Integers are little endian. The body by kind:
//
//	epoch        name of the new owner, and a random token of the attempt, strings
//	commit       the number of batches, uvarint, and the batches (see batch.go); packed:
//	             all of it in a block of S2; with several records per commit: a part
//	beat         empty
//	resignation  the node that should take over, string, may be empty
//
// A string is its length as a uvarint and its bytes.
const (
	recordVersion = 1
	recordHead    = 24
	flagMore      = 0x80
	flagPacked    = 0x40
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errRecord   = errors.New("is no record of a log")
	errChecksum = errors.New("checksum does not match")
	errShort    = errors.New("is cut short")
	errTrailing = errors.New("has bytes behind its end")
)

// putHead writes the head of a record into its first bytes. The body is behind them.
func putHead(record []byte, h head) {
	k := byte(h.kind)
	if h.more {
		k |= flagMore
	}
	if h.packed {
		k |= flagPacked
	}
	copy(record, []byte{'F', 'L', recordVersion, k})
	le.PutUint64(record[8:], h.epoch)
	le.PutUint64(record[16:], h.n)
	le.PutUint32(record[4:], recordSum(record))
}

func recordSum(record []byte) uint32 {
	return crc32.Update(crc32.Checksum(record[:4], castagnoli), castagnoli, record[8:])
}

// encode makes a record.
func encode(h head, body []byte) []byte {
	record := append(make([]byte, recordHead, recordHead+len(body)), body...)
	putHead(record, h)
	return record
}

// decode decodes a record. The body is a slice of it.
func decode(record []byte) (h head, body []byte, err error) {
	switch {
	case len(record) < recordHead || record[0] != 'F' || record[1] != 'L':
		return h, nil, errRecord
	case record[2] != recordVersion:
		return h, nil, fmt.Errorf("%w: version %d of records, this program knows %d", ErrUnknown, record[2], recordVersion)
	case le.Uint32(record[4:]) != recordSum(record):
		return h, nil, errChecksum
	}
	k := record[3]
	h = head{kind: kind(k &^ (flagMore | flagPacked)), more: k&flagMore != 0, packed: k&flagPacked != 0, epoch: le.Uint64(record[8:]), n: le.Uint64(record[16:])}
	return h, record[recordHead:], nil
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
}

func (b beginning) append(dst []byte) []byte {
	return putString(putString(dst, b.owner), b.token)
}

func decodeBeginning(body []byte) (beginning, error) {
	r := reader{b: body}
	b := beginning{owner: r.str(), token: r.str()}
	return b, r.done()
}

func decodeResign(body []byte) (to string, err error) {
	r := reader{b: body}
	to = r.str()
	return to, r.done()
}

// position is how far a file applied a log. It is in the file (store.Bolt.Position):
//
//	 0  u8   version
//	 1  u64  sequence in the stream
//	 9  u64  epoch
//	17  u64  n
//	25  u8   1: the owner has resigned
//	26       incarnation of the cluster, string
//	         shard, uvarint
type position struct {
	seq         uint64
	at          mark // never in the middle of a commit
	incarnation string
	shard       int
}

const positionVersion = 1

func (p position) append(dst []byte) []byte {
	dst = append(dst, positionVersion)
	dst = le.AppendUint64(dst, p.seq)
	dst = le.AppendUint64(dst, p.at.epoch)
	dst = le.AppendUint64(dst, p.at.n)
	ended := byte(0)
	if p.at.ended {
		ended = 1
	}
	dst = append(dst, ended)
	dst = putString(dst, p.incarnation)
	return binary.AppendUvarint(dst, uint64(p.shard))
}

func decodePosition(b []byte) (position, error) {
	r := reader{b: b}
	if v := r.u8(); r.err == nil && v != positionVersion {
		return position{}, fmt.Errorf("%w: version %d of positions, this program knows %d", ErrUnknown, v, positionVersion)
	}
	p := position{seq: r.u64(), at: mark{epoch: r.u64(), n: r.u64()}}
	p.at.ended = r.u8() == 1
	p.incarnation = r.str()
	p.shard = int(r.uvarint())
	return p, r.done()
}
