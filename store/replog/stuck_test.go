package replog

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// A node asks a leader to step down that refuses records behind the last one that it reports, after
// five tries and three seconds, and again after as many. A test plays the leader.
func TestAStuckLeaderIsAskedToStepDown(t *testing.T) {
	js := jetStream(t, func(o *server.Options) { o.JetStream, o.StoreDir = false, "" })
	nc := js.Conn()
	answer := func(subject string, reply func() string) {
		t.Helper()
		_, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(reply())) })
		require.NoError(t, err)
	}
	last, downs := "7", 0
	allowed := true
	answer("fila_log.test.3", func() string {
		return `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 8"}}`
	})
	answer("$JS.API.STREAM.INFO.FILA_test_LOG_3", func() string {
		return `{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"FILA_test_LOG_3"},"state":{"last_seq":` + last + `}}`
	})
	answer("$JS.API.STREAM.LEADER.STEPDOWN.FILA_test_LOG_3", func() string {
		downs++
		if !allowed {
			return `{"error":{"code":400,"description":"no"}}`
		}
		return `{"success":true}`
	})
	now := time.Unix(1000, 0)
	o := options(js, t.TempDir(), "a")
	o.Now = func() time.Time { return now }
	o.defaults()
	j := o.journal()
	try := func(behind uint64, after time.Duration) {
		t.Helper()
		now = now.Add(after)
		_, err := j.append(deadline(t), []byte("r"), behind)
		require.ErrorIs(t, err, errMoved)
		require.ErrorContains(t, err, "wrong last sequence: 8")
	}
	for range 5 {
		try(7, 500*time.Millisecond)
	}
	require.Zero(t, downs, "it was refused for two seconds")
	try(7, time.Second)
	require.Equal(t, 1, downs)
	for range 4 {
		try(7, 2*time.Second)
	}
	require.Equal(t, 1, downs, "it was refused four times")
	last = "8"
	try(7, time.Second) // the record that the leader had counted is there
	last = "7"
	for range 4 {
		try(7, time.Second)
	}
	require.Equal(t, 1, downs, "the count has begun anew")
	allowed = false
	try(7, time.Second)
	require.Equal(t, 2, downs)
	for range 9 {
		try(6, time.Second) // which is not the end
	}
	require.Equal(t, 2, downs)
}

// The request lets another server lead.
func TestStepDown(t *testing.T) {
	if testing.Short() {
		t.Skip("an election takes seconds")
	}
	servers := natsCluster(t)
	js := connectTo(t, servers)
	o := options(js, t.TempDir(), "a")
	o.Replicas = 3
	o.defaults()
	j := o.journal()
	require.Eventually(t, func() bool { // until the servers have found each other
		_, err := j.open(t.Context(), true)
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	leader := func() string {
		s, err := js.Stream(t.Context(), j.name)
		if err != nil {
			return ""
		}
		return s.CachedInfo().Cluster.Leader
	}
	before := leader()
	require.NotEmpty(t, before)
	require.NoError(t, j.stepDown(deadline(t)))
	require.Eventually(t, func() bool { now := leader(); return now != "" && now != before }, time.Minute, 20*time.Millisecond)
}
