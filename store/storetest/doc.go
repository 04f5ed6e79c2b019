// Package storetest holds what every implementation of store.Store is tested
// with: the conformance suite [Run], an in-memory [Model] that passes it and
// serves as the truth for random histories, and [Dump], which reads everything
// out of a store so that two can be compared.
package storetest
