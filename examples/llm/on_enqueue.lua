-- A call goes by the first provider that admits it, within the budget of its tenant. The tokens
-- that it uses are not known yet, so its cost is the maximum that it may use.
function on_enqueue(msg)
  local tenant = msg.headers["tenant"] or "unknown"
  return {
    fairness_key = tenant,
    cost = tonumber(msg.headers["max-tokens"] or "1000"),
    throttle_keys = { "tenant:" .. tenant },
    routes = {
      { name = "openai", circuit_key = "openai", throttle_keys = { "openai:tokens" } },
      { name = "anthropic", circuit_key = "anthropic", throttle_keys = { "anthropic:tokens" } },
    },
  }
end
