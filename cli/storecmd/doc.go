// Package storecmd is fila store: it checks, measures, compacts, backs up, exports and
// imports the file of a store. Only backup needs a running fila.
//
// An export is JSON lines (lines.go). An import makes a complete store from them, or
// none.
package storecmd
