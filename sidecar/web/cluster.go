package web

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/filaq/fila/wire"
)

func clusterPage(a *ask) (any, error) {
	var status wire.ClusterStatus
	err := a.verb(wire.VerbClusterStatus, "", nil, &status)
	return status, err
}

func clusterDrain(a *ask, form url.Values) (string, error) {
	req := wire.ClusterDrainRequest{Node: form.Get("node"), Cancel: form.Get("cancel") != ""}
	note := req.Node + " gives its shards away."
	if req.Cancel {
		note = req.Node + " takes shards again."
	}
	return note, a.verb(wire.VerbClusterDrain, "", req, nil)
}

func clusterMove(a *ask, form url.Values) (string, error) {
	shard, err := strconv.Atoi(form.Get("shard"))
	if err != nil {
		return "", fmt.Errorf("%q is no shard: a whole number is expected", form.Get("shard"))
	}
	return fmt.Sprintf("Shard %d goes to %s.", shard, form.Get("node")), a.verb(wire.VerbClusterMove, "", wire.ClusterMoveRequest{Shard: &shard, Node: form.Get("node")}, nil)
}
