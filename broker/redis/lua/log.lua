-- Reads a stream after an entry, and says what the stream is.
-- KEYS: the stream. ARGV: the ID after which entries are read, how many (0 for none), an epoch for a stream that has none.
-- Returns: the epoch, the server's replication ID ('' if the user may not read it), last-generated-id, max-deleted-entry-id and
-- entries-added ('' from servers before 7.0), the length, the first entry's ID ('' if there is none), and the entries as
-- {ID, 1, {field, value, …}}.
local stream, after, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local mark, epoch = 'postrider-epoch-', nil
if redis.call('EXISTS', stream) == 1 then
  for _, g in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    if string.sub(g[2], 1, #mark) == mark then
      epoch = string.sub(g[2], #mark + 1)
    end
  end
end
if not epoch then
  epoch = ARGV[3]
  redis.call('XGROUP', 'CREATE', stream, mark .. epoch, '$', 'MKSTREAM')
end
local info, of = redis.call('XINFO', 'STREAM', stream), {}
for i = 1, #info, 2 do
  of[info[i]] = info[i + 1]
end
local first, replication, out = of['first-entry'], redis.pcall('INFO', 'replication'), {}
if count > 0 then
  for i, e in ipairs(redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', count)) do
    out[i] = {e[1], 1, e[2]}
  end
end
return {epoch, type(replication) == 'string' and string.match(replication, 'master_replid:(%w+)') or '', of['last-generated-id'],
  of['max-deleted-entry-id'] or '', of['entries-added'] or '', of['length'], first and first[1] or '', out}
