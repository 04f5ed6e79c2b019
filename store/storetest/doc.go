// Package storetest tests implementations of store.Store. It has the conformance suite
// [Run], an in-memory [Model] that passes it and is the reference for random histories,
// and [Dump], which reads the content of a store for comparison.
package storetest
