package telemetry

import (
	"context"
	"log/slog"
)

// AttrEvent is the attribute of JSON logs that names the event of a line, as in the
// OpenTelemetry semantic conventions. The text of a line is for people and may change; the name
// is stable.
const AttrEvent = "event.name"

// eventNotice is the event of lines with free text that call for action, such as warnings about
// the configuration.
const eventNotice = "fila.notice"

// Events maps the texts of log lines to event names. docs/log.md lists them. Lines at level
// debug have none.
var Events = map[string]string{
	"fila is ready":                                 "fila.process.ready",
	"stopping; another signal stops at once":        "fila.process.stopping",
	"stopping at once":                              "fila.process.killed",
	"stopping: no new messages, waiting for leases": "fila.process.draining",
	"stopped": "fila.process.stopped",
	"leases that did not end in time are kept for the next start": "fila.process.leases_kept",
	"configuration read":                     "fila.config.read",
	"reloading the configuration file":       "fila.config.reloading",
	"reload failed":                          "fila.config.reload_failed",
	"a reload was interrupted; reload again": "fila.config.reload_interrupted",
	"configuration file reloaded":            "fila.config.reloaded",
	"reloaded":                               "fila.config.changed",
	"set by the configuration file":          "fila.config.set_by_file",
	"the configuration file wins over what was changed at run time":                                          "fila.config.file_wins",
	"the settings in the configuration file win over those that were changed at run time":                    "fila.config.queue_file_wins",
	"a queue of the configuration file is changed at run time; the file wins at the next reload or start":    "fila.config.queue_changed",
	"a queue of the configuration file is deleted; the next reload or start creates it again":                "fila.config.queue_deleted",
	"a throttle of the configuration file is changed at run time; the file wins at the next start or reload": "fila.config.throttle_changed",
	"a circuit of the configuration file is changed at run time; the file wins at the next start or reload":  "fila.config.circuit_changed",
	"a setting of the runtime configuration has no effect: its name or value is unknown":                     "fila.config.value_ignored",
	"retry policies, error rules, guards and routes of the runtime configuration have no effect":             "fila.config.tables_ignored",
	"queues of the configuration file cannot be created":                                                     "fila.config.queues_not_made",
	"connected":                      "fila.nats.connected",
	"reconnected":                    "fila.nats.reconnected",
	"NATS does not answer; retrying": "fila.nats.waiting",
	"disconnected; deliveries stop until NATS is back":                               "fila.nats.disconnected",
	"still no connection to NATS; retrying":                                          "fila.nats.still_disconnected",
	"NATS closed the connection for good; restart fila":                              "fila.nats.closed",
	"the NATS server is about to shut down":                                          "fila.nats.lame_duck",
	"the NATS client dropped messages that arrived faster than fila read them":       "fila.nats.messages_dropped",
	"NATS permissions deny fila's user a subject that it needs":                      "fila.nats.subject_refused",
	"NATS permissions deny a reply to the reply subject of a client":                 "fila.nats.reply_refused",
	"NATS reports an error":                                                          "fila.nats.error",
	"log line of the embedded NATS server":                                           "fila.nats.server_says",
	"log line of the embedded NATS server about a client":                            "fila.nats.server_says_of_client",
	"waiting for JetStream":                                                          "fila.nats.jetstream_waiting",
	"a request is refused without a reply (nats.reply_prefixes)":                     "fila.request.unanswerable",
	"a reply cannot be encoded":                                                      "fila.request.reply_not_encoded",
	"an event cannot be published":                                                   "fila.event.not_published",
	"an event cannot be encoded":                                                     "fila.event.not_encoded",
	"events are lost: NATS was away for too long":                                    "fila.event.lost",
	"the presence cannot be encoded":                                                 "fila.presence.not_encoded",
	"another fila under this subject prefix is stopping; waiting for its end":        "fila.presence.other_stopping",
	"another fila has started under this subject prefix; it is newer and has to end": "fila.presence.other_appeared",
	"queue created": "fila.queue.created",
	"queue updated": "fila.queue.updated",
	"queue deleted": "fila.queue.deleted",
	"fila cannot subscribe to a new queue; a restart tries again": "fila.queue.not_subscribed",
	"a queue cannot be assigned to a shard":                       "fila.queue.not_placed",
	"the shard of a deleted queue stays recorded":                 "fila.queue.place_kept",
	"an enqueue limit cannot be set":                              "fila.queue.limit_not_set",
	"consumer lost":                                               "fila.consumer.lost",
	"attempt failed":                                              "fila.message.attempt_failed",
	"message dead-lettered":                                       "fila.message.dead_lettered",
	"a message cannot be dead-lettered; it stays in the store, undelivered until the next start": "fila.message.not_dead_lettered",
	"throttle keys of a message are ignored":                                                     "fila.message.keys_left_out",
	"a message is larger than the server now accepts":                                            "fila.message.too_large",
	"headers of a message cannot be decoded":                                                     "fila.message.headers_broken",
	"headers for on_failure cannot be read":                                                      "fila.message.headers_unreadable",
	"a message cannot be read; searches in its content do not find it":                           "fila.message.not_found_by_content",
	"messages cannot be read; their leases expire":                                               "fila.message.unreadable",
	"the reasons of dead letters cannot be read; they are delivered without":                     "fila.message.dead_unreadable",
	"a dead letter cannot be read; it is in no group":                                            "fila.message.not_grouped",
	"store: history of a message is lost":                                                        "fila.message.history_lost",
	"job created":                                                                                "fila.job.created",
	"job running":                                                                                "fila.job.running",
	"job paused":                                                                                 "fila.job.paused",
	"job done":                                                                                   "fila.job.done",
	"job canceled":                                                                               "fila.job.canceled",
	"a job cannot be read; it does not run any more":                                             "fila.job.unreadable",
	"a job skips messages that cannot be read":                                                   "fila.job.messages_left",
	"the counts of redrives cannot be read; they start from 0":                                   "fila.job.redrives_unreadable",
	"runs of a schedule were missed":                                                             "fila.schedule.missed",
	"a run of a schedule is refused; fila retries it":                                            "fila.schedule.refused",
	"a schedule cannot be read; it does not run any more":                                        "fila.schedule.unreadable",
	"hook log": "fila.hook.says",
	"hook failed, the message continues with the defaults":             "fila.hook.failed",
	"hook circuit opened, the hook is bypassed until a probe succeeds": "fila.hook.circuit_opened",
	"hook circuit closed": "fila.hook.circuit_closed",
	"a stored hook does not load; messages continue with the defaults until it is replaced": "fila.hook.not_loaded",
	"circuit open":                                "fila.circuit.open",
	"circuit half-open":                           "fila.circuit.half_open",
	"circuit closed":                              "fila.circuit.closed",
	"circuit open: more than max_failures":        "fila.circuit.held",
	"the state of a circuit could not be written": "fila.circuit.not_written",
	"the stored state of a circuit cannot be read; the circuit is closed": "fila.circuit.unreadable",
	"the state of the gates cannot be saved; they start as after a crash": "fila.gates.not_kept",
	"throttle cut": "fila.throttle.cut",
	"what a budget has used cannot be read; it begins anew":                                                      "fila.budget.unreadable",
	"a part of a budget cannot be booked; its messages wait until it can":                                        "fila.budget.not_booked",
	"ledgers of budgets whose period is over cannot be removed":                                                  "fila.budget.not_removed",
	"the shared record of a budget cannot be read; its messages wait until the record can be read or is deleted": "fila.budget.not_read",
	"what budgets have used cannot be saved; they go on with what was booked":                                    "fila.budget.not_kept",
	"the levels that throttle keys have learned cannot be saved":                                                 "fila.throttle.levels_not_kept",
	"learned levels cannot be stored; after a crash their throttle keys begin at the levels stored before":       "fila.throttle.level_not_written",
	"the state of the gates is lost; they start as after a crash":                                                "fila.gates.lost",
	"fila was not stopped cleanly: token buckets start empty and windows full, so that no limit is exceeded":     "fila.gates.begin_shut",
	"limits are not applied":                                    "fila.gates.limits_not_applied",
	"a value that another owner or client has set is changed":   "fila.config.value_taken_over",
	"the owner of an object that is no more stays":              "fila.config.owners_left",
	"a stored override cannot be read and is ignored":           "fila.gates.override_unreadable",
	"an override of another node cannot be read and is ignored": "fila.gates.override_of_node_unreadable",
	"a stored pause cannot be read and is ignored":              "fila.gates.pause_unreadable",
	"a pause of another node cannot be read and is ignored":     "fila.gates.pause_of_node_unreadable",
	"fila ended while calls of the guard were under way: their throttle keys are paused until the last call may be over, so that no concurrency limit is exceeded": "fila.guard.keys_paused",
	"keys of the guard's calls may be paused at the next start":                                     "fila.guard.keys_to_pause",
	"the end of the guard's calls cannot be updated; a crash pauses their throttle keys for longer": "fila.guard.keys_not_lowered",
	"call failed": "fila.guard.call_failed",
	"the end of the guard's calls cannot be read and is ignored": "fila.guard.calls_unreadable",
	"an entry of the audit log cannot be read":                   "fila.audit.unreadable",
	"earlier scripts of a deleted queue stay on disk":            "fila.hook.versions_kept",
	"an entry of the audit log cannot be written":                "fila.audit.not_kept",
	"backup written":                 "fila.backup.written",
	"backup failed":                  "fila.backup.failed",
	"circuits and limits are shared": "fila.shared.joined",
	"the bucket of shared circuits and limits is unreachable; this fila decides alone until it is back": "fila.shared.degraded",
	"circuits and limits are shared again": "fila.shared.recovered",
	"another fila set limits of a shared circuit later than this fila; its limits are in force here, too":                 "fila.shared.circuit_conflict",
	"another fila set limits of a shared throttle key later than this fila; its limits are in force here, too":            "fila.shared.throttle_conflict",
	"a newer version of fila has written the shared record of a circuit; this fila decides alone about it":                "fila.shared.circuit_newer",
	"the shared record of a circuit cannot be read; it is local until the record is deleted":                              "fila.shared.circuit_unreadable",
	"the shared record of a throttle key cannot be read; it is limited as without the bucket until the record is deleted": "fila.shared.throttle_unreadable",
	"the bucket of shared gates has another number of replicas than shared.replicas; fila does not change it":             "fila.shared.replicas_differ",
	"shared limits were not given back in time; other filas get them when this fila counts as dead":                       "fila.shared.not_given_back",
	"the cluster has been made":                            "fila.cluster.made",
	"a node has joined the cluster":                        "fila.cluster.node_joined",
	"a node has left the cluster":                          "fila.cluster.node_left",
	"another node gets no reply":                           "fila.cluster.node_silent",
	"an operator drained this node, or canceled its drain": "fila.cluster.drained",
	"the bucket of the cluster has another number of replicas than cluster.replicas; fila does not change it": "fila.cluster.replicas_differ",
	"NATS servers do not show what cluster.require asks for":                                                  "fila.cluster.servers_degraded",
	"all NATS servers show what cluster.require asks for":                                                     "fila.cluster.servers_recovered",
	"fila cannot see whether the NATS servers sync what JetStream acks: without sync_interval: always in the jetstream block of each, a power failure of all of them can lose messages that are confirmed": "fila.cluster.sync_not_known",
	"the bucket of the cluster cannot be followed; retrying":                                          "fila.cluster.not_followed",
	"the bucket of the cluster has lost entries; fila has written those again that had no newer ones": "fila.cluster.bucket_healed",
	"the nodes of the cluster read another format of records than before":                             "fila.cluster.format",
	"campaign": "fila.shard.campaign",
	"the log of the shard lacks confirmed commits; no node takes over the shard until it is repaired (fila cluster repair)": "fila.shard.log_lost",
	"the log of the shard is complete again":          "fila.shard.log_found",
	"a replica of the log of a shard is damaged":      "fila.shard.log_damaged",
	"the log of a shard could not be read completely": "fila.shard.log_not_read",
	"not promoted":                              "fila.shard.not_promoted",
	"the shard does not start at this node":     "fila.shard.not_started",
	"this node owns the shard":                  "fila.shard.owned",
	"this node does not own the shard any more": "fila.shard.given_up",
	"this node gives up the shard; another node takes it over when its log has been silent for a while": "fila.shard.abandoned",
	"handover": "fila.shard.handover",
	"the shard could not be drained; it is handed over with its leases":               "fila.shard.not_drained",
	"writes are not acked; the shard neither delivers nor answers until they are":     "fila.shard.fenced",
	"writes are acked again; the shard continues":                                     "fila.shard.unfenced",
	"the store of a shard does not close":                                             "fila.shard.store_not_closed",
	"the log of a shard begins":                                                       "fila.log.begins",
	"replog: a record is not in the log; retrying":                                    "fila.log.not_written",
	"replog: the log cannot be read; retrying":                                        "fila.log.not_read",
	"replog: the log is nearly full: messages are refused, everything else continues": "fila.log.nearly_full",
	"replog: the log has room again: messages are accepted":                           "fila.log.has_room",
	"replog: skipping a record of an earlier owner":                                   "fila.log.record_passed_over",
	"replog: a snapshot was made":                                                     "fila.log.snapshot_made",
	"replog: no snapshot was made, and the log grows":                                 "fila.log.snapshot_not_made",
	"replog: a snapshot cannot be read":                                               "fila.log.snapshot_unreadable",
	"replog: starting from a snapshot":                                                "fila.log.begins_with_snapshot",
	"replog: the replica does not follow":                                             "fila.replica.not_following",
	"replog: closing":                                                                 "fila.replica.not_closed",
	"replog: the file has records that the log lacks, and is put aside: an operator has repaired the log, or accepted the loss; it is made again from snapshot and log": "fila.replica.superseded",
	"replog: the log was repaired from this copy":                                                                "fila.replica.log_repaired",
	"replog: the file is corrupt and put aside; it is made again from snapshot and log":                          "fila.replica.file_corrupt",
	"replog: a corrupt file cannot be put aside":                                                                 "fila.replica.file_stays",
	"replog: the machine or its disk has failed while the file was open; it is made again from snapshot and log": "fila.replica.file_made_again",
	"replog: the file is not on the disk":                                                                        "fila.replica.file_not_on_disk",
	"store: made":                                                                                                "fila.store.made",
	"store: reading and checking the file":                                                                       "fila.store.checking",
	"recovering":                                                                                                 "fila.store.recovering",
	"recovered":                                                                                                  "fila.store.recovered",
	"store: one of two meta pages is damaged, using the other; the last commit may be missing": "fila.store.meta_damaged",
	"store: the last commit is incomplete and is dropped":                                      "fila.store.cut_off",
	"store: commit failed":               "fila.store.commit_failed",
	"store: segment cannot be compacted": "fila.store.not_compacted",
	"store: the clock has been set back: delays and leases keep their remaining time, other times stay unchanged": "fila.store.clock_set_back",
	"store: the time of the stop is not on disk: if the clock is set back now, delays and leases last longer":     "fila.store.end_not_kept",
	"store: the confirmed commits before this start are unknown, so fila would not notice a loss":                 "fila.store.confirmed_unknown",
	"store: the newest confirmed commit cannot be recorded, so fila would not notice its loss":                    "fila.store.confirmed_not_noted",
	"store: the loss of confirmed commits was accepted":                                                           "fila.store.loss_accepted",
	"store: closing after a failed open":                                                                          "fila.store.closed_after_failure",
	"close the store":                                                                                             "fila.store.not_closed",
	"the disk is nearly full: messages are refused, everything else continues":                                    "fila.disk.low",
	"a queue is stuck; restart fila, and report the defect with a profile of its goroutines":                      "fila.queue.stuck",
	"the throttle keys of a queue are probably a mistake":                                                         "fila.queue.throttle_keys",
	"the embedded NATS server disconnected a client":                                                              "fila.nats.client_cut",
	"no queue is stuck any more":                                                                                  "fila.queue.not_stuck",
	"the disk has room again: messages are accepted":                                                              "fila.disk.recovered",
	"the OpenTelemetry collector does not accept data; the data is lost":                                          "fila.otel.lost",
	"spans could not be sent to the collector before the stop":                                                    "fila.otel.lost_at_end",
	"some metrics cannot be read":                                                                                 "fila.otel.metrics_unreadable",
	"the HTTP listener has ended":                                                                                 "fila.http.ended",
	"a page cannot be rendered":                                                                                   "fila.web.page_failed",
	"a login with a wrong token":                                                                                  "fila.web.login_failed",
}

// EventLog returns a handler that adds the event name to each line.
func EventLog(next slog.Handler) slog.Handler { return eventLog{next} }

type eventLog struct{ slog.Handler }

func (h eventLog) Handle(ctx context.Context, r slog.Record) error {
	name := Events[r.Message]
	if name == "" && r.Level > slog.LevelDebug {
		name = eventNotice
	}
	if name == "" {
		return h.Handler.Handle(ctx, r)
	}
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	named.AddAttrs(slog.String(AttrEvent, name))
	r.Attrs(func(a slog.Attr) bool {
		named.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, named)
}

func (h eventLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return eventLog{h.Handler.WithAttrs(attrs)}
}

func (h eventLog) WithGroup(name string) slog.Handler { return eventLog{h.Handler.WithGroup(name)} }
