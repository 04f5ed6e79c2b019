// The requests and replies of fila, with the names and fields of its JSON. Fields that end in
// _ms are milliseconds; times are RFC 3339.

/** Registers a consumer, renews its registration, changes its credit, or ends it. */
export interface ConsumeRequest {
  consumer?: string;
  /** 1 to 65,536, default 64. */
  max_in_flight?: number;
  /** 0 (for ever) to 365 days. */
  ttl_ms?: number;
  headers?: "all" | "min";
  /** Most messages in a delivery, 1 to 1,000; 0: deliveries are no batches. */
  batch?: number;
  batch_bytes?: number;
  /** 0 to 1,000. */
  batch_wait_ms?: number;
  /** Ends the registrations of the name. */
  leave?: boolean;
}

export interface ConsumeReply {
  deliver: string;
  max_in_flight: number;
  visibility_timeout_ms: number;
  left?: boolean;
}

/** Confirms an enqueue: the message is on disk, or finished. */
export interface EnqueueReply {
  /** A UUID; the id of the first message if `duplicate`. */
  id: string;
  queue: string;
  duplicate?: boolean;
  /** The name of the schedule that the enqueue made; it has no `id`. */
  schedule?: string;
  replaced?: boolean;
  unchanged?: boolean;
  /** The first run. */
  next?: string;
}

/** The reply to a batch of messages or of acks. */
export interface BatchReply {
  queue: string;
  /** 16 bytes for each message, in base64url without padding. */
  ids?: string;
  duplicates?: number[];
  refused?: BatchRefusal[];
  /** How many messages the queue would accept now; absent: no limit. */
  room?: number;
}

export interface BatchRefusal {
  index: number;
  code: number;
  err_code: number;
  /** Given with the first refusal of each `err_code`. */
  description?: string;
  retry_after_ms?: number;
}

/** The JSON body of an error reply. */
export interface ErrorReply {
  error: { code: number; err_code: number; description: string };
}

/** Messages per second: a number, or text such as "0.5" or "1/3". */
export type Rate = number | string;

export interface QueueSettings {
  name: string;
  on_enqueue: string;
  on_failure: string;
  visibility_timeout_ms: number;
  max_deliveries: number | null;
  max_depth: number;
  max_bytes: number;
  dedupe_window_ms: number;
  quantum: number;
  lua_timeout_ms: number;
  lua_memory_limit_bytes: number;
  lua_circuit_breaker_threshold: number;
  lua_circuit_breaker_cooldown_ms: number;
  fairness_header: string;
  weight_header: string;
  throttle_headers: string[];
  circuit_header: string;
  priority_header: string;
  priority_age_ms: number;
  priority_reserved: number;
  starve_after_ms: number;
  retry_policy: string;
  retry_initial_ms: number;
  retry_max_ms: number;
  retry_jitter: number;
  ordering: "" | "key";
  on_blocked: "" | "wait" | "skip";
  max_pending_per_key: number;
  enqueue_rate: Rate;
  enqueue_burst: number;
  enqueue_rate_per_key: Rate;
  enqueue_burst_per_key: number;
  enqueue_schedules: "" | "allow" | "refuse";
  max_failures_per_key: number;
  failure_window_ms: number;
  failure_hold_ms: number;
}

export interface QueueReply extends QueueSettings {
  warnings?: string[];
}

/** The counts of a queue, from queue-inspect. */
export interface QueueInfo {
  name: string;
  pending: number;
  ready: number;
  blocked: number;
  delayed: number;
  in_flight: number;
  moving?: number;
  consumers: number;
  bytes: number;
  oldest_age_ms: number;
  dlq?: string;
  settings: QueueSettings;
  counters: Record<string, number>;
}

export interface ThrottleLimits {
  rate?: Rate;
  burst?: number;
  concurrency?: number;
  limit?: number;
  window_ms?: number;
}

export interface ThrottleSetRequest extends ThrottleLimits {
  key?: string;
  unset?: string[];
  for_ms?: number;
  if?: ThrottleLimits;
}

export interface ThrottleInfo extends ThrottleLimits {
  key: string;
  source: string;
  override_until?: string;
  paused_until?: string;
  admits: boolean;
  state: string;
  admits_at?: string;
  tokens: number;
  in_window: number;
  in_flight: number;
  waiting: number;
  waiting_messages?: number;
}

export interface CircuitInfo {
  key: string;
  state: "closed" | "open" | "half-open";
  consecutive_failures: number;
  open_until?: string;
  cause?: string;
  probes: number;
  threshold: number;
  cooldown_ms: number;
  half_open_max_calls: number;
  half_open_successes: number;
}

/** One call to check. The first key is the destination, whose circuit decides. */
export interface GuardAsk {
  key?: string;
  with?: string[];
  cost?: number;
  ttl_ms?: number;
}

export interface GuardCheckRequest extends GuardAsk {
  caller?: string;
  checks?: GuardAsk[];
}

export interface GuardLimit {
  key: string;
  gate: string;
  limit: number;
  remaining: number;
  reset_s?: number;
  reset_epoch?: number;
  window_ms?: number;
}

export interface GuardAnswer {
  allowed: boolean;
  permit?: string;
  expires_at?: string;
  probe?: boolean;
  gate?: string;
  key?: string;
  retry_after_ms?: number;
  limit?: GuardLimit;
}

export interface GuardDoneRequest {
  key?: string;
  permit: string;
  caller?: string;
  outcome: "ok" | "error";
  error_code?: string;
  error?: string;
  retry_after_ms?: number;
  attempt?: number;
  retry_policy?: string;
}

export interface GuardVerdict {
  duplicate?: boolean;
  severity?: "low" | "medium" | "high" | "critical";
  rule?: string;
  description?: string;
  retry: boolean;
  delay_ms?: number;
  /** Absent: unlimited. */
  retries_left?: number;
}

export interface GuardStateRequest {
  key?: string;
  caller?: string;
  error_code?: string;
  error?: string;
  attempt?: number;
  retry_policy?: string;
}

export interface GuardStatus {
  key: string;
  answer: GuardAnswer;
  limits: GuardLimit[];
  circuit?: CircuitInfo;
  permits: number;
  verdict?: GuardVerdict;
}

/** Request and reply of admin verbs; {@link Client.admin} accepts other verbs as well. */
export interface AdminVerbs {
  "queue-create": [Partial<QueueSettings>, QueueReply];
  "queue-update": [Partial<QueueSettings>, QueueReply];
  "queue-inspect": [{ flows?: number }, QueueInfo];
  "queue-delete": [{ force?: boolean }, { deleted: number; warnings?: string[] }];
  "throttle-set": [ThrottleSetRequest, ThrottleInfo];
  "throttle-show": [{ key?: string }, ThrottleInfo];
  "circuit-show": [{ key?: string }, CircuitInfo];
}
