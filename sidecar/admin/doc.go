// Package admin answers requests of operators: verbs that make, change and explain
// queues, gates and settings.
//
// [Admin.Verbs] is the table of all of them. Each [Verb] says what its subject ends
// in, and its Do decodes a request, refuses what cannot be done, has it done, and
// encodes the reply. What it is done by lies elsewhere: packages shard (queues) and
// control (settings, gates, pauses). Only what reads and changes nothing is here:
// queue-list, queue-inspect, explain and peek, which put into words what views of
// package queue say, and store-backup.
//
// Nobody waits for an answer here with a queue's lock held: a view is taken in
// pieces that are small, and gates and the store are asked afterwards.
package admin
