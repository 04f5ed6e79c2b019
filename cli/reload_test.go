package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestConfigLog(t *testing.T) {
	f := startFake(t)
	ten, empty, odd := "10", "", "a\nb"
	log := wire.ConfigLog{Total: 3, Entries: []wire.ConfigLogEntry{
		{Seq: 12, Time: "2026-01-02T11:59:00Z", Key: "throttle:stripe:rate", Old: &ten, By: "override-ended"},
		{Seq: 11, Time: "2026-01-02T11:00:00Z", Key: "feature", Old: &empty, New: &odd, By: "config-set"},
	}}
	f.answer("fila.admin.config-log", log)
	r := runAt(t, "config", "log", "throttle:", "--limit", "2")
	require.JSONEq(t, `{"prefix":"throttle:","limit":2}`, string(f.next().Data))
	require.Equal(t, result{exitOK, text(
		"SEQ  TIME                           KEY                   OLD  NEW  BY",
		"12   2026-01-02T11:59:00Z (1m ago)  throttle:stripe:rate  10   -    override-ended",
		`11   2026-01-02T11:00:00Z (1h ago)  feature               ""   a?b  config-set`,
	), ""}, r)
	r = runAt(t, "config", "log", "--json")
	var got wire.ConfigLog
	require.NoError(t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(t, log.Entries, got.Entries)
	r = runAt(t, "config", "log", "--limit", "-1")
	require.Equal(t, exitUsage, r.code)

	none := startFake(t)
	none.answer("fila.admin.config-log", wire.ConfigLog{})
	require.Equal(t, "no changes\n", runAt(t, "config", "log").out)
}

func TestReload(t *testing.T) {
	f := startFake(t)
	f.answer("fila.admin.reload", wire.ReloadReply{Changes: []string{"error_rule slow is new", "throttle stripe: rate 10 -> 5"}})
	require.Equal(t, result{exitOK, text("error_rule slow is new", "throttle stripe: rate 10 -> 5"), ""}, runAt(t, "reload"))
	require.True(t, json.Valid([]byte(runAt(t, "reload", "--json").out)))

	f = startFake(t)
	f.answer("fila.admin.reload", wire.ReloadReply{})
	require.Equal(t, result{exitOK, "reloaded, nothing has changed\n", ""}, runAt(t, "reload"))

	f = startFake(t)
	f.answer("fila.admin.reload", wire.ReloadFailed(json.Unmarshal([]byte("{"), new(int))))
	r := runAt(t, "reload")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "nothing was reloaded: unexpected end of JSON input: correct the file and reload again")
}
