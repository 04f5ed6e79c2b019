// Made by go test ./schemas/generator -update from the types of the server. Do not edit.
// Fields that end in _ms are milliseconds; times are RFC 3339.

/** BatchRefusal is a refused message or ack of a batch. */
export interface BatchRefusal {
  /** from 0 */
  index: number;
  code: number;
  err_code: number;
  /** description is given with the first refusal of each err_code. */
  description?: string;
  /** rounded up; 0: not known */
  retry_after_ms?: number;
}

/** BatchReply is the reply to a batch of messages or of acks. Those that are not refused are on disk. */
export interface BatchReply {
  queue: string;
  /**
   * ids are the ids of the messages, 16 bytes each, in base64url without padding. The id of a duplicate is the id
   * of the first message; a refused message has zeros. Acks have none.
   */
  ids?: string;
  /** duplicates are the messages whose Nats-Msg-Id is known, by their index from 0. */
  duplicates?: number[];
  refused?: BatchRefusal[];
  /** room is how many messages the queue would accept now; absent if it has no limit. */
  room?: number;
}

/** BudgetInfo is the budget of a throttle key, and what the key has used of it. */
export interface BudgetInfo {
  key: string;
  /** cost in a period */
  budget: number;
  /** hour, day, week or month */
  period: string;
  zone?: string;
  warn_at?: number[];
  /** on_empty is what becomes of messages that cost more than is left: dead_letter, refuse, or by default hold. */
  on_empty?: string;
  /** to the present period, by top-ups */
  added: number;
  /** in the present period: actual costs, and estimates of what is in flight */
  used: number;
  /** negative: actual costs have exceeded their estimates */
  left: number;
  /** RFC 3339: the period */
  started_at: string;
  /** RFC 3339: the period; the next one begins then */
  ends_at: string;
}

/** CircuitChange is a change of the state of a circuit. */
export interface CircuitChange {
  /** RFC 3339 */
  at: string;
  old: string;
  new: string;
  /** as in the event circuit-changed */
  cause: string;
}

/** CircuitFailure is a failed delivery, or a failed call of the guard, behind a circuit. */
export interface CircuitFailure {
  /** RFC 3339 */
  at: string;
  /** of the message; absent: a call of the guard */
  id?: string;
  /** of the guard */
  caller?: string;
  attempt?: number;
  /** its first 512 bytes */
  error_code?: string;
  /** its first 512 bytes */
  error?: string;
}

/** CircuitFailures is how many deliveries and calls failed in a minute, also after the circuit had opened. */
export interface CircuitFailures {
  /** RFC 3339; its beginning */
  minute: string;
  failures: number;
}

/** CircuitHistory is the last hour of a circuit. */
export interface CircuitHistory {
  /** RFC 3339; before it nothing is known */
  since: string;
  /** of the state, oldest first; of more than 256 the older ones are thinned to one a minute */
  changes?: CircuitChange[];
  /** the minutes that have some, oldest first */
  failures?: CircuitFailures[];
  /** the minutes that have some, oldest first */
  openings?: CircuitOpened[];
}

/** CircuitInfo is a circuit around a destination. */
export interface CircuitInfo {
  key: string;
  /** closed, open or half-open */
  state: string;
  consecutive_failures: number;
  /** RFC 3339, or "closed" if only an operator closes it */
  open_until?: string;
  /** of the opening: failures, retry_after, by hand, max_failures */
  cause?: string;
  /** the client that opened it by hand, if known */
  opened_by_client?: string;
  /** in flight */
  probes: number;
  threshold: number;
  cooldown_ms: number;
  half_open_max_calls: number;
  half_open_successes: number;
  /** of these limits: file, operator, default, or "fila <name>" of another fila */
  source?: string;
  /** sources says in circuit-show who set each of these limits. */
  sources?: Record<string, Source>;
  /** 0: any number */
  max_failures: number;
  failure_window_ms: number;
  /** 0: until an operator closes it */
  failure_hold_ms: number;
  /** queues, as in ThrottleInfo */
  waiting: number;
  waiting_messages?: number;
  /** as in ThrottleInfo */
  waiting_queues?: WaitingQueue[];
  /** absent: none that this fila has seen */
  openings?: CircuitOpenings;
  /**
   * Only in the reply to circuit-show, and only if fila has seen them since its start. of an opening for failures
   * or a Retry-After, the one that opened it
   */
  last_failure?: CircuitFailure;
  /** the last hour */
  history?: CircuitHistory;
  /** Of a shared circuit. */
  shared?: boolean;
  /** the record cannot be reached, so this fila decides alone */
  degraded?: boolean;
  /** instance: probes that it may have in flight */
  probes_by?: Record<string, number>;
  /** instance that opened it */
  opened_by?: string;
  /** instance that made the last change */
  by?: string;
  /** RFC 3339, by the clock of the fleet */
  changed_at?: string;
  /** of the last change; grows */
  version?: number;
  /** own is set if newer limits of another fila are in force: the limits set here. */
  own?: CircuitLimits;
  /** the other fila */
  limits_by?: string;
  /** RFC 3339, if known */
  limits_changed_at?: string;
}

/** CircuitLimits decide when a circuit opens and closes. Filas that share it use the newest. */
export interface CircuitLimits {
  threshold: number;
  cooldown_ms: number;
  half_open_max_calls: number;
  half_open_successes: number;
}

/** CircuitOpened is how often a circuit opened in a minute, not by hand. */
export interface CircuitOpened {
  /** RFC 3339; its beginning */
  minute: string;
  openings: number;
}

/** CircuitOpenings are the openings of a circuit in the last ten minutes, without those by hand. */
export interface CircuitOpenings {
  count: number;
  /** RFC 3339 */
  last: string;
  /** of the last one, as in CircuitInfo.cause */
  cause: string;
}

/** ConsumeReply answers a ConsumeRequest. */
export interface ConsumeReply {
  /** the subject of the deliveries */
  deliver: string;
  max_in_flight: number;
  visibility_timeout_ms: number;
  /** the name was registered and is no longer */
  left?: boolean;
}

/** ConsumerInfo is a registered consumer, or a waiting fetch. */
export interface ConsumerInfo {
  name: string;
  max_in_flight: number;
  in_flight: number;
  /** how many more it may get */
  credit: number;
  fetch: boolean;
  /** min, or absent for all headers */
  headers?: string;
  /** most messages in a delivery; absent: deliveries are no batches */
  batch?: number;
  /** RFC 3339, absent if never */
  expires_at?: string;
}

/** ConsumerRequest is a request on fila.consumer.<consumer>.<queue>: a ConsumeRequest or one fetch. */
export interface ConsumerRequest {
  consumer?: string;
  /** 1 to 65536, default 64 */
  max_in_flight?: number;
  /** 0 (for ever) to 365 days */
  ttl_ms?: number;
  /** of its deliveries: all (default) or min */
  headers?: "" | "all" | "min";
  /** most messages in a delivery, 1 to 1000; 0: deliveries are no batches */
  batch?: number;
  /** most bytes of a batch, 4096 to 64 MiB, rounded down to a power of two; 0: as many as NATS allows */
  batch_bytes?: number;
  /** how long a batch that is not full waits for more, 0 to 1000 */
  batch_wait_ms?: number;
  /** ends the registrations of the name */
  leave?: boolean;
  /** a FetchRequest; absent: none */
  fetch?: FetchRequest;
}

/** Departure is a consumer that has gone. */
export interface Departure {
  consumer: string;
  /** RFC 3339 */
  at: string;
  /** why fila ended its registration; empty: it left by itself */
  reason?: string;
}

/** EndedCount is a fairness key with the number of its deliveries that have ended. */
export interface EndedCount {
  key: string;
  ended: number;
}

/** EnqueueReply confirms an enqueue: the message is on disk or finished. */
export interface EnqueueReply {
  /** a UUID; of the first message if duplicate */
  id: string;
  queue: string;
  duplicate?: boolean;
  /** Of an enqueue that made a schedule, which has no id. its name */
  schedule?: string;
  /** it replaced one of the same name */
  replaced?: boolean;
  /** it existed already */
  unchanged?: boolean;
  /** its first run, RFC 3339 in its time zone */
  next?: string;
}

/** ErrorBody is the JSON body of an error reply. */
export interface ErrorBody {
  error: ErrorDetail;
}

/** ErrorDetail is an error in an ErrorBody. */
export interface ErrorDetail {
  /** the class, as in HTTP */
  code: number;
  /** the stable number */
  err_code: number;
  /** one line for people, which may change */
  description: string;
}

/** FetchRequest asks for up to batch messages on the reply subject. */
export interface FetchRequest {
  /** 1 to 65536, default 1 */
  batch?: number;
  /** 0 (do not wait) to an hour */
  expires_ms?: number;
  /** of the messages: all (default) or min */
  headers?: "" | "all" | "min";
  /** messages that are there at once come as batches */
  batched?: boolean;
}

/** FlowInfo is a flow with pending messages. */
export interface FlowInfo {
  key: string;
  weight: number;
  deficit: number;
  ready: number;
  /** the old name of ready, for one version */
  pending: number;
  /** its weight among all active flows, 0 to 1 */
  share: number;
  /** The flow's messages in flight, and its part of the queue's busy_ms, 0 to 1. */
  in_flight: number;
  busy_share: number;
}

/** GateKeyRequest names a throttle key or a circuit. */
export interface GateKeyRequest {
  /** if the tail of the subject is "_" */
  key?: string;
}

/** GuardAnswer answers a check. */
export interface GuardAnswer {
  allowed: boolean;
  /**
   * If allowed: the permit for done, and when it expires. probe says that the circuit is half-open and this call
   * is its probe.
   */
  permit?: string;
  /** RFC 3339 */
  expires_at?: string;
  /**
   * If allowed: the permit for done, and when it expires. probe says that the circuit is half-open and this call
   * is its probe.
   */
  probe?: boolean;
  /**
   * Otherwise: the gate and key that refuse it, and when to retry. circuit, rate, window, concurrency, reserved,
   * turn, paused or late; of a state also a key of [limits]
   */
  gate?: string;
  key?: string;
  /** rounded up; absent: unknown */
  retry_after_ms?: number;
  /** of a rate, window or concurrency */
  limit?: GuardLimit;
}

/** GuardAnswers answers a check with Checks, in order. */
export interface GuardAnswers {
  answers: GuardAnswer[];
}

/**
 * GuardAsk is one call to check. The first key is the destination: its circuit decides, and gets the outcome of
 * the call. The limits of all keys must allow the call; otherwise it uses none of them.
 */
export interface GuardAsk {
  /** the first key, if it is not the subject's tail */
  key?: string;
  /** further keys, at most seven */
  with?: string[];
  /** for rates; 0.001 to 1e6, default 1 */
  cost?: number;
  /** how long the permit lives without a done: up to an hour, default 30 s */
  ttl_ms?: number;
}

/** GuardCheckRequest checks one call, or with checks several, independently. */
export interface GuardCheckRequest {
  /** the first key, if it is not the subject's tail */
  key?: string;
  /** further keys, at most seven */
  with?: string[];
  /** for rates; 0.001 to 1e6, default 1 */
  cost?: number;
  /** how long the permit lives without a done: up to an hour, default 30 s */
  ttl_ms?: number;
  /** up to 64 bytes; the done must name the same */
  caller?: string;
  /** up to 100, instead of the fields of GuardAsk */
  checks?: GuardAsk[];
}

/** GuardDoneRequest reports the outcome of a call. */
export interface GuardDoneRequest {
  /** the first key, if it is not the subject's tail */
  key?: string;
  permit: string;
  /** as in the check */
  caller?: string;
  /** ok or error */
  outcome: "ok" | "error";
  /**
   * cost is the actual cost of the call, 0 to 1e6, in place of the estimate of the check. 0 counts as 0.001.
   * Absent: the estimate stands.
   */
  cost?: number;
  /**
   * remaining is the cost that the destination still admits, from 0 to 1e12, and reset_ms the time until it admits
   * more, for throttle keys that learn their limits.
   */
  remaining?: number;
  /**
   * remaining is the cost that the destination still admits, from 0 to 1e12, and reset_ms the time until it admits
   * more, for throttle keys that learn their limits.
   */
  reset_ms?: number;
  /** Of an error. */
  error_code?: string;
  error?: string;
  /** the destination's Retry-After */
  retry_after_ms?: number;
  /** number of calls for the same work, this one included; default 1 */
  attempt?: number;
  /** a [[retry_policy]], unless an error rule names one; empty: the default of queues */
  retry_policy?: string;
}

/** GuardLimit is the state of one limit. */
export interface GuardLimit {
  key: string;
  /** rate, window or concurrency; of a state's answer also a key of [limits] */
  gate: string;
  /** calls of cost 1 at once, or in the window */
  limit: number;
  /** now */
  remaining: number;
  /** seconds until it is full again if unused, rounded up */
  reset_s?: number;
  /** the same as Unix time in seconds */
  reset_epoch?: number;
  window_ms?: number;
}

/**
 * GuardStateRequest asks for the state of a key and, with an error, for the judgement of the rules about it. The
 * error does not count.
 */
export interface GuardStateRequest {
  /** if it is not the subject's tail */
  key?: string;
  /** whose limits on permits apply */
  caller?: string;
  error_code?: string;
  error?: string;
  /** of the call that would have failed; default 1 */
  attempt?: number;
  /** as in GuardDoneRequest */
  retry_policy?: string;
}

/** GuardStatus answers a state request, which uses no limits. */
export interface GuardStatus {
  key: string;
  /** of a check with only this key and cost 1; without a permit */
  answer: GuardAnswer;
  limits: GuardLimit[];
  /** absent: closed, without failures */
  circuit?: CircuitInfo;
  /** of calls with this key as the first */
  permits: number;
  /** about the error of the request */
  verdict?: GuardVerdict;
}

/** GuardVerdict answers a done. */
export interface GuardVerdict {
  /** reported before: the first outcome counts */
  duplicate?: boolean;
  /** Of an error: the judgement of the rules. low, medium, high or critical */
  severity?: string;
  rule?: string;
  description?: string;
  retry: boolean;
  /** until the retry, rounded up */
  delay_ms?: number;
  /** after this attempt; absent: unlimited */
  retries_left?: number;
}

/** HookInfo is the state of a hook and its circuit. Counts are since the start of the process. */
export interface HookInfo {
  /** on_enqueue or on_failure */
  hook: string;
  /** closed, open or half-open */
  state: string;
  runs: number;
  failures: number;
  /** not run because the circuit was open */
  bypassed: number;
  /** fields that took their defaults */
  warnings: number;
  consecutive_failures: number;
  last_error?: string;
}

/** LimitsChange is the latest change of the limits that are in force for a throttle key. */
export interface LimitsChange {
  /** whose limits were changed: the throttle key, or a prefix that ends in '*' */
  key: string;
  /** RFC 3339 */
  at: string;
  /** the verb, or file, as in the audit log */
  by: string;
  client?: string;
  /** of the change, if one was given */
  reason?: string;
  /** old and new have the limits that were changed. */
  old: ThrottleLimits;
  /** old and new have the limits that were changed. */
  new: ThrottleLimits;
}

/** QueueDeleteReply answers a QueueDeleteRequest. */
export interface QueueDeleteReply {
  /** messages, including messages of the dead letter queue */
  deleted: number;
  warnings?: string[];
}

/** QueueDeleteRequest deletes a queue and its dead letter queue. */
export interface QueueDeleteRequest {
  /** also if there are messages */
  force?: boolean;
}

/** QueueDetail counts what happened to a queue since its process started, and its noisy and starved flows now. */
export interface QueueDetail {
  /** when it was read, Unix ms */
  at_ms: number;
  enqueued: number;
  delivered: number;
  acked: number;
  /** attempts: nacks and expired leases */
  failed: number;
  /** leases */
  expired: number;
  /** messages that consumers ended with +TERM; they are dead letters, too */
  terminated: number;
  dead_lettered: number;
  /** requests */
  refused: number;
  /**
   * waits counts deliveries by how long their message waited since it was enqueued or became due: at most each of
   * 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900 and 3600 s,
   * and longer.
   */
  waits: number[];
  /**
   * ended counts deliveries that have ended, of all fairness keys and of up to as many as requested of which the
   * most ended in the last one to two minutes. max_wait_ms is the longest wait before the deliveries that ended in
   * this time. See Lane.
   */
  ended: number;
  /**
   * ended counts deliveries that have ended, of all fairness keys and of up to as many as requested of which the
   * most ended in the last one to two minutes. max_wait_ms is the longest wait before the deliveries that ended in
   * this time. See Lane.
   */
  max_wait_ms: number;
  tenants?: EndedCount[];
  /** as in NoisyReply */
  noisy_flows: number;
  quiet_ready: number;
  /** the old name of quiet_ready, for one version */
  quiet_pending: number;
  quiet_oldest_age_ms: number;
  starved_flows: number;
}

/** QueueInfo answers a QueueInspectRequest. */
export interface QueueInfo {
  name: string;
  pending: number;
  ready: number;
  blocked: number;
  /** the old name of blocked, for one version */
  parked: number;
  delayed: number;
  in_flight: number;
  /** claimed by a job, or being transferred to another queue */
  moving?: number;
  consumers: number;
  /** payloads and headers of all messages */
  bytes: number;
  /** of the oldest unfinished message, 0 if there is none */
  oldest_age_ms: number;
  /** absent for a dead letter queue */
  dlq?: string;
  /** Of a cluster: the queue's shard, and the node that owns it. */
  shard?: number;
  owner?: string;
  /** if requested */
  detail?: QueueDetail;
  settings: QueueSettings;
  /** who set each setting, except settings that are empty by default */
  sources: Record<string, Source>;
  quantum: number;
  /** all active ones */
  flows: number;
  /** as in QueueWanted, within a minute */
  wanted: number;
  /** as in NoisyReply */
  busy_ms: number;
  /** see NoisyReply */
  noisy_flows?: string[];
  starved_flows?: number;
  consumer_list: ConsumerInfo[];
  /** of the last 15 minutes, of consumers that are not back; the last one first */
  departures?: Departure[];
  /** with the most pending messages */
  top_flows: FlowInfo[];
  hooks: HookInfo[];
  /** since the start of the process */
  counters: Record<string, number>;
  /** How many of the requested flows, and of the consumers, did not fit into the reply. */
  more_flows?: number;
  more_consumers?: number;
}

/** QueueInspectRequest asks for a QueueInfo. */
export interface QueueInspectRequest {
  /** how many flows to show, 0 to 1000, default 20 */
  flows?: number;
}

/**
 * QueueReply answers queue-create and queue-update: the settings of the queue, with warnings about settings that
 * probably do not do what is intended.
 */
export interface QueueReply {
  name: string;
  /** on_enqueue and on_failure are the texts of the Lua hooks, empty for none. */
  on_enqueue: string;
  /** on_enqueue and on_failure are the texts of the Lua hooks, empty for none. */
  on_failure: string;
  /** visibility_timeout_ms is how long a lease lasts, from 1. */
  visibility_timeout_ms: number;
  /**
   * max_deliveries is after how many deliveries a message is dead-lettered; 0 is no limit, absent is 20, except
   * for failures about which on_failure decides.
   */
  max_deliveries: number | null;
  /** max_depth and max_bytes bound the backlog; 0 is no limit. */
  max_depth: number;
  /** max_depth and max_bytes bound the backlog; 0 is no limit. */
  max_bytes: number;
  /** dedupe_window_ms is for how long a Nats-Msg-Id is remembered; 0 turns deduplication off. */
  dedupe_window_ms: number;
  /** quantum is what one turn adds to a flow of weight 1, in units of cost 1. */
  quantum: number;
  /** Limits of the hooks; 0 is the global default, never "none". */
  lua_timeout_ms: number;
  lua_memory_limit_bytes: number;
  lua_circuit_breaker_threshold: number;
  lua_circuit_breaker_cooldown_ms: number;
  /**
   * fairness_header, weight_header and throttle_headers name the producer's headers that decide about scheduling
   * without a hook. Keys may be made of headers, such as tenant:{tenant}.
   */
  fairness_header: string;
  /**
   * fairness_header, weight_header and throttle_headers name the producer's headers that decide about scheduling
   * without a hook. Keys may be made of headers, such as tenant:{tenant}.
   */
  weight_header: string;
  /**
   * fairness_header, weight_header and throttle_headers name the producer's headers that decide about scheduling
   * without a hook. Keys may be made of headers, such as tenant:{tenant}.
   */
  throttle_headers: string[] | null;
  /** circuit_header names the header that holds the circuit key, or is a template of it. */
  circuit_header: string;
  /** route_header names the header that holds a choice of routes ([[route]] tables). */
  route_header: string;
  /**
   * priority_header names the header that holds the priority, 0 to 9, of a message within its flow. For every
   * priority_age_ms that it waits a message counts as one priority higher; 0 is a minute. Messages of
   * priority_reserved and above go before all others of their flow, however long these have waited; 0 is none.
   */
  priority_header: string;
  /**
   * priority_header names the header that holds the priority, 0 to 9, of a message within its flow. For every
   * priority_age_ms that it waits a message counts as one priority higher; 0 is a minute. Messages of
   * priority_reserved and above go before all others of their flow, however long these have waited; 0 is none.
   */
  priority_age_ms: number;
  /**
   * priority_header names the header that holds the priority, 0 to 9, of a message within its flow. For every
   * priority_age_ms that it waits a message counts as one priority higher; 0 is a minute. Messages of
   * priority_reserved and above go before all others of their flow, however long these have waited; 0 is none.
   */
  priority_reserved: number;
  /**
   * starve_after_ms is after how long a flow starves that could send something and is not delivered from, while
   * others are; 0 is never, otherwise 1000 and more.
   */
  starve_after_ms: number;
  /**
   * retry_policy names the [[retry_policy]] for failures that neither on_failure nor an [[error_rule]] decides;
   * empty: the three settings below.
   */
  retry_policy: string;
  /**
   * retry_initial_ms is the wait before the first retry of a failure that nobody else decides, 0 for none at all.
   * It doubles with every attempt, up to retry_max_ms. retry_jitter is the fraction of a wait that chance may take
   * away, 0 to 1.
   */
  retry_initial_ms: number;
  /**
   * retry_initial_ms is the wait before the first retry of a failure that nobody else decides, 0 for none at all.
   * It doubles with every attempt, up to retry_max_ms. retry_jitter is the fraction of a wait that chance may take
   * away, 0 to 1.
   */
  retry_max_ms: number;
  /**
   * retry_initial_ms is the wait before the first retry of a failure that nobody else decides, 0 for none at all.
   * It doubles with every attempt, up to retry_max_ms. retry_jitter is the fraction of a wait that chance may take
   * away, 0 to 1.
   */
  retry_jitter: number;
  /**
   * ordering is "" (fair order) or "key": at most one message of a fairness key in flight, in the order of their
   * enqueues.
   */
  ordering: string;
  /**
   * on_blocked says, with ordering "key", what happens while the first message of a key waits for a gate or for
   * its retry: "wait" (the default) holds the key, "skip" lets later ones pass.
   */
  on_blocked: string;
  /** max_pending_per_key bounds the unfinished messages of one fairness key; 0 is no limit. */
  max_pending_per_key: number;
  /**
   * enqueue_rate and enqueue_rate_per_key bound how many messages a second are taken, of all producers and of each
   * fairness key; empty is no limit. The bursts are in messages; 0 is the larger of 1 and what the rate brings in
   * a second.
   */
  enqueue_rate: string;
  enqueue_burst: number;
  /**
   * enqueue_rate and enqueue_rate_per_key bound how many messages a second are taken, of all producers and of each
   * fairness key; empty is no limit. The bursts are in messages; 0 is the larger of 1 and what the rate brings in
   * a second.
   */
  enqueue_rate_per_key: string;
  enqueue_burst_per_key: number;
  /** enqueue_schedules is "" or "allow", or "refuse": nobody makes a schedule by an enqueue. */
  enqueue_schedules: string;
  /**
   * max_failures_per_key is how many failures a fairness key may have within failure_window_ms; one more holds it
   * for failure_hold_ms, or until it is resumed. 0 is no limit.
   */
  max_failures_per_key: number;
  /**
   * max_failures_per_key is how many failures a fairness key may have within failure_window_ms; one more holds it
   * for failure_hold_ms, or until it is resumed. 0 is no limit. 0: a minute
   */
  failure_window_ms: number;
  /**
   * max_failures_per_key is how many failures a fairness key may have within failure_window_ms; one more holds it
   * for failure_hold_ms, or until it is resumed. 0 is no limit. 0: until resumed
   */
  failure_hold_ms: number;
  warnings?: string[];
}

/**
 * QueueSettings are the settings of a queue, under the same names in config.toml, in requests, in the store and
 * in replies. Times are in milliseconds.
 */
export interface QueueSettings {
  name: string;
  /** on_enqueue and on_failure are the texts of the Lua hooks, empty for none. */
  on_enqueue: string;
  /** on_enqueue and on_failure are the texts of the Lua hooks, empty for none. */
  on_failure: string;
  /** visibility_timeout_ms is how long a lease lasts, from 1. */
  visibility_timeout_ms: number;
  /**
   * max_deliveries is after how many deliveries a message is dead-lettered; 0 is no limit, absent is 20, except
   * for failures about which on_failure decides.
   */
  max_deliveries: number | null;
  /** max_depth and max_bytes bound the backlog; 0 is no limit. */
  max_depth: number;
  /** max_depth and max_bytes bound the backlog; 0 is no limit. */
  max_bytes: number;
  /** dedupe_window_ms is for how long a Nats-Msg-Id is remembered; 0 turns deduplication off. */
  dedupe_window_ms: number;
  /** quantum is what one turn adds to a flow of weight 1, in units of cost 1. */
  quantum: number;
  /** Limits of the hooks; 0 is the global default, never "none". */
  lua_timeout_ms: number;
  lua_memory_limit_bytes: number;
  lua_circuit_breaker_threshold: number;
  lua_circuit_breaker_cooldown_ms: number;
  /**
   * fairness_header, weight_header and throttle_headers name the producer's headers that decide about scheduling
   * without a hook. Keys may be made of headers, such as tenant:{tenant}.
   */
  fairness_header: string;
  /**
   * fairness_header, weight_header and throttle_headers name the producer's headers that decide about scheduling
   * without a hook. Keys may be made of headers, such as tenant:{tenant}.
   */
  weight_header: string;
  /**
   * fairness_header, weight_header and throttle_headers name the producer's headers that decide about scheduling
   * without a hook. Keys may be made of headers, such as tenant:{tenant}.
   */
  throttle_headers: string[] | null;
  /** circuit_header names the header that holds the circuit key, or is a template of it. */
  circuit_header: string;
  /** route_header names the header that holds a choice of routes ([[route]] tables). */
  route_header: string;
  /**
   * priority_header names the header that holds the priority, 0 to 9, of a message within its flow. For every
   * priority_age_ms that it waits a message counts as one priority higher; 0 is a minute. Messages of
   * priority_reserved and above go before all others of their flow, however long these have waited; 0 is none.
   */
  priority_header: string;
  /**
   * priority_header names the header that holds the priority, 0 to 9, of a message within its flow. For every
   * priority_age_ms that it waits a message counts as one priority higher; 0 is a minute. Messages of
   * priority_reserved and above go before all others of their flow, however long these have waited; 0 is none.
   */
  priority_age_ms: number;
  /**
   * priority_header names the header that holds the priority, 0 to 9, of a message within its flow. For every
   * priority_age_ms that it waits a message counts as one priority higher; 0 is a minute. Messages of
   * priority_reserved and above go before all others of their flow, however long these have waited; 0 is none.
   */
  priority_reserved: number;
  /**
   * starve_after_ms is after how long a flow starves that could send something and is not delivered from, while
   * others are; 0 is never, otherwise 1000 and more.
   */
  starve_after_ms: number;
  /**
   * retry_policy names the [[retry_policy]] for failures that neither on_failure nor an [[error_rule]] decides;
   * empty: the three settings below.
   */
  retry_policy: string;
  /**
   * retry_initial_ms is the wait before the first retry of a failure that nobody else decides, 0 for none at all.
   * It doubles with every attempt, up to retry_max_ms. retry_jitter is the fraction of a wait that chance may take
   * away, 0 to 1.
   */
  retry_initial_ms: number;
  /**
   * retry_initial_ms is the wait before the first retry of a failure that nobody else decides, 0 for none at all.
   * It doubles with every attempt, up to retry_max_ms. retry_jitter is the fraction of a wait that chance may take
   * away, 0 to 1.
   */
  retry_max_ms: number;
  /**
   * retry_initial_ms is the wait before the first retry of a failure that nobody else decides, 0 for none at all.
   * It doubles with every attempt, up to retry_max_ms. retry_jitter is the fraction of a wait that chance may take
   * away, 0 to 1.
   */
  retry_jitter: number;
  /**
   * ordering is "" (fair order) or "key": at most one message of a fairness key in flight, in the order of their
   * enqueues.
   */
  ordering: "" | "key";
  /**
   * on_blocked says, with ordering "key", what happens while the first message of a key waits for a gate or for
   * its retry: "wait" (the default) holds the key, "skip" lets later ones pass.
   */
  on_blocked: "" | "wait" | "skip";
  /** max_pending_per_key bounds the unfinished messages of one fairness key; 0 is no limit. */
  max_pending_per_key: number;
  /**
   * enqueue_rate and enqueue_rate_per_key bound how many messages a second are taken, of all producers and of each
   * fairness key; empty is no limit. The bursts are in messages; 0 is the larger of 1 and what the rate brings in
   * a second.
   */
  enqueue_rate: string | number;
  enqueue_burst: number;
  /**
   * enqueue_rate and enqueue_rate_per_key bound how many messages a second are taken, of all producers and of each
   * fairness key; empty is no limit. The bursts are in messages; 0 is the larger of 1 and what the rate brings in
   * a second.
   */
  enqueue_rate_per_key: string | number;
  enqueue_burst_per_key: number;
  /** enqueue_schedules is "" or "allow", or "refuse": nobody makes a schedule by an enqueue. */
  enqueue_schedules: "" | "allow" | "refuse";
  /**
   * max_failures_per_key is how many failures a fairness key may have within failure_window_ms; one more holds it
   * for failure_hold_ms, or until it is resumed. 0 is no limit.
   */
  max_failures_per_key: number;
  /**
   * max_failures_per_key is how many failures a fairness key may have within failure_window_ms; one more holds it
   * for failure_hold_ms, or until it is resumed. 0 is no limit. 0: a minute
   */
  failure_window_ms: number;
  /**
   * max_failures_per_key is how many failures a fairness key may have within failure_window_ms; one more holds it
   * for failure_hold_ms, or until it is resumed. 0 is no limit. 0: until resumed
   */
  failure_hold_ms: number;
}

/** Source says who set a value. */
export interface Source {
  /** file, operator, override, default or "fila <name>" */
  by: string;
  /** of the change, as in the audit log, if that still has it */
  client?: string;
  /** in whose name the client made it */
  owner?: string;
  /** of the change */
  reason?: string;
  /** RFC 3339: when it was changed, if known */
  at?: string;
}

/**
 * ThrottleAdapt makes concurrency, or the rate if there is no concurrency, the ceiling of a level that is
 * learned. Numbers are of that limit's unit and have up to three digits after the point.
 */
export interface ThrottleAdapt {
  /** overload: failures of class overload, or with the codes 429, 503 and 529 */
  signal: string;
  /** the lowest level, from 0.001; default 1 */
  min?: number;
  /** what a cut leaves of the level, 0.1 to 0.95; default 0.7 */
  backoff?: number;
  /** step next to the level of the last cut, for a limit's worth of successes; default 1, or a fiftieth of a rate */
  grow?: number;
  /** most growth in a second; default a tenth of the ceiling */
  grow_per_s?: number;
  /** the level at which it begins; default the ceiling */
  start?: number;
  /** expired leases count as overloads, too */
  expired?: boolean;
}

/** ThrottleLimits are the limits of a throttle key. A field that is absent is not set. */
export interface ThrottleCondition {
  /** per second; token bucket */
  rate?: string | number;
  /** size of the bucket in cost, from 1 */
  burst?: number;
  /** in flight at once, from 1 */
  concurrency?: number;
  /** messages in any window, from 1 */
  limit?: number;
  /** the window */
  window_ms?: number;
  /** adapt makes concurrency, or the rate, the ceiling of a level that is learned. */
  adapt?: ThrottleAdapt;
  /** fixes that level, from 0.001; needs adapt */
  level?: number;
  /** cost in a calendar period, from 0.001 */
  budget?: number;
  /** hour, day, week or month */
  period?: string;
  /** time zone of the period, by default UTC */
  zone?: string;
  /** parts of the budget at whose use to warn, up to four */
  warn_at?: number[];
  /**
   * on_empty is what becomes of messages that cost more than is left of the budget: hold (the default),
   * dead_letter or refuse.
   */
  on_empty?: string;
}

/** ThrottleInfo is a throttle key with its limits and the state of its gate. */
export interface ThrottleInfo {
  key: string;
  /** per second; token bucket */
  rate?: string;
  /** size of the bucket in cost, from 1 */
  burst?: number;
  /** in flight at once, from 1 */
  concurrency?: number;
  /** messages in any window, from 1 */
  limit?: number;
  /** the window */
  window_ms?: number;
  /** adapt makes concurrency, or the rate, the ceiling of a level that is learned. */
  adapt?: ThrottleAdapt;
  /** fixes that level, from 0.001; needs adapt */
  level?: number;
  /** cost in a calendar period, from 0.001 */
  budget?: number;
  /** hour, day, week or month */
  period?: string;
  /** time zone of the period, by default UTC */
  zone?: string;
  /** parts of the budget at whose use to warn, up to four */
  warn_at?: number[];
  /**
   * on_empty is what becomes of messages that cost more than is left of the budget: hold (the default),
   * dead_letter or refuse.
   */
  on_empty?: string;
  /**
   * source is the origin of the limits: file, operator, override, "prefix <prefix>*, " followed by one of these,
   * "fila <name>" of another fila, or none.
   */
  source: string;
  /** sources says in throttle-show who set each limit; absent if another fila did. */
  sources?: Record<string, Source>;
  /** RFC 3339 */
  override_until?: string;
  /** of the key's own limits */
  owner?: string;
  /** warnings in the replies to throttle-set and throttle-clear are as in ConfigSetReply. */
  warnings?: string[];
  /** RFC 3339, or "resumed" if only a resume ends it */
  paused_until?: string;
  /** it admits messages */
  admits: boolean;
  /** what blocks: rate, window, concurrency, reserved, paused, budget; open while it admits */
  state: string;
  /** RFC 3339: when it may admit messages again, if a time is known */
  admits_at?: string;
  /** the old name of admits_at, for one version */
  opens_at?: string;
  /** in the bucket; negative: debt */
  tokens: number;
  in_window: number;
  in_flight: number;
  /**
   * waiting is the number of queues with messages that it blocks, and waiting_messages the number of these
   * messages; throttle-show counts them. In other replies waiting is the number of queues on its wait list.
   * waiting_messages is in throttle-list as of the last sample for attention, of queues of this fila, and 0 in
   * other replies.
   */
  waiting: number;
  /**
   * waiting is the number of queues with messages that it blocks, and waiting_messages the number of these
   * messages; throttle-show counts them. In other replies waiting is the number of queues on its wait list.
   * waiting_messages is in throttle-list as of the last sample for attention, of queues of this fila, and 0 in
   * other replies.
   */
  waiting_messages?: number;
  /**
   * admitted and blocked are how often this fila has admitted a message or call, and how often the first of the
   * messages of a flow with the same gates began to wait or a call was refused, since fila started. The gate of a
   * key without limits of its own is gone when nothing needs it; the counts of the last thousand such keys are
   * kept, others begin anew.
   */
  admitted: number;
  /**
   * admitted and blocked are how often this fila has admitted a message or call, and how often the first of the
   * messages of a flow with the same gates began to wait or a call was refused, since fila started. The gate of a
   * key without limits of its own is gone when nothing needs it; the counts of the last thousand such keys are
   * kept, others begin anew.
   */
  blocked: number;
  /**
   * unused says that limits are set for the key or prefix, but no message or call has used it since fila started.
   * Nodes of a cluster do not set it.
   */
  unused?: boolean;
  /**
   * change is, in the reply to throttle-show, the latest change of the limits that are in force, if it was at run
   * time, the audit log has it, and no override is in force.
   */
  change?: LimitsChange;
  /**
   * waiting_keys are, in the reply to throttle-show about a prefix, up to 50 keys with its limits whose messages
   * wait as of the last sample for attention, those with the most first.
   */
  waiting_keys?: WaitingKey[];
  /**
   * waiting_queues are, in the reply to throttle-show, up to 50 blocked queues, those with the most blocked
   * messages first.
   */
  waiting_queues?: WaitingQueue[];
  /** spending is what a key with a budget has used in the present period. */
  spending?: BudgetInfo;
  /** absent: the limits are not shared */
  shared?: ThrottleShared;
  /** learned is the level of a limit that learns; absent: the limits are fixed. */
  learned?: ThrottleLearned;
}

/**
 * ThrottleLearned is the state of a limit that learns. Levels are messages at once or, of a rate, cost per
 * second.
 */
export interface ThrottleLearned {
  /** concurrency or rate */
  of: string;
  level: number;
  ceiling: number;
  min: number;
  /** the limit level fixes it */
  fixed?: boolean;
  /** the next step of its growth; absent at the ceiling and while it is fixed */
  next?: number;
  /** since it began to learn */
  cuts: number;
  /** steps are the last 20 cuts and times of growth, the oldest first. */
  steps?: ThrottleStep[];
}

/** ThrottleLimits are the limits of a throttle key. A field that is absent is not set. */
export interface ThrottleLimits {
  /** per second; token bucket */
  rate?: string;
  /** size of the bucket in cost, from 1 */
  burst?: number;
  /** in flight at once, from 1 */
  concurrency?: number;
  /** messages in any window, from 1 */
  limit?: number;
  /** the window */
  window_ms?: number;
  /** adapt makes concurrency, or the rate, the ceiling of a level that is learned. */
  adapt?: ThrottleAdapt;
  /** fixes that level, from 0.001; needs adapt */
  level?: number;
  /** cost in a calendar period, from 0.001 */
  budget?: number;
  /** hour, day, week or month */
  period?: string;
  /** time zone of the period, by default UTC */
  zone?: string;
  /** parts of the budget at whose use to warn, up to four */
  warn_at?: number[];
  /**
   * on_empty is what becomes of messages that cost more than is left of the budget: hold (the default),
   * dead_letter or refuse.
   */
  on_empty?: string;
}

/**
 * ThrottleSetRequest sets limits of a throttle key or, if it ends in '*', of every key with that prefix. Limits
 * that are absent stay as they are.
 */
export interface ThrottleSetRequest {
  /** key is the throttle key if the tail of the subject is "_". */
  key?: string;
  /** per second; token bucket */
  rate?: string | number;
  /** size of the bucket in cost, from 1 */
  burst?: number;
  /** in flight at once, from 1 */
  concurrency?: number;
  /** messages in any window, from 1 */
  limit?: number;
  /** the window */
  window_ms?: number;
  /** adapt makes concurrency, or the rate, the ceiling of a level that is learned. */
  adapt?: ThrottleAdapt;
  /** fixes that level, from 0.001; needs adapt */
  level?: number;
  /** cost in a calendar period, from 0.001 */
  budget?: number;
  /** hour, day, week or month */
  period?: string;
  /** time zone of the period, by default UTC */
  zone?: string;
  /** parts of the budget at whose use to warn, up to four */
  warn_at?: number[];
  /**
   * on_empty is what becomes of messages that cost more than is left of the budget: hold (the default),
   * dead_letter or refuse.
   */
  on_empty?: string;
  /**
   * unset names limits to remove: rate, burst, concurrency, limit, window_ms, adapt, level, budget (with period,
   * zone, warn_at and on_empty), zone, warn_at, on_empty. Without for_ms, level is also removed from an override.
   */
  unset?: ("rate" | "burst" | "concurrency" | "limit" | "window_ms" | "adapt" | "level" | "budget" | "period" | "zone" | "warn_at" | "on_empty")[];
  /** for_ms makes the change an override that ends after this time; 0 is a lasting change. */
  for_ms?: number;
  /**
   * if, unless absent, must match the limits that are set, in the fields that are not absent; otherwise nothing
   * changes (409). An empty rate or 0 matches a limit that is not set.
   */
  if?: ThrottleCondition;
}

/**
 * ThrottleShared is how filas share the limits of a throttle key. tokens and messages in its ThrottleInfo are of
 * this fila's lease.
 */
export interface ThrottleShared {
  /** the bucket cannot be reached: this fila uses what it has leased */
  degraded?: boolean;
  /** no other fila uses the key: this one uses its own limits, and the other fields are not set */
  alone?: boolean;
  /** permits for messages in flight, by fila */
  users?: Record<string, number>;
  /** in the shared bucket, not leased */
  tokens: number;
  /** slots used or leased */
  in_window: number;
  /** own is set if newer limits of another fila are in force: the limits set here. */
  own?: ThrottleLimits;
  /** the other fila */
  by?: string;
  /** RFC 3339, if known */
  changed_at?: string;
}

/** ThrottleStep is a cut of a learned level, or its growth between two cuts. */
export interface ThrottleStep {
  from: number;
  to: number;
  /** RFC 3339 */
  began: string;
  /** RFC 3339: its end; of a cut the same */
  at: string;
  /** of a cut; absent: the level grew */
  cause?: string;
}

/** WaitingKey is a throttle key with messages that it blocks. */
export interface WaitingKey {
  key: string;
  messages: number;
}

/** WaitingQueue is a queue with messages that a gate blocks. */
export interface WaitingQueue {
  queue: string;
  messages: number;
  flows: number;
}

/** Request and reply of admin verbs; {@link Client.admin} accepts other verbs as well. */
export interface AdminVerbs {
  "queue-create": [Partial<QueueSettings>, QueueReply];
  "queue-update": [Partial<QueueSettings>, QueueReply];
  "queue-inspect": [QueueInspectRequest, QueueInfo];
  "queue-delete": [QueueDeleteRequest, QueueDeleteReply];
  "throttle-set": [ThrottleSetRequest, ThrottleInfo];
  "throttle-show": [GateKeyRequest, ThrottleInfo];
  "circuit-show": [GateKeyRequest, CircuitInfo];
}
