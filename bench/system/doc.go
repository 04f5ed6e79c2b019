// Package system has the systems that a benchmark compares: fila, bare NATS hops and JetStream.
// A [Target] is one of them as a load sees it, with everything in which it differs from the
// others; [RunNode] is the server process of the systems that are not fila. [Access] says where
// a server is.
package system
