// Package clitest runs commands in tests: [Program] runs a command line of a
// group of commands, and [StartFake] starts a NATS server with a fila that
// answers as the test tells it.
package clitest
