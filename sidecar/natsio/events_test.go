package natsio

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

// cable connects to the embedded server of a rig and can be cut.
type cable struct {
	*rig
	cut  atomic.Bool // connections fail
	mute atomic.Bool // what is sent is lost

	mu   sync.Mutex
	conn net.Conn
}

// InProcessConn is called by nats.InProcessServer.
func (c *cable) InProcessConn() (net.Conn, error) {
	if c.cut.Load() {
		return nil, errors.New("cut")
	}
	conn, err := c.srv.InProcessConn()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return &cableConn{conn, c}, nil
}

type cableConn struct {
	net.Conn
	c *cable
}

func (c *cableConn) Write(b []byte) (int, error) {
	if c.c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// off cuts the connection; on allows a new one.
func (c *cable) off() {
	c.cut.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(c.t, c.conn.Close())
}

func (c *cable) on() {
	c.mute.Store(false)
	c.cut.Store(false)
}

// cabled runs fn with an event publisher over a cable and a subscription to all events.
func cabled(t *testing.T, fn func(c *cable, publish func(typ, tail string, e wire.Event), events <-chan *nats.Msg)) {
	t.Helper()
	bubble(t, func(t *testing.T, r *rig) {
		c := &cable{rig: r}
		nc, err := nats.Connect("", append(watchOptions(config.Default().NATS, quietly(), nil, nil), nats.InProcessServer(c))...)
		require.NoError(t, err)
		defer nc.Close()
		events := r.listen("fila.event.>")
		fn(c, Events(nc, r.front.Subjects, func() int64 { return time.Now().UnixNano() }, r.front.Log), events)
	})
}

func (c *cable) nextEvent(events <-chan *nats.Msg) (e wire.Event) {
	c.t.Helper()
	require.NoError(c.t, json.Unmarshal(c.next(events).Data, &e))
	return e
}

func TestEventsOfAnOutageComeAfterIt(t *testing.T) {
	cabled(t, func(c *cable, publish func(typ, tail string, e wire.Event), events <-chan *nats.Msg) {
		publish(wire.EventPaused, "a", wire.Event{})
		require.Equal(t, wire.EventPaused, c.nextEvent(events).Type)
		time.Sleep(time.Second) // until it is confirmed
		c.off()
		synctest.Wait()
		began := time.Now()
		publish(wire.EventSharedDegraded, "_", wire.Event{Data: map[string]any{"error": "gone"}})
		time.Sleep(time.Minute)
		ended := time.Now()
		publish(wire.EventSharedRecovered, "_", wire.Event{})
		time.Sleep(time.Minute)
		c.none(events)
		c.on()
		e := c.nextEvent(events)
		require.Equal(t, []string{wire.EventSharedDegraded, wire.Timestamp(began.UnixNano())}, []string{e.Type, e.Time})
		require.GreaterOrEqual(t, time.Since(ended.Add(time.Minute)), eventsWait, "who listens connects again as well")
		e = c.nextEvent(events)
		require.Equal(t, []string{wire.EventSharedRecovered, wire.Timestamp(ended.UnixNano())}, []string{e.Type, e.Time})
		publish(wire.EventResumed, "a", wire.Event{})
		require.Equal(t, wire.EventResumed, c.nextEvent(events).Type)
		time.Sleep(time.Hour)
		c.none(events)
	})
}

// TestEventsThatTheServerNeverGot: events that were published before the loss of the connection
// was noticed are published again.
func TestEventsThatTheServerNeverGot(t *testing.T) {
	cabled(t, func(c *cable, publish func(typ, tail string, e wire.Event), events <-chan *nats.Msg) {
		c.mute.Store(true)
		for i := range 3 {
			publish(wire.EventHeld, fmt.Sprint(i), wire.Event{Key: fmt.Sprint(i)})
		}
		time.Sleep(20 * time.Second) // without an answer, while the connection seems to be up
		publish(wire.EventHeld, "3", wire.Event{Key: "3"})
		c.off()
		time.Sleep(time.Second)
		c.on()
		for i := range 4 {
			require.Equal(t, fmt.Sprint(i), c.nextEvent(events).Key)
		}
		time.Sleep(time.Hour)
		c.none(events)
	})
}

// TestEventsOfALinkThatWasBackAtOnce: a connection that was lost and restored between two checks
// has lost events as well.
func TestEventsOfALinkThatWasBackAtOnce(t *testing.T) {
	cabled(t, func(c *cable, publish func(typ, tail string, e wire.Event), events <-chan *nats.Msg) {
		publish(wire.EventHeld, "0", wire.Event{Key: "0"})
		c.next(events)
		synctest.Wait() // it is confirmed, and the next check is in 100 ms
		c.mute.Store(true)
		publish(wire.EventHeld, "1", wire.Event{Key: "1"})
		c.off()
		c.on()
		require.Equal(t, "1", c.nextEvent(events).Key)
	})
}

// TestEventsOfALongOutage: kept events are bounded, and the newest arrive.
func TestEventsOfALongOutage(t *testing.T) {
	cabled(t, func(c *cable, publish func(typ, tail string, e wire.Event), events <-chan *nats.Msg) {
		c.off()
		synctest.Wait()
		const n = 5000
		text := strings.Repeat("x", 1000)
		for i := range n {
			publish(wire.EventHeld, "k", wire.Event{Key: fmt.Sprint(i), Data: map[string]any{"text": text}})
		}
		c.on()
		first := c.next(events)
		time.Sleep(time.Minute)
		came := 1 + len(events)
		require.LessOrEqual(t, came*len(first.Data), maxKeptEvents)
		require.Greater(t, came*len(first.Data), maxKeptEvents/2)
		var e wire.Event
		require.NoError(t, json.Unmarshal(first.Data, &e))
		for i := n - came; i < n; i++ {
			require.Equal(t, fmt.Sprint(i), e.Key)
			if i < n-1 {
				e = c.nextEvent(events)
			}
		}
		require.Contains(t, c.log.String(), fmt.Sprintf("events are lost: NATS was away for too long\" events=%d", n-came))
	})
}

// TestAnEventThatIsTooLargeIsDroppedAlone: later ones go on.
func TestAnEventThatIsTooLargeIsDroppedAlone(t *testing.T) {
	cabled(t, func(c *cable, publish func(typ, tail string, e wire.Event), events <-chan *nats.Msg) {
		publish(wire.EventPaused, "a", wire.Event{})
		publish(wire.EventPaused, "b", wire.Event{Data: map[string]any{"error": strings.Repeat("e", 2<<20)}})
		publish(wire.EventResumed, "c", wire.Event{})
		require.Equal(t, wire.EventPaused, c.nextEvent(events).Type)
		require.Equal(t, wire.EventResumed, c.nextEvent(events).Type)
		time.Sleep(time.Minute)
		c.none(events)
	})
}
