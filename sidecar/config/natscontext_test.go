package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// contexts writes files below the directory of the nats CLI.
func contexts(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	dir = filepath.Join(home, "nats")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "context"), 0o700))
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestReadNATSContext(t *testing.T) {
	dir := contexts(t, map[string]string{
		"context/a.json":   `{"url":"nats://a:1","user":"u","password":"p","ca":"~/ca.pem","inbox_prefix":"_INBOX.u","jetstream_domain":"x","nsc":""}`,
		"context/b.json":   `{"url":"nats://b:1","creds":"$CREDS_DIR/b.creds","nkey":"~other/nkey","tls_first":true}`,
		"context/nsc.json": `{"nsc":"nsc://o/a/u"}`,
		"context/jwt.json": `{"user_jwt":"x"}`,
		"context/bad.json": `{"url":`,
	})
	t.Setenv("HOME", "/home/me")
	t.Setenv("CREDS_DIR", "/creds")
	a := &NATSContext{URL: "nats://a:1", User: "u", Password: "p", CA: "/home/me/ca.pem", InboxPrefix: "_INBOX.u"}
	for _, name := range []string{"a", filepath.Join(dir, "context", "a.json")} {
		got, err := ReadNATSContext(name)
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	b, err := ReadNATSContext("b")
	require.NoError(t, err)
	require.Equal(t, &NATSContext{URL: "nats://b:1", Creds: "/creds/b.creds", NKey: "~other/nkey", TLSFirst: true}, b)

	for name, want := range map[string]string{
		"":                      "not a name of a context",
		"../a":                  "not a name of a context",
		"c":                     `NATS context "c" does not exist: there is no ` + filepath.Join(dir, "context", "c.json"),
		"nsc":                   `NATS context "nsc" uses nsc, which fila does not support`,
		"jwt":                   `NATS context "jwt" uses user_jwt, which fila does not support`,
		"bad":                   "unexpected end of JSON",
		dir + "/context/x.json": "does not exist",
	} {
		_, err := ReadNATSContext(name)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, []string{"a", "b", "bad", "jwt", "nsc"}, NATSContexts())
}

func TestSelectedNATSContext(t *testing.T) {
	dir := contexts(t, nil)
	name, err := SelectedNATSContext()
	require.NoError(t, err)
	require.Empty(t, name)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "context.txt"), []byte("a\n"), 0o600))
	name, err = SelectedNATSContext()
	require.NoError(t, err)
	require.Equal(t, "a", name)

	// Without a home directory there is nothing to select from.
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", "")
	name, err = SelectedNATSContext()
	require.NoError(t, err)
	require.Empty(t, name)
	require.Empty(t, NATSContexts())
	_, err = ReadNATSContext("a")
	require.ErrorContains(t, err, "NATS contexts: ")
}

// fila serve takes a context only by name, and what it sets itself wins.
func TestContextOfServe(t *testing.T) {
	dir := contexts(t, map[string]string{
		"context/a.json":     `{"url":"nats://a:1","user":"u","password":"p","ca":"/ca.pem"}`,
		"context/empty.json": `{}`,
		"context/first.json": `{"url":"nats://a:1","tls_first":true}`,
		"context.txt":        "a",
	})
	load := func(environ ...string) NATSConfig {
		t.Helper()
		loaded, err := Load(Sources{Environ: environ})
		require.NoError(t, err)
		return loaded.NATS
	}
	got := load("FILA_NATS__CONTEXT=a")
	require.Equal(t, "nats://a:1", got.URL)
	require.Equal(t, "u", got.User)
	require.Equal(t, "p", got.Password)
	require.Equal(t, TLSConfig{CA: "/ca.pem"}, got.TLS)

	got = load("FILA_NATS__CONTEXT="+filepath.Join(dir, "context", "a.json"), "FILA_NATS__TOKEN=t", "FILA_NATS__URL=nats://own:1", "FILA_NATS__TLS__CA=own.pem")
	require.Equal(t, "nats://own:1", got.URL)
	require.Equal(t, "t", got.Token)
	require.Empty(t, got.User, "a login replaces the context's")
	require.Empty(t, got.Password)
	require.Equal(t, TLSConfig{CA: "own.pem"}, got.TLS)

	require.Equal(t, "nats://127.0.0.1:4222", load("FILA_NATS__CONTEXT=empty").URL)
	require.Empty(t, load().URL, "the selected one is not looked at")
	for name, want := range map[string]string{
		"first": `nats.context: NATS context "first" uses tls_first, which fila serve does not support`,
		"gone":  `nats.context: NATS context "gone" does not exist`,
	} {
		_, err := Load(Sources{Environ: []string{"FILA_NATS__CONTEXT=" + name}})
		require.ErrorContains(t, err, want)
	}
}
