package storefile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
)

var (
	le  = binary.LittleEndian
	be  = binary.BigEndian
	crc = crc32.MakeTable(crc32.Castagnoli)
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc) }

// A block is a list of items behind an offset table. Segments (kind S), their
// header indexes (I) and the values of the dedupe log (D) are blocks. All integers
// are little endian.
//
//	 0  u8   kind: 'S', 'I' or 'D'
//	 1  u8   version, 1
//	 2  u16  0
//	 4  u32  n, number of items
//	 8  u64  id: of the segment, or the stamp of a dedupe value
//	16  u32  CRC32-C of bytes 0..15
//	20  u32  end of item i, counted from byte 0 of the block, n times
//	20+4n    items; the first one begins here, each next one at the end of the last
//
// The table has no checksum: every item has one, so a damaged table entry makes two
// items unreadable and not the block.
const (
	BlockHeader  = 20 // bytes
	blockVersion = 1

	KindSegment = 'S'
	KindIndex   = 'I'
	KindDedupe  = 'D'
)

var (
	// ErrChecksum is the reason for a record with a wrong checksum.
	ErrChecksum = errors.New("checksum does not match")

	errShort    = errors.New("cut short")
	errTrailing = errors.New("bytes left over")
)

// Block is an opened block. Its items are not checked yet.
type Block struct {
	b []byte
	N int // items
}

// BeginBlock appends the header and the empty table of a block to dst, which
// should have capacity for the whole block.
func BeginBlock(dst []byte, kind byte, id uint64, n int) []byte {
	at := len(dst)
	dst = append(dst, kind, blockVersion, 0, 0)
	dst = le.AppendUint32(dst, uint32(n))
	dst = le.AppendUint64(dst, id)
	dst = le.AppendUint32(dst, checksum(dst[at:at+16]))
	return append(dst, make([]byte, 4*n)...)
}

// EndItem notes that item i of the block b ends at the end of b.
func EndItem(b []byte, i int) {
	le.PutUint32(b[BlockHeader+4*i:], uint32(len(b)))
}

// OpenBlock checks the frame of a block.
func OpenBlock(b []byte, kind byte, id uint64) (Block, error) {
	switch {
	case len(b) < BlockHeader:
		return Block{}, errShort
	case checksum(b[:16]) != le.Uint32(b[16:]):
		return Block{}, fmt.Errorf("header: %w", ErrChecksum)
	case b[0] != kind:
		return Block{}, fmt.Errorf("kind %q instead of %q", b[0], kind)
	case b[1] != blockVersion:
		return Block{}, fmt.Errorf("block version %d", b[1])
	case le.Uint64(b[8:]) != id:
		return Block{}, fmt.Errorf("id %d instead of %d", le.Uint64(b[8:]), id)
	}
	n := int64(le.Uint32(b[4:]))
	if BlockHeader+4*n > int64(len(b)) {
		return Block{}, errShort
	}
	bl := Block{b: b, N: int(n)}
	if bl.end(bl.N-1) != int64(len(b)) {
		return Block{}, fmt.Errorf("%d bytes where the table says %d", len(b), bl.end(bl.N-1))
	}
	return bl, nil
}

// IsOpen reports whether the block was opened.
func (bl Block) IsOpen() bool { return bl.b != nil }

// end returns the end of item i; -1 stands for the table.
func (bl Block) end(i int) int64 {
	if i < 0 {
		return int64(BlockHeader + 4*bl.N)
	}
	return int64(le.Uint32(bl.b[BlockHeader+4*i:]))
}

// Item returns the bytes of item i and its offset.
func (bl Block) Item(i int) (b []byte, offset int64, err error) {
	from, to := bl.end(i-1), bl.end(i)
	if from < int64(BlockHeader+4*bl.N) || from > to || to > int64(len(bl.b)) {
		return nil, from, errors.New("offset table is broken")
	}
	return bl.b[from:to:to], from, nil
}

// ItemAs decodes item i of a block and returns its offset.
func ItemAs[T any](bl Block, i int, decode func(b []byte) (T, error)) (v T, offset int64, err error) {
	b, offset, err := bl.Item(i)
	if err == nil {
		v, err = decode(b)
	}
	return v, offset, err
}

// verify checks the length of an item and its checksum, which comes first.
func verify(b []byte, atLeast int) error {
	if len(b) < atLeast {
		return errShort
	}
	if checksum(b[4:]) != le.Uint32(b) {
		return ErrChecksum
	}
	return nil
}

// itemRef returns the message of a verified record or entry.
func itemRef(b []byte) Ref { return Ref{Queue: QueueID(le.Uint32(b[4:])), Seq: le.Uint64(b[8:])} }

// A sealed value is a checksum over its key and the rest.
//
//	0  u32  CRC32-C of the key, then of bytes 4..
//	4       the value

// Seal appends a sealed value.
func Seal(dst []byte, key, value []byte) []byte {
	dst = le.AppendUint32(dst, crc32.Update(checksum(key), crc, value))
	return append(dst, value...)
}

// Unseal checks a sealed value and returns the value.
func Unseal(key, b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errShort
	}
	if crc32.Update(checksum(key), crc, b[4:]) != le.Uint32(b) {
		return nil, ErrChecksum
	}
	return b[4:], nil
}

// reader decodes a value. After an error everything reads as zero.
type reader struct {
	b   []byte
	err error
}

// unsealed returns a reader for a sealed value.
func unsealed(key, b []byte) reader {
	v, err := Unseal(key, b)
	return reader{b: v, err: err}
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.b) {
		if r.err == nil {
			r.err = errShort
		}
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

func (r *reader) i64() int64 { return int64(r.u64()) }

// uvarint reads a length and refuses one that is not encoded in the shortest form.
func (r *reader) uvarint() int {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<31 || (n > 1 && v>>(7*(n-1)) == 0) {
		r.err = errors.New("bad length")
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// done returns the first error, or one if something is left.
func (r *reader) done() error {
	if r.err == nil && len(r.b) != 0 {
		r.err = errTrailing
	}
	return r.err
}

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func sizeBytes(b []byte) int { return sizeUvarint(len(b)) + len(b) }

func sizeString(s string) int { return sizeUvarint(len(s)) + len(s) }

func sizeUvarint(v int) int { return (bits.Len(uint(v)|1) + 6) / 7 }
