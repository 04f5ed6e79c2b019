// Package system is what a benchmark compares: fila, bare NATS hops and
// JetStream. A [Target] is one of them as a load sees it, everything in which one
// differs from the others; [RunNode] is the server process of those that are not
// fila. [Access] says where a server is.
package system
