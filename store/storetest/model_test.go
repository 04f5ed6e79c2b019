package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/filaq/fila/store"
	"github.com/filaq/fila/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestModel(t *testing.T) {
	storetest.Run(t, func(t testing.TB, dir string) store.Store {
		m, err := storetest.OpenModel(dir, nil)
		require.NoError(t, err)
		return m
	})
}
