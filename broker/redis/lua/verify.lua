-- Looks for an entry of a stream.
-- KEYS: the stream. ARGV: the entry's ID.
-- Returns: {'found', {field, value, …}}; {'gone', last-generated-id, max-deleted-entry-id ('' from servers before 7.0), the first
-- entry's ID ('' if there is none)}; {'missing'} without the stream.
local stream, id = KEYS[1], ARGV[1]
if redis.call('EXISTS', stream) == 0 then
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
