// Package docs is the pages, and the tests that hold them to the program.
//
// The commands of README, docs and examples are run as they stand there
// (commands_test.go); the files in deploy are built, rendered and started with
// (deploy_test.go); links, error numbers and llms.txt are compared with what is
// there (pages_test.go). They take a while, so they are not in the root: the go
// command prints packages in order, and the root comes first.
package docs
