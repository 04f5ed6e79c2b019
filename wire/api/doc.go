// Package api describes the verbs of the admin protocol and of the guard: their requests
// and replies.
//
//   - [Verb] describes a verb of the admin protocol; verb.go lists all of them.
//   - [ParseGuardCheck], [ParseGuardDone] and [ParseGuardState] parse requests of the guard.
//   - [Filter] selects messages of a queue, for a peek or a job.
//   - [PageOf] is what the replies of list verbs have in common, and [Long] what is
//     shortened to fit into a NATS message.
//
// It is as pure as package wire, with whose names and errors it checks requests.
package api
