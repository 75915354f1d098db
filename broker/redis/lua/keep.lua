-- Keeps what a consumer has pending in a stream from being claimed by others, or, with an idle time, lets it be claimed.
-- A consumer that has nothing pending is forgotten in the latter case.
-- KEYS: the stream. ARGV: group, consumer, how long the entries are to count as untouched (ms).
local stream, group, me, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local pending = redis.pcall('XPENDING', stream, group)
if pending.err then
  return 0 -- the stream or the group is gone
end
local n = 0
for _, owner in ipairs(pending[4] or {}) do
  if owner[1] == me then
    n = tonumber(owner[2])
  end
end
if n > 0 then
  local held = redis.call('XPENDING', stream, group, '-', '+', n, me)
  for i = 1, #held, 1000 do
    local ids = {}
    for j = i, math.min(i + 999, #held) do
      ids[#ids + 1] = held[j][1]
    end
    ids[#ids + 1] = 'IDLE'
    ids[#ids + 1] = idle
    ids[#ids + 1] = 'JUSTID'
    redis.call('XCLAIM', stream, group, me, 0, unpack(ids))
  end
elseif idle ~= '0' then
  redis.call('XGROUP', 'DELCONSUMER', stream, group, me)
end
return n
