package measure

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParsePS(t *testing.T) {
	for line, want := range map[string]Usage{
		"  2048   0:01.50\n": {CPU: 1500 * time.Millisecond, RSS: 2 << 20},
		"1 01:02:03":         {CPU: time.Hour + 2*time.Minute + 3*time.Second, RSS: 1 << 10},
		"1 2-01:00:00":       {CPU: 49 * time.Hour, RSS: 1 << 10},
		"1024 100:00":        {CPU: 100 * time.Minute, RSS: 1 << 20},
	} {
		u, err := parsePS(line)
		require.NoError(t, err)
		require.Equal(t, want, u, line)
	}
	for _, line := range []string{"", "1", "x 0:01", "1 a:b", "1 x-00:00:01", "1 1-2-3:4:5"} {
		_, err := parsePS(line)
		require.Error(t, err, line)
	}
}

func TestMemoryIntoLeavesOutTheUnknown(t *testing.T) {
	s := Sample{}
	Usage{RSS: 3 << 20}.MemoryInto(s, "idle_")
	require.Equal(t, Sample{"idle_rss_mb": 3}, s)
}

// The usage of this process agrees with ps, where ps exists.
func TestUsageOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("ps is what is used here")
	}
	busy, err := MachineBusy()
	require.NoError(t, err)
	before, err := ReadUsage(os.Getpid())
	require.NoError(t, err)
	touched := make([]byte, 64<<20)
	for i := range touched {
		touched[i] = byte(i)
	}
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := ReadUsage(os.Getpid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.CPU-before.CPU, 10*time.Millisecond)
	require.GreaterOrEqual(t, after.Anon-before.Anon, int64(32<<20))
	require.GreaterOrEqual(t, after.RSS, after.Anon)
	require.GreaterOrEqual(t, after.Peak, after.RSS)
	later, err := MachineBusy()
	require.NoError(t, err)
	require.Greater(t, later, busy)

	out, err := exec.Command("ps", "-o", "rss=,time=", "-p", strconv.Itoa(os.Getpid())).Output()
	if err != nil {
		t.Skip("no ps: ", err)
	}
	told, err := parsePS(string(out))
	require.NoError(t, err)
	require.InEpsilon(t, told.RSS, after.RSS, 0.5)
	require.InDelta(t, told.CPU, after.CPU, float64(2*time.Second))
	require.NotZero(t, touched[1])

	_, err = ReadUsage(1 << 30)
	require.Error(t, err, "no such process")
}
