package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/e2e/natstest"
)

// TestAllServersAndNodesDieAtOnce: three filas with embedded servers, which form the NATS
// cluster, are killed together, as in a power failure, and restarted. Confirmed messages are
// there once, acked messages are not.
func TestAllServersAndNodesDieAtOnce(t *testing.T) {
	t.Parallel()
	const nodes = 3
	var routes, urls []string
	for range nodes {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("127.0.0.1:%d", natstest.FreePort())))
	}
	var procs []*proc
	for i, route := range routes {
		p := newFila(t, options{
			embedded: fmt.Sprintf("jetstream = true\n[nats.embedded.cluster]\nname = \"nats\"\nlisten = %s\nroutes = [%s]\n", route, strings.Join(routes, ", ")),
			tail:     fmt.Sprintf("[cluster]\nenabled = true\nname = \"power\"\nnode = \"n%d\"\nshards = 2\n", i),
		})
		procs = append(procs, p)
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", p.port))
	}
	start := func() {
		for _, p := range procs {
			require.NoError(t, p.start())
		}
		for _, p := range procs {
			require.NoError(t, p.waitReady(), p.log)
		}
	}
	start()
	c := dial(t, strings.Join(urls, ","))
	ask := func(msg *nats.Msg) (reply *nats.Msg) { // until an owner answers
		eventually(t, func() bool {
			r, err := c.nc.RequestMsg(msg, 2*time.Second)
			reply = r
			return err == nil && errorOf(t, r) == nil
		})
		return reply
	}
	queues := []string{"q0", "q1", "q2", "q3"} // in both shards
	for _, queue := range queues {
		ask(&nats.Msg{Subject: "fila.admin.queue-create." + queue})
		k := c.subscribe(queue, "w")
		ask(&nats.Msg{Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"w","max_in_flight":1}`)})
		ask(message(queue, "done", "Nats-Msg-Id", "done"))
		c.accepted(k.next(), "")
		k.leave()
		ask(message(queue, "kept", "Nats-Msg-Id", "kept"))
	}
	for _, p := range procs {
		require.NoError(t, p.cmd.Process.Kill())
	}
	for _, p := range procs {
		p.kill()
	}
	start()
	for _, queue := range queues {
		for _, id := range []string{"done", "kept"} {
			require.Contains(t, string(ask(message(queue, id, "Nats-Msg-Id", id)).Data), `"duplicate":true`)
		}
		k := c.subscribe(queue, "other")
		ask(&nats.Msg{Subject: "fila.consume." + queue, Data: []byte(`{"consumer":"other","max_in_flight":10}`)})
		require.Equal(t, "kept", string(k.next().Data))
		k.none()
	}
}
