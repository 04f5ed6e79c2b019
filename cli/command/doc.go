// Package command is the framework of the fila program: an [Env] with the common flags, the
// connection to fila, and exit codes.
//
// A group of commands is a package with a function Commands, which takes the Env and returns
// the group's commands; [Env.Root] adds them to fila and [Run] runs a command line. A command's
// Use names its arguments ([Group]). A command calls fila within [Ask], which connects
// according to flags, environment and contexts of the nats CLI ([Connection]) and rewords
// refusals ([Session.Explain]). An error other than a plain failure has an exit code ([Exit],
// [UsageError]).
//
// Completion ([Env.Complete]) asks the running fila for words, for a second at most, and stays
// silent without an answer.
package command
