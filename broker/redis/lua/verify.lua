-- Looks for an entry of a stream.
-- KEYS: the stream. ARGV: the entry's ID, the epoch of its stream ('' if unknown).
-- Returns: {'found', {field, value, …}}; {'gone', last-generated-id, max-deleted-entry-id ('' from servers before 7.0), the first
-- entry's ID ('' if there is none)}; {'missing'} without the stream, or if it has another epoch.
local stream, id, epoch = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', stream) == 0 then
  return {'missing'}
end
local same = epoch == ''
for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  same = same or g[2] == 'postrider-epoch-' .. epoch
end
if not same then
  return {'missing'}
end
local found = redis.call('XRANGE', stream, id, id)[1]
if found then
  return {'found', found[2]}
end
local info = redis.call('XINFO', 'STREAM', stream)
local of = {}
for i = 1, #info, 2 do
  of[info[i]] = info[i + 1]
end
local first = of['first-entry']
return {'gone', of['last-generated-id'], of['max-deleted-entry-id'] or '', first and first[1] or ''}
