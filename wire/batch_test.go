package wire

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseBatch(t *testing.T) {
	h := map[string][]string{"A": {"1", "two\r\nlines"}}
	b := AppendBatch(AppendBatch(nil, h, []byte("first")), nil, nil)
	all, err := ParseBatch(b, &Batch{Messages: 2})
	require.Nil(t, err)
	require.Equal(t, []BatchMessage{
		{Header: HeaderLines("A: 1\r\nA: two  lines\r\n"), Data: []byte("first")}, {Header: HeaderLines{}, Data: []byte{}},
	}, all)

	// One more message than there are: the others count.
	all, err = ParseBatch(b, &Batch{Messages: 3})
	require.Nil(t, err)
	require.Nil(t, all[1].Err)
	require.Equal(t, "bad batch: it ends within message 2 of 3", all[2].Err.Description)

	_, err = ParseBatch(b, &Batch{Messages: 1})
	require.Equal(t, "bad batch: 8 bytes follow its 1 messages", err.Description)

	// A wrong length spoils what is behind it.
	binary.BigEndian.PutUint32(b[4:], 1<<31)
	all, err = ParseBatch(b, &Batch{Messages: 2})
	require.Nil(t, err)
	require.Equal(t, CodeBadBatch, all[0].Err.ErrCode)
	require.Equal(t, CodeBadBatch, all[1].Err.ErrCode)
}

func TestHeadersOfABatch(t *testing.T) {
	for text, code := range map[string]int{
		"A: 1\r\nB:2\r\nB:3\r\n": 0, "A: 1\r\n\r\n": CodeBadBatch, "A: 1\rB: 2\r\n": CodeBadBatch, "A: 1": CodeBadBatch, "A: 1\n": CodeBadBatch, "A\r\n": CodeBadBatch, "A b: 1\r\n": CodeBadHeaderName, ": 1\r\n": CodeBadHeaderName,
		"A:1\r\nB:2\r\nC:3\r\nD:4\r\n": CodeHeadersTooLarge, "A: 1234567890123456789012345678\r\n": CodeHeadersTooLarge,
	} {
		h, err := HeaderLines(text).Parse(map[string][]string{"Old": {"value"}}, HeaderLimits{Bytes: 40, Count: 3})
		require.NotContains(t, h, "Old", text)
		if code == 0 {
			require.Nil(t, err, text)
			require.Equal(t, map[string][]string{"A": {"1"}, "B": {"2", "3"}}, h)
			continue
		}
		require.NotNil(t, err, text)
		require.Equal(t, code, err.ErrCode, text)
	}
}

func TestBatchHeaders(t *testing.T) {
	for _, tc := range []struct {
		h    map[string][]string
		want *Batch
	}{
		{map[string][]string{"fila-batch": {"2"}, "Nats-Request-Info": {"x"}}, &Batch{Messages: 2}},
		{map[string][]string{HeaderBatch: {"1000"}, HeaderBatchAtomic: {"true"}}, &Batch{Messages: 1000, Atomic: true}},
		{map[string][]string{HeaderBatch: {"1"}, HeaderBatchAtomic: {"false"}}, &Batch{Messages: 1}},
		{map[string][]string{HeaderBatch: {"0"}}, nil},
		{map[string][]string{HeaderBatch: {"1001"}}, nil},
		{map[string][]string{HeaderBatch: {"two"}}, nil},
		{map[string][]string{HeaderBatchAtomic: {"true"}}, nil},
		{map[string][]string{HeaderBatch: {"1"}, HeaderBatchAtomic: {"yes"}}, nil},
		{map[string][]string{HeaderBatch: {"1"}, HeaderMsgID: {"x"}}, nil},
		{map[string][]string{HeaderBatch: {"1"}, "Tenant": {"x"}}, nil},
	} {
		o, err := ParseEnqueueHeaders(tc.h, 0)
		if tc.want != nil {
			require.Nil(t, err, tc.h)
			require.Equal(t, EnqueueOptions{Batch: tc.want}, o)
			continue
		}
		require.NotNil(t, err, tc.h)
		require.Equal(t, CodeBadBatch, err.ErrCode, tc.h)
	}
}

func FuzzParseBatch(f *testing.F) {
	f.Add(AppendBatch(nil, map[string][]string{"A": {"1"}}, []byte("x")), uint16(1))
	f.Add([]byte{0, 0, 0, 9, 0, 0, 0, 0}, uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		batch := &Batch{Messages: int(n)%MaxBatchMessages + 1}
		all, err := ParseBatch(b, batch)
		if err != nil {
			require.Equal(t, CodeBadBatch, err.ErrCode)
			return
		}
		require.Len(t, all, batch.Messages)
		var again []byte
		for i := range all {
			if all[i].Err != nil {
				require.Nil(t, all[i].Data)
				return
			}
			h, err := all[i].Header.Parse(nil, HeaderLimits{Bytes: 4096, Count: 64})
			if err != nil {
				return
			}
			again = AppendBatch(again, h, all[i].Data)
		}
		twice, err := ParseBatch(again, batch)
		require.Nil(t, err)
		for i := range all {
			first, _ := all[i].Header.Parse(nil, HeaderLimits{})
			second, err := twice[i].Header.Parse(nil, HeaderLimits{})
			require.Nil(t, err)
			require.Equal(t, first, second)
			require.Equal(t, all[i].Data, twice[i].Data)
		}
	})
}
