-- Reads on in a stream on behalf of a group's consumer, unless another consumer has something pending there.
-- KEYS: the stream. ARGV: group, consumer, how many entries, claim what others have had untouched for this long (ms), the ID
-- behind which own pending entries are read again ('' for none), whether new entries are wanted ('1'), an epoch for a stream
-- that has none.
-- Returns: the epoch, 1 if the group was made now, what happened ('taken', 'busy' or 'claimed'), the ID behind which further
-- pending entries are to be read ('' for none; '0' when busy, if there are any), the entries as {ID, deliveries, {field, value, …}},
-- the IDs of pending entries that the stream no longer has, and how many entries were removed before they were delivered, with the
-- IDs of those before and after them ({} for none).
local stream, group, me = KEYS[1], ARGV[1], ARGV[2]
local count, claimAfter, rewind, new = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6] == '1'

-- fields returns an answer of XINFO by the names of its fields.
local function fields(list)
  local of = {}
  for i = 1, #list, 2 do
    of[list[i]] = list[i + 1]
  end
  return of
end

-- later says whether an ID comes after another.
local function later(a, b)
  local aTime, aNumber = string.match(a, '(%d+)-(%d+)')
  local bTime, bNumber = string.match(b, '(%d+)-(%d+)')
  if aTime == bTime then
    return tonumber(aNumber) > tonumber(bNumber)
  end
  return tonumber(aTime) > tonumber(bTime)
end

-- The epoch is kept as the name of a group that nobody reads with, because groups end with their stream.
local mark = 'postrider-epoch-'
local epoch, known = nil, nil
if redis.call('EXISTS', stream) == 1 then
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    if g[2] == group then
      known = fields(g)
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
  -- What was removed before the group existed is not missing: it counts as read (ENTRIESREAD, from Redis 7.0).
  local s = fields(redis.call('XINFO', 'STREAM', stream))
  if s['entries-added'] then
    redis.call('XGROUP', 'CREATE', stream, group, '0', 'ENTRIESREAD', s['entries-added'] - s['length'])
  else
    redis.call('XGROUP', 'CREATE', stream, group, '0')
  end
  known, made = {}, 1
end

-- missing returns how many entries were removed after the last delivered one and before the newly read ones, with the IDs around
-- them. It is exact if nothing before them is left; an entry that was deleted by itself is only known to have been there. If the
-- answer does not arrive, nobody is told.
local function missing(read)
  local s, first, last = fields(redis.call('XINFO', 'STREAM', stream)), read[1][1], read[#read][1]
  local before, count, deleted = known['last-delivered-id'], known['entries-read'], s['max-deleted-entry-id']
  if not s['entries-added'] or not before then
    return {}
  end
  local removed = s['entries-added'] - s['length']
  if count and s['first-entry'][1] == first and removed > count then
    redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', removed + #read) -- servers count wrongly from here on
    return {removed - count, before, first}
  end
  if before ~= '0-0' and later(deleted, before) and later(last, deleted) then
    return {1, before, deleted}
  end
  return {}
end

local happened, own, others, gone = 'taken', '', {}, {}
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
      return {epoch, made, 'busy', own, {}, {}, {}}
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
    local claimed = {}
    for _, id in ipairs(redis.call('XCLAIM', stream, group, me, 0, unpack(part))) do
      claimed[id] = true
    end
    for j = i, math.min(i + 999, #ids) do
      if not claimed[ids[j]] then
        gone[#gone + 1] = ids[j] -- from Redis 7.0; before, it is claimed, and found below
      end
    end
  end
  redis.call('XGROUP', 'DELCONSUMER', stream, group, other[1])
  happened, rewind = 'claimed', '0'
end
if count == 0 then
  return {epoch, made, happened, rewind, {}, gone, {}}
end

local out = {}
if rewind ~= '' then
  local entries = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', count, 'STREAMS', stream, rewind)[1][2]
  if #entries == 0 then
    return {epoch, made, happened, '', out, gone, {}}
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
      gone[#gone + 1] = e[1]
    end
  end
  return {epoch, made, happened, #entries == count and entries[#entries][1] or '', out, gone, {}}
end
if new then
  local found = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', count, 'STREAMS', stream, '>')
  for _, e in ipairs(found and found[1][2] or {}) do
    out[#out + 1] = {e[1], 1, e[2]}
  end
end
return {epoch, made, happened, '', out, gone, #out > 0 and missing(out) or {}}
