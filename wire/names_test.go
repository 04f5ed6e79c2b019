package wire

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCheckQueueName(t *testing.T) {
	long := strings.Repeat("q", MaxQueueName)
	for _, ok := range []string{"q", "Orders", "a.b.c", "a-b_c.9", "0", "-", "_", "dlq", "orders.dlq", "a.dlq.b", long, long + DLQSuffix} {
		require.NoError(t, CheckQueueName(ok), ok)
	}
	for _, bad := range []string{
		"", ".", ".a", "a.", "a..b", ".dlq", "a..dlq", "a b", "a*", ">", "a/b", "a:b", "ä", "a\n", "a\x00", "a\xff",
		long + "q", long + "q" + DLQSuffix,
	} {
		err := CheckQueueName(bad)
		require.ErrorContains(t, err, "allowed are 1 to 128 bytes of A-Za-z0-9_-", "%q", bad)
		require.Less(t, len(err.Error()), 300)
	}
}

func TestCheckNames(t *testing.T) {
	for name, tc := range map[string]struct {
		check   func(string) error
		ok, bad []string
		allowed string
	}{
		"consumer": {
			CheckConsumerName,
			[]string{"w", "worker-1", "A_b", strings.Repeat("c", MaxConsumerName)},
			[]string{"", "a.b", ".", "a b", "*", ">", "é", "a\n", strings.Repeat("c", MaxConsumerName+1)},
			"allowed are 1 to 64 bytes of A-Za-z0-9_-",
		},
		"policy": {
			CheckPolicyName,
			[]string{"slow", "Vendor_429-b", strings.Repeat("p", MaxPolicyName)},
			[]string{"", "a.b", "a b", "é", strings.Repeat("p", MaxPolicyName+1)},
			"allowed are 1 to 64 bytes of A-Za-z0-9_-",
		},
		"key": {
			CheckKey,
			[]string{"k", "two words", "*", "héllo", `a\xff`, strings.Repeat("k", MaxKeyBytes)},
			[]string{"", "a\xff", "a\nb", "\x00", "a\x7f", "\u0085", strings.Repeat("k", MaxKeyBytes+1)},
			"allowed are 1 to 256 bytes of UTF-8 without control characters",
		},
	} {
		for _, ok := range tc.ok {
			require.NoError(t, tc.check(ok), "%s %q", name, ok)
		}
		for _, bad := range tc.bad {
			require.ErrorContains(t, tc.check(bad), tc.allowed, "%s %q", name, bad)
		}
	}
}

func TestDLQNames(t *testing.T) {
	require.Equal(t, "orders.dlq", DLQ("orders"))
	require.Equal(t, "orders", Source("orders.dlq"))
	require.Equal(t, "orders", Source("orders"))
	for name, want := range map[string]bool{
		"orders.dlq": true, "a.b.dlq": true, "dlq": false, ".dlq": false, "orders.DLQ": false, "orders.dlq.x": false, "ordersdlq": false, "": false,
	} {
		require.Equal(t, want, IsDLQ(name), "%q", name)
	}
}

func TestEventTail(t *testing.T) {
	for _, ok := range []string{"orders", "a.b", "throttle:stripe:rate", "weight:orders:müller", "a/b", "a=b", "_", "throttle:tenant:*:rate", "vendor.*x", "a*", strings.Repeat("k", MaxConfigKey)} {
		require.Equal(t, ok, EventTail(ok))
		require.NoError(t, CheckConfigKey(ok))
	}
	for _, bad := range []string{
		"", " ", "a b", "a\u00a0b", "a\tb", "a\r\nb", "*", "a.*", "*.a", "a.*.b", ">", "a>b", ".a", "a.", "a..b", ".", "..",
		"a\x00", "a\x7f", "a\u200bb", "a\xff", strings.Repeat("k", MaxConfigKey+1),
	} {
		require.Equal(t, "_", EventTail(bad), "%q", bad)
		require.ErrorContains(t, CheckConfigKey(bad), "allowed are 1 to 512 bytes", "%q", bad)
	}
}

func TestCut(t *testing.T) {
	require.Equal(t, "abc", Cut("abc", 3))
	require.Equal(t, "ab", Cut("abc", 2))
	require.Equal(t, "a", Cut("aé", 2))
	require.Equal(t, "aé", Cut("aéx", 3))
	require.Equal(t, "", Cut("€", 2))
	require.Equal(t, "\x80\x80\x80\x80\x80", Cut(strings.Repeat("\x80", 9), 5), "no rune starts anywhere")
	for limit := range 20 {
		s := strings.Repeat("😀é", 8)
		got := Cut(s, limit)
		require.True(t, utf8.ValidString(got))
		require.LessOrEqual(t, len(got), limit)
		require.Greater(t, len(got)+utf8.UTFMax, limit)
	}
}
