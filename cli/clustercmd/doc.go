// Package clustercmd is fila cluster: it shows the nodes and shards of a cluster, and
// moves shards between nodes.
package clustercmd
