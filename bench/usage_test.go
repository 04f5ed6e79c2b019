package bench

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseProc(t *testing.T) {
	stat := "4242 (fila (a) b) S 1 4242 4242 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 9 0 12345 1 2 3\n"
	status := "Name:\tfila\nVmHWM:\t  2048 kB\nVmRSS:\t    1024 kB\nRssAnon:\t     512 kB\nThreads:\t9\n"
	u, err := parseProc(stat, status)
	require.NoError(t, err)
	require.Equal(t, usage{cpu: 2 * time.Second, rss: 1 << 20, anon: 512 << 10, peak: 2 << 20}, u)

	for name, tc := range map[string]struct{ stat, status, want string }{
		"no name":    {"4242 S 1", "", "no process name"},
		"too short":  {"4242 (fila) S 1 2", "", "need 13"},
		"not a time": {"1 (x) S 1 1 1 0 -1 4 100 0 0 0 many 50 0", "", "CPU time"},
		"not memory": {stat, "VmRSS: lots kB\n", "VmRSS"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseProc(tc.stat, tc.status)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestParseMachine(t *testing.T) {
	busy, err := parseMachine("cpu  100 20 30 4000 500 6 7 8 0 0\ncpu0 1 2 3\n")
	require.NoError(t, err)
	require.Equal(t, 1710*time.Millisecond, busy, "idle and waiting for the disk are not busy")
	for _, stat := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		_, err := parseMachine(stat)
		require.Error(t, err, stat)
	}
}

func TestParsePS(t *testing.T) {
	for line, want := range map[string]usage{
		"  2048   0:01.50\n": {cpu: 1500 * time.Millisecond, rss: 2 << 20},
		"1 01:02:03":         {cpu: time.Hour + 2*time.Minute + 3*time.Second, rss: 1 << 10},
		"1 2-01:00:00":       {cpu: 49 * time.Hour, rss: 1 << 10},
		"1024 100:00":        {cpu: 100 * time.Minute, rss: 1 << 20},
	} {
		u, err := parsePS(line)
		require.NoError(t, err)
		require.Equal(t, want, u, line)
	}
	for _, line := range []string{"", "1", "x 0:01", "1 a:b", "1 x-00:00:01"} {
		_, err := parsePS(line)
		require.Error(t, err, line)
	}
}

func TestMemoryIntoLeavesOutTheUnknown(t *testing.T) {
	s := Sample{}
	usage{rss: 3 << 20}.memoryInto(s, "idle_")
	require.Equal(t, Sample{"idle_rss_mb": 3}, s)
}

func TestReadUsageOfThisProcess(t *testing.T) {
	u, err := readUsage(os.Getpid())
	if err != nil {
		t.Skip("this system does not tell: ", err)
	}
	require.Positive(t, u.rss)
}
