// Package storecmd is fila store: it checks, measures, compacts, backs up,
// exports and imports the file of a store. All but a backup work without fila.
//
// An export is JSON lines, whose types and version are in lines.go; an importer
// makes a whole store of them or leaves nothing behind.
package storecmd
