// Package cli is the fila command line: it turns arguments, files and the
// environment into calls of sidecar (fila serve), client (everything that
// talks to a running fila), store and hooks.
//
// [Main] is the whole program. Commands print results on standard output, as
// tables for people or as JSON with --json, and problems as one line on
// standard error that starts with "fila: ". The exit codes are in package command
// and in docs/cli.md.
//
// This package has the root command and fila serve. The packages below have the other commands,
// grouped by topic, and share the packages command and terminal.
//
// The flags of fila serve are one of the sources from which package config builds the
// configuration.
package cli
