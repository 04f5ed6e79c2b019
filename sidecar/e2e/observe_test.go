package e2e

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/schemas/schematest"
)

// metric returns the sum of all samples of a metric with the labels, given as names and values
// in turn.
func (p *proc) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	status, text := p.get("/metrics")
	require.Equal(t, http.StatusOK, status, "/metrics")
	var sum float64
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		family, rest, _ := strings.Cut(series, "{")
		if family != name || !hasLabels(rest, labels) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		require.NoError(t, err, line)
		sum += v
	}
	return sum
}

func hasLabels(text string, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		if !strings.Contains(text, labels[i]+`="`+labels[i+1]+`"`) {
			return false
		}
	}
	return true
}

// event is a message on fila.event.<type>.<tail>.
type event struct {
	Type  string `json:"type"`
	Time  string `json:"time"`
	Queue string `json:"queue"`
	Key   string `json:"key"`
	Data  m      `json:"data"`

	subject string
}

// events subscribes to event subjects, such as "refused.orders".
func (c *client) events(subject string) <-chan event {
	c.t.Helper()
	ch := make(chan event, 4096)
	_, err := c.nc.Subscribe("fila.event."+subject, func(msg *nats.Msg) {
		schematest.Published(c.t, msg.Data)
		e := event{subject: msg.Subject}
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			c.t.Errorf("event on %s is not JSON: %q", msg.Subject, msg.Data)
			return
		}
		select {
		case ch <- e:
		default:
			c.t.Errorf("more events on %s than the test can hold", subject)
		}
	})
	require.NoError(c.t, err)
	c.flush()
	return ch
}

// nextEvent waits for the next event and checks its form.
func nextEvent(t testing.TB, ch <-chan event) event {
	t.Helper()
	select {
	case e := <-ch:
		parts := strings.SplitN(e.subject, ".", 4)
		require.Len(t, parts, 4, "an event subject has a type and a tail: %s", e.subject)
		require.Equal(t, parts[2], e.Type, "type in subject and body")
		_, err := time.Parse(time.RFC3339Nano, e.Time)
		require.NoError(t, err, "time of an event")
		return e
	case <-time.After(patience):
		require.Fail(t, "no event")
		return event{}
	}
}
