package store_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, dir string, o store.Options) *store.Bolt {
	t.Helper()
	s, err := store.Open(filepath.Join(dir, "fila.db"), o)
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]store.Options{
		"Default": {NoSync: true},
		"Small":   store.Options{NoSync: true}.Small(),
		"NoCache": store.Options{NoSync: true, ReadCacheBytes: -1}.Small(),
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, dir string) store.Store { return open(t, dir, o) })
		})
	}
}
