// Package command is what all commands of the fila program share: an [Env] with
// the flags that each has, the connection to fila, and exit codes.
//
// A group of commands is a package with one function, Commands, that takes the
// Env and returns the group's commands; [Env.Root] puts them below fila and [Run]
// runs a command line. The arguments that a command's Use names are what it takes
// ([Group]). A command asks fila within [Ask], which connects as flags, environment
// and contexts of the nats CLI say ([Connection]) and words refusals
// ([Session.Explain]). An error that is not plain failure carries its exit code
// ([Exit], [UsageError]).
//
// Completion ([Env.Complete]) asks the running fila for what a word may be, for a
// second at most, and is silent where there is none.
package command
