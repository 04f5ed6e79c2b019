package web

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/filaq/fila/wire/api"
)

func clusterPage(a *ask) (any, error) {
	var status api.ClusterStatus
	err := a.verb(api.VerbClusterStatus, "", nil, &status)
	return status, err
}

func clusterDrain(a *ask, form url.Values) (string, error) {
	req := api.ClusterDrainRequest{Node: form.Get("node"), Cancel: form.Get("cancel") != ""}
	note := req.Node + " hands over its shards."
	if req.Cancel {
		note = req.Node + " takes shards again."
	}
	return note, a.verb(api.VerbClusterDrain, "", req, nil)
}

func clusterMove(a *ask, form url.Values) (string, error) {
	shard, err := strconv.Atoi(form.Get("shard"))
	if err != nil {
		return "", wrongField("shard", "%q is not a shard: use a whole number", form.Get("shard"))
	}
	return fmt.Sprintf("Shard %d goes to %s.", shard, form.Get("node")), a.verb(api.VerbClusterMove, "", api.ClusterMoveRequest{Shard: &shard, Node: form.Get("node")}, nil)
}
