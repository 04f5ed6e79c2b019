// Package storecmd is fila store: it checks, measures, compacts, backs up, exports and
// imports the file of a store, and accepts the loss of its newest commits. Only backup needs
// a running fila.
//
// An export is JSON lines (lines.go). An import makes a complete store from them, or
// none.
package storecmd
