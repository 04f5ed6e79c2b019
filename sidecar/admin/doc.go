// Package admin carries out the verbs of the admin protocol.
//
// [Admin.Verbs] is the table of all of them: each [Verb] decodes a request, carries it out
// and encodes the reply. Packages shard (queues, jobs, schedules) and control (settings,
// gates, pauses) make the changes. This package has the verbs that only read, such as
// queue-list, explain and peek, and store-backup. In a cluster it carries out a request at the
// owner of its queue, or at all nodes.
//
// No request holds a queue while it reads it: it takes small views one after the other, and
// asks gates and the store afterwards.
package admin
