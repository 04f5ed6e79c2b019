-- Each tenant has a share of its own, and a budget of tokens: the throttle key tokens:<tenant>.
-- What a call will use is not known yet: it is expected to use what it may use at most.
function on_enqueue(msg)
  local tenant = msg.headers["tenant"] or "unknown"
  return {
    fairness_key = tenant,
    throttle_keys = { "tokens:" .. tenant },
    cost = tonumber(msg.headers["max-tokens"] or "1000"),
  }
end
