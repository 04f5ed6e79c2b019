package client

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

// TestQueueSettingsAreComplete: they have every setting that may come over NATS, and what they
// send changes exactly the settings that are given.
func TestQueueSettingsAreComplete(t *testing.T) {
	names := func(v any) map[string]reflect.StructField {
		all := map[string]reflect.StructField{}
		for field := range reflect.TypeOf(v).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			all[name] = field
		}
		return all
	}
	mine, all := names(QueueSettings{}), names(wire.QueueSettings{})
	delete(all, "name") // the subject has it
	for name := range all {
		if strings.HasSuffix(name, "_file") { // only the configuration file may have it
			delete(all, name)
			continue
		}
		require.Contains(t, mine, name)
		require.Contains(t, mine[name].Tag.Get("json"), ",omitempty", name)
	}
	require.Len(t, mine, len(all))

	// Where 0 is allowed and is not the default, a setting is a pointer.
	defaults := reflect.ValueOf(wire.DefaultQueueSettings("q"))
	for name, field := range mine {
		zero, bad := wire.DefaultQueueSettings("q").Patch([]byte(`{"` + name + `":0}`))
		isDefault := defaults.FieldByName(field.Name).IsZero()
		if number := field.Type.Kind() != reflect.String && field.Type.Kind() != reflect.Slice; number && bad == nil && !isDefault {
			require.Equal(t, reflect.Pointer, field.Type.Kind(), "%s of %v", name, zero)
		}
	}

	body, err := json.Marshal(QueueSettings{})
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(body))
}

// TestEnsureQueue changes a queue that exists, and makes one that is deleted meanwhile.
func TestEnsureQueue(t *testing.T) {
	f, c := setup(t)
	var exists, deleted atomic.Bool
	bodies := make(chan string, 10)
	f.handle("fila.admin.queue-create.orders", func(msg *nats.Msg) {
		bodies <- "create " + string(msg.Data)
		if exists.Load() {
			f.reply(msg, wire.QueueExists("orders", []string{"quantum is 1, not 2"}))
			return
		}
		f.reply(msg, api.QueueReply{QueueSettings: wire.DefaultQueueSettings("orders")})
	})
	f.handle("fila.admin.queue-update.orders", func(msg *nats.Msg) {
		bodies <- "update " + string(msg.Data)
		if deleted.Load() {
			exists.Store(false)
			f.reply(msg, wire.QueueNotFound("orders"))
			return
		}
		f.reply(msg, api.QueueReply{QueueSettings: wire.DefaultQueueSettings("orders"), Warnings: []string{"odd"}})
	})
	ensure := func() api.QueueReply {
		t.Helper()
		reply, err := c.EnsureQueue(t.Context(), "orders", QueueSettings{Quantum: 2})
		require.NoError(t, err)
		return reply
	}
	require.Equal(t, "orders", ensure().Name)
	require.Equal(t, `create {"quantum":2}`, <-bodies)

	exists.Store(true)
	require.Equal(t, []string{"odd"}, ensure().Warnings)
	require.Equal(t, `create {"quantum":2}`, <-bodies)
	require.Equal(t, `update {"quantum":2}`, <-bodies)

	deleted.Store(true)
	ensure()
	for _, want := range []string{"create", "update", "create"} {
		require.Equal(t, want+` {"quantum":2}`, <-bodies)
	}

	f.handle("fila.admin.queue-create.bad", func(msg *nats.Msg) { f.reply(msg, wire.BadField("quantum", "-1", "no")) })
	_, err := c.EnsureQueue(t.Context(), "bad", QueueSettings{Quantum: -1})
	requireRefused(t, err, 400)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.EnsureQueue(ended, "orders", QueueSettings{Quantum: 2})
	require.ErrorIs(t, err, context.Canceled)
}
