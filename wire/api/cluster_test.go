package api

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/filaq/fila/wire"
)

func TestClusterRequests(t *testing.T) {
	drain, err := VerbClusterDrain.Parse("", []byte(`{"node":"b","cancel":true}`))
	require.Nil(t, err)
	require.Equal(t, ClusterDrainRequest{Node: "b", Cancel: true}, drain)
	move, err := VerbClusterMove.Parse("", []byte(`{"shard":0,"node":"b"}`))
	require.Nil(t, err)
	require.Equal(t, []any{0, "b"}, []any{*move.Shard, move.Node})

	for body, names := range map[string]string{
		`{"node":"b"}`:            "shard is missing",
		`{"shard":-1,"node":"b"}`: "shard is -1",
		`{"shard":1}`:             "node is missing",
		`{"shard":1,"node":"` + strings.Repeat("n", 65) + `"}`: "the name of a node",
		`{"shard":1,"node":"b","force":true}`:                  "force",
	} {
		_, err := VerbClusterMove.Parse("", []byte(body))
		require.NotNil(t, err, body)
		require.Contains(t, err.Description, names)
	}
	_, err = VerbClusterDrain.Parse("", nil)
	require.Contains(t, err.Description, "node is missing")
	require.Contains(t, wire.NoSuchShard(8, 8).Description, "allowed is 0 to 7")
}
