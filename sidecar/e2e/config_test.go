package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// setting is a reply about one key.
type setting struct {
	Key      string  `json:"key"`
	Value    string  `json:"value"`
	Previous *string `json:"previous"`
}

func TestRuntimeConfig(t *testing.T) {
	c := shared(t).client(t)
	key := "test." + unique(t)
	changed := c.events("config-changed." + key)
	c.refused(404, "fila.admin.config-get."+key, nil)
	c.refused(404, "fila.admin.config-delete."+key, nil)
	var reply setting
	c.call("fila.admin.config-set."+key, m{"value": "one"}, &reply)
	require.Equal(t, setting{Key: key, Value: "one"}, reply)
	require.Equal(t, key, nextEvent(t, changed).Key)
	reply = setting{}
	c.call("fila.admin.config-set."+key, m{"value": ""}, &reply)
	require.Equal(t, "", reply.Value)
	require.NotNil(t, reply.Previous)
	require.Equal(t, "one", *reply.Previous)
	c.call("fila.admin.config-get."+key, nil, &reply)
	require.Equal(t, "", reply.Value, "an empty value is a value")

	c.refused(409, "fila.admin.config-set."+key, m{"value": "two", "if_value": "one"})
	c.call("fila.admin.config-set."+key, m{"value": "two", "if_value": ""}, nil)
	c.refused(409, "fila.admin.config-set."+key+".absent", m{"value": "x", "if_value": ""})
	c.call("fila.admin.config-get."+key, nil, &reply)
	require.Equal(t, "two", reply.Value)
	c.call("fila.admin.config-delete."+key, nil, &reply)
	c.refused(404, "fila.admin.config-get."+key, nil)
}

func TestRuntimeConfigList(t *testing.T) {
	c := shared(t).client(t)
	prefix := unique(t) + ":"
	for i := range 7 {
		c.call(fmt.Sprintf("fila.admin.config-set.%s%d", prefix, i), m{"value": fmt.Sprint(i)}, nil)
	}
	var reply struct {
		Total   int       `json:"total"`
		Entries []setting `json:"entries"`
	}
	c.call("fila.admin.config-list", m{"prefix": prefix}, &reply)
	require.Equal(t, 7, reply.Total)
	require.Len(t, reply.Entries, 7)
	c.call("fila.admin.config-list", m{"prefix": prefix, "offset": 5, "limit": 10}, &reply)
	require.Equal(t, 7, reply.Total)
	require.Equal(t, []setting{{Key: prefix + "5", Value: "5"}, {Key: prefix + "6", Value: "6"}}, reply.Entries)
	c.call("fila.admin.config-list", m{"prefix": prefix + "x"}, &reply)
	require.Zero(t, reply.Total)
	require.Empty(t, reply.Entries)
	c.call("fila.admin.config-list", nil, nil)
	for _, body := range []any{m{"offset": -1}, m{"limit": 0}, m{"limit": -1}, m{"all": true}, "[1]"} {
		c.refused(400, "fila.admin.config-list", body)
	}
}

// TestBadRuntimeConfigIsRefused: keys with a meaning are checked when they are set.
func TestBadRuntimeConfigIsRefused(t *testing.T) {
	c := shared(t).client(t)
	queue := c.newQueue(nil)
	throttle, circuit := unique(t), unique(t)
	for key, values := range map[string][]string{
		"throttle:" + throttle + ":rate":                {"x", "-1", ""},
		"throttle:" + throttle + ":burst":               {"x", "-1"},
		"throttle:" + throttle + ":concurrency":         {"x", "-1", "1.5"},
		"throttle:" + throttle + ":limit":               {"x", "-1"},
		"throttle:" + throttle + ":window_ms":           {"x", "-1", "10s"},
		"circuit:" + circuit + ":threshold":             {"x", "-1", "1.5"},
		"circuit:" + circuit + ":cooldown_ms":           {"x", "-1"},
		"circuit:" + circuit + ":half_open_max_calls":   {"x", "-1"},
		"weight:" + queue + ":acme":                     {"x", "-1", "0", "", "NaN", "Inf"},
		"weight:" + queue + ":acme/with:colon":          {"heavy"},
		"weight:" + queue + "_that_does_not_exist:acme": {"heavy"},
	} {
		for _, value := range values {
			c.refused(400, "fila.admin.config-set."+key, m{"value": value})
		}
		c.refused(404, "fila.admin.config-get."+key, nil)
	}
	for _, body := range []any{nil, m{}, m{"value": 5}, m{"value": "x", "unknown": 1}, "{", m{"value": "x", "if_value": 5}} {
		c.refused(400, "fila.admin.config-set."+unique(t), body)
	}
	c.refused(400, "fila.admin.config-get."+unique(t), m{"unknown": 1})
	for key, value := range map[string]string{
		"throttle:" + throttle + ":rate": "10", "throttle:" + throttle + ":burst": "5",
		"circuit:" + circuit + ":threshold": "3", "weight:" + queue + ":acme": "2.5",
	} {
		c.call("fila.admin.config-set."+key, m{"value": value}, nil)
		c.call("fila.admin.config-delete."+key, nil, nil)
	}
}
