package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMicroService sends the requests of `nats micro ls/info/stats/ping`.
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
