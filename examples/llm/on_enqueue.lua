-- Each tenant has a share of its own, and a budget of tokens: the throttle key tokens:<tenant>.
-- The usage of a call is not known yet, so its cost is the maximum that it may use.
function on_enqueue(msg)
  local tenant = msg.headers["tenant"] or "unknown"
  return {
    fairness_key = tenant,
    throttle_keys = { "tokens:" .. tenant },
    cost = tonumber(msg.headers["max-tokens"] or "1000"),
  }
end
