// Package cli is the fila command line: it turns arguments, files and the
// environment into calls of sidecar (fila serve), client (everything that
// talks to a running fila), store and hooks.
//
// [Main] is the whole program. Commands print results on standard output, as
// tables for people or as JSON with --json, and problems as one line on
// standard error that starts with "fila: ". The exit codes are in package command
// and in docs/cli.md.
//
// Here are the root and fila serve; the other commands are in the packages below,
// by what they are about, and share the packages command and terminal.
//
// What fila serve is told by its flags is one of the sources of package config,
// which puts the configuration together.
package cli
