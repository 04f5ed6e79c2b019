package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMicroService asks what `nats micro ls/info/stats/ping` ask.
func TestMicroService(t *testing.T) {
	c := shared(t).client(t)
	var ping struct{ Name, ID, Version, Type string }
	for _, subject := range []string{"$SRV.PING", "$SRV.PING.fila"} {
		c.call(subject, nil, &ping)
		require.Equal(t, "fila", ping.Name)
		require.NotEmpty(t, ping.ID)
		require.Regexp(t, `^\d+\.\d+\.\d+`, ping.Version)
	}
	type endpoint struct {
		Name        string `json:"name"`
		Subject     string `json:"subject"`
		NumRequests *int   `json:"num_requests"`
		NumErrors   *int   `json:"num_errors"`
	}
	var info, stats struct {
		Description string     `json:"description"`
		Endpoints   []endpoint `json:"endpoints"`
	}
	for _, subject := range []string{"$SRV.INFO", "$SRV.INFO.fila", "$SRV.INFO.fila." + ping.ID} {
		c.call(subject, nil, &info)
		require.NotEmpty(t, info.Description)
		var subjects []string
		for _, e := range info.Endpoints {
			subjects = append(subjects, e.Subject)
		}
		for _, verb := range []string{
			"queue-create", "queue-update", "queue-delete", "queue-list", "queue-inspect",
			"config-set", "config-get", "config-delete", "config-list", "redrive",
		} {
			require.True(t, containsPrefix(subjects, "fila.admin."+verb), "%s in %v", verb, subjects)
		}
		require.True(t, containsPrefix(subjects, "fila.consume."), "%v", subjects)
	}
	c.call("$SRV.STATS.fila", nil, &stats)
	require.NotEmpty(t, stats.Endpoints)
	for _, e := range stats.Endpoints {
		require.NotNil(t, e.NumRequests, e.Name)
		require.NotNil(t, e.NumErrors, e.Name)
	}
}

func containsPrefix(list []string, prefix string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, prefix) {
			return true
		}
	}
	return false
}

// TestErrorsLookLikeThoseOfMicro: header and body, on every kind of subject.
func TestErrorsLookLikeThoseOfMicro(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	for _, msg := range []struct{ subject, body string }{
		{"fila.admin.queue-inspect.none", ""},
		{"fila.consume." + queue, "{"},
		{"fila.fetch." + queue, "{"},
		{"fila.enqueue." + queue + ".dlq", ""},
		{"fila.ack.0.x." + queue, ""},
	} {
		reply, err := c.nc.Request(msg.subject, []byte(msg.body), patience)
		require.NoError(t, err, msg.subject)
		e := errorOf(t, reply) // checks that header and body agree
		require.NotNil(t, e, msg.subject)
		require.Equal(t, e.Description, reply.Header.Get("Nats-Service-Error"))
		var body map[string]map[string]any
		require.NoError(t, json.Unmarshal(reply.Data, &body))
		require.Len(t, body, 1)
		require.Len(t, body["error"], 3, "code, err_code and description: %s", reply.Data)
	}
}
