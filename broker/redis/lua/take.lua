-- Reads on in a stream on behalf of a group's consumer, unless another consumer has something pending there.
-- KEYS: the stream. ARGV: group, consumer, how many entries, claim what others have had untouched for this long (ms), the ID
-- behind which own pending entries are read again ('' for none), whether new entries are wanted ('1'), an epoch for a stream
-- that has none.
-- Returns: the epoch, 1 if the group was made now, what happened ('taken', 'busy' or 'claimed'), the ID behind which further
-- pending entries are to be read ('' for none; '0' when busy, if there are any), and the entries as {ID, deliveries, {field, value, …}}.
local stream, group, me = KEYS[1], ARGV[1], ARGV[2]
local count, claimAfter, rewind, new = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'

-- The epoch is kept as the name of a group that nobody reads with, because groups end with their stream.
local mark = 'postrider-epoch-'
local epoch, known = nil, false
if redis.call('EXISTS', stream) == 1 then
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    if g[2] == group then
      known = true
    elseif string.sub(g[2], 1, #mark) == mark then
      epoch = string.sub(g[2], #mark + 1)
    end
  end
end
if not epoch then
  epoch = ARGV[7]
  redis.call('XGROUP', 'CREATE', stream, mark .. epoch, '$', 'MKSTREAM')
end
local made = 0
if not known then
  redis.call('XGROUP', 'CREATE', stream, group, '0')
  made = 1
end

local happened, own, others = 'taken', '', {}
for _, owner in ipairs(redis.call('XPENDING', stream, group)[4] or {}) do
  local name, n = owner[1], tonumber(owner[2])
  if name == me and n > 0 then
    own = '0'
  elseif n > 0 then
    others[#others + 1] = {name, redis.call('XPENDING', stream, group, '-', '+', n, name)}
  end
end
-- What all others have is claimed, or nothing is: of a part, nothing would be told.
for _, other in ipairs(others) do
  for _, p in ipairs(other[2]) do
    if p[3] < claimAfter then
      return {epoch, made, 'busy', own, {}}
    end
  end
end
for _, other in ipairs(others) do
  local ids = {}
  for i, p in ipairs(other[2]) do
    ids[i] = p[1]
  end
  for i = 1, #ids, 1000 do
    local part = {unpack(ids, i, math.min(i + 999, #ids))}
    part[#part + 1] = 'JUSTID'
    redis.call('XCLAIM', stream, group, me, 0, unpack(part))
  end
  redis.call('XGROUP', 'DELCONSUMER', stream, group, other[1])
  happened, rewind = 'claimed', '0'
end
if count == 0 then
  return {epoch, made, happened, rewind, {}}
end

local out = {}
if rewind ~= '' then
  local entries = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', count, 'STREAMS', stream, rewind)[1][2]
  if #entries == 0 then
    return {epoch, made, happened, '', out}
  end
  local times = {}
  for _, p in ipairs(redis.call('XPENDING', stream, group, entries[1][1], entries[#entries][1], #entries, me)) do
    times[p[1]] = p[4]
  end
  for _, e in ipairs(entries) do
    if e[2] then
      out[#out + 1] = {e[1], times[e[1]] or 1, e[2]}
    else
      redis.call('XACK', stream, group, e[1]) -- the entry was trimmed or deleted
    end
  end
  return {epoch, made, happened, #entries == count and entries[#entries][1] or '', out}
end
if new then
  local found = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', count, 'STREAMS', stream, '>')
  for _, e in ipairs(found and found[1][2] or {}) do
    out[#out + 1] = {e[1], 1, e[2]}
  end
end
return {epoch, made, happened, '', out}
