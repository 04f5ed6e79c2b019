// Package clitest runs commands in tests: [Program] runs a command line of a group of commands,
// and [StartFake] starts a NATS server with a fila whose answers the test sets.
package clitest
