package control

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/sidecar/config"
	"github.com/filaq/fila/wire"
)

func TestKeyWarnings(t *testing.T) {
	queue := func(name string, headers ...string) wire.QueueSettings {
		s := wire.DefaultQueueSettings(name)
		s.ThrottleHeaders = headers
		return s
	}
	hooked := wire.DefaultQueueSettings("hooked")
	hooked.OnEnqueue = "function on_enqueue(msg) return {} end"
	const (
		bare      = `queue mail: its throttle_headers give messages the bare value of header tenant as a key, so the limit of tenant:* holds back none of them; a key for each value is "tenant:{tenant}"`
		collision = `queue mail: the headers tenant and provider make the same throttle keys, so a message is under the limits of mailer by the value of either; tell them apart by templates such as "tenant:{tenant}"`
	)
	for name, tc := range map[string]struct {
		limits []string
		queues []wire.QueueSettings
		want   []string
	}{
		"nothing":                        {nil, nil, nil},
		"a limit for the guard":          {[]string{"vendor:*"}, []wire.QueueSettings{queue("mail")}, nil},
		"a limit per tenant":             {[]string{"tenant:*"}, []wire.QueueSettings{queue("mail", "tenant:{tenant}", "{vendor}")}, nil},
		"a bare header":                  {[]string{"tenant:*"}, []wire.QueueSettings{queue("mail", "tenant")}, []string{bare}},
		"a bare header, a value of it":   {[]string{"acme"}, []wire.QueueSettings{queue("mail", "tenant")}, nil},
		"a hook may make any key":        {[]string{"tenant:*"}, []wire.QueueSettings{queue("mail", "tenant"), hooked}, nil},
		"another queue makes it":         {[]string{"tenant:*"}, []wire.QueueSettings{queue("a", "tenant:{tenant}"), queue("mail", "tenant")}, nil},
		"no header at all":               {[]string{"region:*"}, []wire.QueueSettings{queue("mail", "tenant:{tenant}")}, []string{"throttle region:*: no queue gives its messages such a key by throttle_headers; only calls of the guard can use its limit"}},
		"two headers, one key":           {[]string{"mailer"}, []wire.QueueSettings{queue("mail", "tenant", "provider")}, []string{collision}},
		"two headers, nothing limited":   {nil, []wire.QueueSettings{queue("mail", "tenant", "provider")}, nil},
		"two headers, told apart":        {[]string{"mailer"}, []wire.QueueSettings{queue("mail", "tenant:{tenant}", "provider")}, nil},
		"two templates that are alike":   {[]string{"k:x"}, []wire.QueueSettings{queue("mail", "k:{a}", "k:{b}")}, []string{`queue mail: the headers a and b make the same throttle keys, so a message is under the limits of k:x by the value of either; tell them apart by templates such as "a:{a}"`}},
		"a limit of all keys":            {[]string{"*"}, []wire.QueueSettings{queue("mail", "tenant")}, nil},
		"keys of a collision, shortened": {[]string{"a", "b", "c", "d", "e"}, []wire.QueueSettings{queue("q", "x", "y")}, []string{`queue q: the headers x and y make the same throttle keys, so a message is under the limits of a, b, c and 2 more by the value of either; tell them apart by templates such as "x:{x}"`}},
	} {
		require.Equal(t, tc.want, keyWarnings(tc.limits, tc.queues), name)
	}
}

// A reload and a created or updated queue return the warnings.
func TestKeyWarningsAreGiven(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		file := config.Default()
		r.started(&file)
		file.Throttles = []config.ThrottleTable{{Key: "tenant:*", Rate: "5"}}
		orders := wire.DefaultQueueSettings("orders")
		orders.ThrottleHeaders = []string{"tenant"}
		file.Queues = []wire.QueueSettings{orders}
		require.Contains(t, r.reloaded()[2], "bare value of header tenant")
		mail := wire.DefaultQueueSettings("mail")
		mail.ThrottleHeaders = []string{"Tenant"}
		require.Len(t, r.c.KeyWarnings(mail), 1)
		orders.ThrottleHeaders = []string{"tenant:{tenant}"}
		require.Empty(t, r.c.KeyWarnings(orders))
	})
}
