package control

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/wire"
	"github.com/filaq/fila/wire/api"
)

func valuesOf(pairs ...string) *values {
	var kept []store.Entry
	for i := 0; i < len(pairs); i += 2 {
		kept = append(kept, store.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return newValues(kept, slog.New(slog.DiscardHandler))
}

func TestValuesAreOnDisk(t *testing.T) {
	v := valuesOf("a", "1", "\x00gates", "{}")
	_, ok := v.Get("\x00gates")
	require.False(t, ok, "fila's own entries are not the operators'")
	var saved []Batch
	save := func(kept Batch, _ []change) <-chan error {
		saved = append(saved, kept)
		return StoreKV(nil).Write(Batch{})
	}
	to := func(value *string) func() (map[string]*string, *wire.Error) {
		return func() (map[string]*string, *wire.Error) { return map[string]*string{"a": value}, nil }
	}
	two := "2"
	changes, err := v.edit(to(&two), save)
	require.Nil(t, err)
	require.Equal(t, "1", *changes[0].old)
	require.Len(t, saved, 1)

	_, err = v.edit(func() (map[string]*string, *wire.Error) { return nil, wire.ConfigMismatch("a", nil) }, save)
	require.NotNil(t, err)
	require.Len(t, saved, 1, "what is refused is not written")
	_, err = v.edit(to(nil), func(Batch, []change) <-chan error {
		done := make(chan error, 1)
		done <- errors.New("disk")
		return done
	})
	refused(t, wire.CodeOutcomeUnknown, err)
	text, ok := v.Get("a")
	require.True(t, ok && text == "2", "what is not on disk does not count")

	changes, err = v.edit(to(nil), save)
	require.Nil(t, err)
	require.Equal(t, "2", *changes[0].old)
	_, ok = v.Get("a")
	require.False(t, ok)
	require.Equal(t, []string{"a"}, saved[1].Delete)
}

// An edit makes several changes in one write, and leaves out values that are set already.
func TestEditOfValues(t *testing.T) {
	v := valuesOf("a", "1", "b", "2", "c", "3")
	one, four := "1", "4"
	var saved Batch
	changes, err := v.edit(func() (map[string]*string, *wire.Error) {
		return map[string]*string{"a": &one, "b": &four, "c": nil, "d": &four, "e": nil}, nil
	}, func(kept Batch, changes []change) <-chan error {
		saved = kept
		require.Len(t, changes, 3)
		text, _ := v.Get("b")
		require.Equal(t, "2", text, "not before it is on disk")
		return StoreKV(nil).Write(Batch{})
	})
	require.Nil(t, err)
	require.Equal(t, []store.Entry{{Key: "b", Value: "4"}, {Key: "d", Value: "4"}}, saved.Put)
	require.Equal(t, []string{"c"}, saved.Delete)
	two, three := "2", "3"
	require.Equal(t, []change{{"b", &two, &four}, {"c", &three, nil}, {"d", nil, &four}}, changes)
	require.Equal(t, []api.ConfigEntry{{Key: "a", Value: "1"}, {Key: "b", Value: "4"}, {Key: "d", Value: "4"}}, v.all(""))
}

func TestWeightsOfAQueue(t *testing.T) {
	c := &Control{values: valuesOf("weight:orders:acme", "2.5", "weight:orders:a:b", "7", "weight:orders2:acme", "9", "weight:orders:bad", "x", "weight", "1")}
	require.Equal(t, map[string]uint32{"acme": 2500, "a:b": 7000}, c.Weights("orders"))
	require.Empty(t, c.Weights("other"))
}

func TestConfigVerbs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		set := func(key, value string, ifValue *string) (api.ConfigSetReply, *wire.Error) {
			return r.c.ConfigSet(verb(api.VerbConfigSet), key, api.ConfigSetRequest{Value: value, IfValue: ifValue})
		}
		one, two := "1", "2"
		_, err := set("k", "1", &one)
		refused(t, wire.CodeConfigMismatch, err)
		reply, err := set("k", "1", nil)
		require.Nil(t, err)
		require.Equal(t, api.ConfigSetReply{Key: "k", Value: "1"}, reply)
		_, err = set("k", "3", &two)
		refused(t, wire.CodeConfigMismatch, err)
		reply, err = set("k", "2", &one)
		require.Nil(t, err)
		require.Equal(t, api.ConfigSetReply{Key: "k", Value: "2", Previous: &one}, reply)
		entry, err := r.c.ConfigGet("k")
		require.Nil(t, err)
		require.Equal(t, api.ConfigEntry{Key: "k", Value: "2"}, entry)
		require.Equal(t, map[string]string{"k": "2"}, r.stored("k"))
		entry, err = r.c.ConfigDelete(verb(api.VerbConfigDelete), "k")
		require.Nil(t, err)
		require.Equal(t, api.ConfigEntry{Key: "k", Value: "2"}, entry)
		_, err = r.c.ConfigGet("k")
		refused(t, wire.CodeConfigKeyNotFound, err)
		_, err = r.c.ConfigDelete(verb(api.VerbConfigDelete), "k")
		refused(t, wire.CodeConfigKeyNotFound, err)
		var told []string
		for _, e := range r.events.take() {
			require.Equal(t, wire.EventConfigChanged, e.Type)
			told = append(told, orNone(e.Data["previous"].(*string))+" -> "+orNone(e.Data["value"].(*string)))
		}
		require.Equal(t, []string{"none -> 1", "1 -> 2", "2 -> none"}, told)

		// A queue receives new weights, and reads the ones from before its creation.
		r.put("weight:orders:acme", "2.5")
		require.Equal(t, map[string]int64{"weight orders/acme": 2500}, r.queues.told())
		require.Equal(t, map[string]uint32{"acme": 2500}, r.c.Weights("orders"))
		r.delete("weight:orders:acme")
		require.Empty(t, r.queues.told())
	})
}
