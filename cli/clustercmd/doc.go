// Package clustercmd is fila cluster: it shows the nodes and shards of a cluster, moves
// shards between nodes, and takes whole clusters in and out while their nodes do not run.
package clustercmd
