package telemetry

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limitRig is a limited log with a clock that stands still.
type limitRig struct {
	*slog.Logger
	now int64
	out bytes.Buffer
}

func newLimitRig() *limitRig {
	r := &limitRig{now: 1}
	plain := slog.NewTextHandler(&r.out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	r.Logger = LimitLog(slog.New(plain), func() int64 { return r.now })
	return r
}

// lines returns the lines written since the last call.
func (r *limitRig) lines() []string {
	lines := strings.Split(r.out.String(), "\n")
	r.out.Reset()
	return lines[:len(lines)-1]
}

func TestLogIsLimitedByCause(t *testing.T) {
	r := newLimitRig()
	flood := func(log *slog.Logger, n int) []string {
		for i := range n {
			log.Warn("a client does it", "queue", "orders", "error", fmt.Sprint("reason ", i))
		}
		return r.lines()
	}
	require.Len(t, flood(r.Logger, 20_000), lineBurst)
	for _, other := range []func(){
		func() { r.Error("a client does it", "queue", "orders") },
		func() { r.Warn("a client does something else", "queue", "orders") },
		func() { r.Warn("a client does it", "queue", "other") },
		func() { r.Warn("a client does it") },
		func() { r.With("component", "nats").Warn("a client does it", "queue", "orders") },
		func() { r.With("queue", "third").Warn("a client does it") },
	} {
		other()
		require.Len(t, r.lines(), 1)
	}
	require.Empty(t, flood(r.With("queue", "orders"), 0))
	r.With("queue", "orders").Warn("a client does it")
	require.Empty(t, r.lines(), "With says the same cause")

	r.now += lineEvery - 1
	require.Empty(t, flood(r.Logger, 1))
	r.now++
	require.Equal(t, []string{`level=WARN msg="a client does it" queue=orders error="reason 0" suppressed=19982`}, flood(r.Logger, 5))
	r.now += 2 * lineEvery
	lines := flood(r.Logger, 5)
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], "suppressed=4")
	require.NotContains(t, lines[1], "suppressed")
	r.now += int64(time.Hour)
	lines = flood(r.Logger, 100)
	require.Len(t, lines, lineBurst)
	require.Contains(t, lines[0], "suppressed=3")
	r.now -= int64(time.Hour)
	require.Empty(t, flood(r.Logger, 1), "a clock that was set back brings nothing")
	r.now += lineEvery
	require.Len(t, flood(r.Logger, 2), 1, "and stops nothing")
}

func TestLogAtDebugIsNotLimited(t *testing.T) {
	r := newLimitRig()
	for range 1000 {
		r.Debug("x")
	}
	require.Len(t, r.lines(), 1000)
	for range 1000 {
		Unlimited(r.With("hook", "on_enqueue")).Warn("x")
	}
	lines := r.lines()
	require.Len(t, lines, 1000)
	require.Equal(t, "level=WARN msg=x hook=on_enqueue", lines[999])
	plain := slog.New(slog.DiscardHandler)
	require.Same(t, plain, Unlimited(plain))
}

// Causes are bounded: more of them share a limit, until others have been quiet.
func TestLogOfManyCauses(t *testing.T) {
	r := newLimitRig()
	flood := func(from, to int) int {
		for i := from; i < to; i++ {
			r.Info("queue created", "queue", i)
		}
		return len(r.lines())
	}
	require.Equal(t, maxCauses, flood(0, maxCauses))
	require.Equal(t, lineBurst, flood(maxCauses, 100*maxCauses))
	require.LessOrEqual(t, len(r.Handler().(*limitedLog).limits.mu.byCause), maxCauses+1)
	require.Equal(t, maxCauses, flood(0, maxCauses), "who has a limit of his own keeps it")
	r.now += lineBurst * lineEvery
	require.Equal(t, maxCauses-1, flood(2*maxCauses, 3*maxCauses-1))
	require.LessOrEqual(t, len(r.Handler().(*limitedLog).limits.mu.byCause), maxCauses+1)
}

func TestLogKeepsGroups(t *testing.T) {
	r := newLimitRig()
	log := r.WithGroup("g")
	for range 100 {
		log.Info("x", "a", 1)
	}
	lines := r.lines()
	require.Len(t, lines, lineBurst)
	require.Equal(t, "level=INFO msg=x g.a=1", lines[0])
}
