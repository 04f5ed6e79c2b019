package natsio

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// presences tests several filas in a bubble.
type presences struct {
	t   *testing.T
	srv *Embedded
	log *logText
}

func presenceBubble(t *testing.T, fn func(t *testing.T, p *presences)) {
	t.Helper()
	runtime.GC() // as in bubble
	runtime.GC()
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		p := &presences{t: t, log: &logText{}}
		p.srv = p.server()
		fn(t, p)
	})
}

func (p *presences) server() *Embedded {
	cfg := config.Default().NATS.Embedded
	cfg.Port = 0
	srv, err := StartEmbedded(cfg, quietly())
	require.NoError(p.t, err)
	p.t.Cleanup(func() { stopTestServer(srv) })
	return srv
}

func (p *presences) connect(srv *Embedded, opts ...nats.Option) *nats.Conn {
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(srv))...)
	require.NoError(p.t, err)
	p.t.Cleanup(nc.Close)
	return nc
}

// fila returns a presence that has not begun.
func (p *presences) fila(srv *Embedded, prefix string) *Presence {
	subjects, err := wire.NewSubjects(prefix)
	require.NoError(p.t, err)
	log, text := newTestLog()
	p.log = text
	x := NewPresence(PresenceOptions{
		Log: log, Conn: p.connect(srv), Subjects: subjects, Now: func() int64 { return time.Now().UnixNano() },
		Name: "fila", Version: "1.2.3",
	})
	p.t.Cleanup(func() {
		select {
		case <-x.stop:
		default:
			x.Drain(0)
		}
	})
	return x
}

// flush waits until the server has processed everything.
func (p *presences) flush(nc *nats.Conn) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	require.NoError(p.t, nc.FlushWithContext(ctx))
}

// begin begins and returns how long that took.
func (p *presences) begin(x *Presence) (time.Duration, error) {
	start := time.Now()
	err := x.Begin(p.t.Context())
	return time.Since(start), err
}

// goesOn checks that a fila goes on for an hour.
func (p *presences) goesOn(x *Presence) {
	p.t.Helper()
	time.Sleep(time.Hour)
	synctest.Wait()
	require.Empty(p.t, x.Conflict())
}

// TestASecondFilaIsRefused with the name of the first one, which goes on.
func TestASecondFilaIsRefused(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		first, second, elsewhere := p.fila(p.srv, "fila"), p.fila(p.srv, "fila"), p.fila(p.srv, "other.fila")
		took, err := p.begin(first)
		require.NoError(t, err)
		require.Zero(t, took, "nobody is there: nothing is waited for")
		time.Sleep(time.Hour)
		took, err = p.begin(second)
		require.ErrorIs(t, err, ErrAnotherFila)
		require.Zero(t, took)
		host, hostErr := os.Hostname()
		require.NoError(t, hostErr)
		require.EqualError(t, err, fmt.Sprintf(`another fila runs under the subject prefix "fila": fila 1.2.3 on host %s, pid %d, `+
			`since 2000-01-01T00:00:00Z, connected to NATS server fila-embedded `+
			`(stop one of the two, or give one a prefix of its own by nats.subject_prefix)`, host, os.Getpid()))
		took, err = p.begin(elsewhere)
		require.NoError(t, err)
		require.Zero(t, took)
		p.goesOn(first)
	})
}

// node returns a presence of a cluster node that has not begun.
func (p *presences) node(cluster, incarnation, name string) *Presence {
	x := p.fila(p.srv, "fila")
	x.Cluster = Membership{Cluster: cluster, Incarnation: incarnation, Node: name}
	x.self.Membership = x.Cluster
	return x
}

// TestNodesOfAClusterServeTogether, but not with strangers.
func TestNodesOfAClusterServeTogether(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		a, b := p.node("main", "1", "a"), p.node("main", "1", "b")
		_, err := p.begin(a)
		require.NoError(t, err)
		took, err := p.begin(b)
		require.NoError(t, err)
		require.Equal(t, nodesTimeout, took, "there may be more of them, and a stranger")
		for name, other := range map[string]*Presence{
			"the same node":       p.node("main", "1", "a"),
			"another incarnation": p.node("main", "2", "c"),
			"another cluster":     p.node("other", "1", "c"),
			"no cluster":          p.fila(p.srv, "fila"),
		} {
			took, err = p.begin(other)
			require.ErrorIs(t, err, ErrAnotherFila, name)
			require.Zero(t, took, name)
		}
		_, err = p.begin(p.node("main", "1", "a"))
		require.ErrorContains(t, err, `another fila runs under the subject prefix "fila": node "a" of cluster "main", on host `)
		require.ErrorContains(t, err, `(each node needs a name of its own: cluster.node)`)
		p.goesOn(a)
		p.goesOn(b)
	})
}

// TestNodesOfTheSameNameMeet after a partition: the older one goes on.
func TestNodesOfTheSameNameMeet(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		older, other, twin := p.node("main", "1", "a"), p.node("main", "1", "b"), p.node("main", "1", "a")
		twin.self.Since = older.self.Since.Add(time.Second)
		for _, x := range []*Presence{older, other, twin} {
			require.NoError(t, x.join(t.Context()))
		}
		require.ErrorIs(t, <-twin.Conflict(), ErrAnotherFila)
		twin.Drain(0)
		p.goesOn(older)
		p.goesOn(other)
	})
}

// TestAClockThatIsBehind does not let a starting fila drive a running one away.
func TestAClockThatIsBehind(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		first, second := p.fila(p.srv, "fila"), p.fila(p.srv, "fila")
		second.self.Since = first.self.Since.Add(-time.Hour)
		_, err := p.begin(first)
		require.NoError(t, err)
		_, err = p.begin(second)
		require.ErrorIs(t, err, ErrAnotherFila)
		p.goesOn(first)
	})
}

// TestFilasThatStartAtOnce: only the oldest of those that began goes on.
func TestFilasThatStartAtOnce(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		var all []*Presence
		for range 3 {
			all = append(all, p.fila(p.srv, "fila"))
		}
		// They get no answer; all subscribe before the first announces itself.
		for _, x := range all {
			require.NoError(t, x.waitAlone(t.Context()))
		}
		for _, x := range all {
			require.NoError(t, x.join(t.Context()))
		}
		synctest.Wait()
		var left []*Presence
		for _, x := range all {
			select {
			case err := <-x.Conflict():
				require.ErrorIs(t, err, ErrAnotherFila)
				x.Drain(0)
			default:
				left = append(left, x)
			}
		}
		require.Len(t, left, 1)
		for _, x := range all {
			require.False(t, left[0].self.youngerThan(&x.self))
		}
		p.goesOn(left[0])
	})
}

// TestFilasMeetAfterAPartition: each has served one side. When NATS is whole again, the younger
// one ends.
func TestFilasMeetAfterAPartition(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		otherSide := p.server()
		older := p.fila(p.srv, "fila")
		_, err := p.begin(older)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		younger := p.fila(otherSide, "fila")
		_, err = p.begin(younger)
		require.NoError(t, err)
		p.goesOn(younger)
		// A link between the two sides, without an echo.
		here, there := p.connect(p.srv, nats.NoEcho()), p.connect(otherSide, nats.NoEcho())
		for from, to := range map[*nats.Conn]*nats.Conn{here: there, there: here} {
			_, err := from.Subscribe("fila.node.>", func(m *nats.Msg) { _ = to.PublishMsg(m) })
			require.NoError(t, err)
			p.flush(from)
		}
		healed := time.Now()
		require.ErrorIs(t, <-younger.Conflict(), ErrAnotherFila)
		require.LessOrEqual(t, time.Since(healed), announceEvery)
		younger.Drain(0)
		p.goesOn(older)
	})
}

// TestAStartWaitsForOneThatEnds, as in a rolling update, but not longer than that one needs.
func TestAStartWaitsForOneThatEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		gone    time.Duration // when the old one ends; 0: never
		refused time.Duration // when the new one gives up; 0: never
	}{
		"it ends":       {gone: 3*askAgain + askAgain/2}, // between two questions
		"it never ends": {refused: 30*time.Second + closingTime},
	} {
		t.Run(name, func(t *testing.T) {
			presenceBubble(t, func(t *testing.T, p *presences) {
				old, next := p.fila(p.srv, "fila"), p.fila(p.srv, "fila")
				_, err := p.begin(old)
				require.NoError(t, err)
				old.Drain(30 * time.Second)
				if tc.gone > 0 {
					time.AfterFunc(tc.gone, old.Conn.Close)
				}
				took, err := p.begin(next)
				if tc.gone > 0 {
					require.NoError(t, err)
					require.InDelta(t, tc.gone, took, float64(askAgain))
				} else {
					require.ErrorIs(t, err, ErrAnotherFila)
					require.InDelta(t, tc.refused, took, float64(2*askAgain))
				}
				require.Equal(t, 1, strings.Count(p.log.String(), "waiting for its end"))
			})
		})
	}
}

// TestOnesThatDoNotAnswer delay a start only for a moment: a subscriber to all subjects, or a fila
// that has died without NATS knowing.
func TestOnesThatDoNotAnswer(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		nc := p.connect(p.srv)
		_, err := nc.SubscribeSync(">")
		require.NoError(t, err)
		p.flush(nc)
		took, err := p.begin(p.fila(p.srv, "fila"))
		require.NoError(t, err)
		require.Equal(t, answerTimeout, took)
	})
}

// TestAStopEndsTheWait for another fila.
func TestAStopEndsTheWait(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		old, next := p.fila(p.srv, "fila"), p.fila(p.srv, "fila")
		_, err := p.begin(old)
		require.NoError(t, err)
		old.Drain(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		require.ErrorIs(t, next.Begin(ctx), context.Canceled)
	})
}

// TestAnswersGoToFilasAlone: otherwise fila could be made to publish anywhere.
func TestAnswersGoToFilasAlone(t *testing.T) {
	presenceBubble(t, func(t *testing.T, p *presences) {
		_, err := p.begin(p.fila(p.srv, "fila"))
		require.NoError(t, err)
		nc := p.connect(p.srv)
		sub, err := nc.SubscribeSync("fila.admin.>")
		require.NoError(t, err)
		for _, body := range []string{`{"incarnation":"x"}`, `{}`, `{`, ``, `null`} {
			require.NoError(t, nc.PublishRequest("fila.node.ask", "fila.admin.reload", []byte(body)))
		}
		p.flush(nc)
		synctest.Wait()
		n, _, err := sub.Pending()
		require.NoError(t, err)
		require.Zero(t, n)
	})
}
