#!lua flags=no-writes
-- Lists messages of a fair queue, as list.lua does for other queues. It changes nothing.
--
-- After the lists r, each level is listed in blocks. A block has the next messages of all its
-- fairness keys, the lowest tag first: one of each key (of weight w: w) in the first 8 blocks, then
-- twice as many in each block. That is about the order of delivery, and a page needs bounded work.
-- Parked keys, see bounds.lua, come behind the others of their level.
-- KEYS: m t d l o s r
-- ARGV: in this order:
--   1  the levels as the caller knows them
--   2  the place: waiting, delayed or held
--   3  where the page begins: 0 is d, 100 * level the list r of a level, from 1 on, and the following
--      numbers are the level's blocks
--   4  the index there; for held the cursor of HSCAN; for a block
--      (rank of the fairness key * 2^25 + index in its part of the block) * 2 + 1, or + 0 if no
--      earlier key had a message in the block
--   5  the maximum number of messages
--   6  the approximate maximum of bytes
-- Returns {1, where the next page begins, index there, key, value, time, key, value, time, ...}. The
-- next page begins at -1 if there is none. A time is '' if it is not known. A JSON task that another
-- program pushed has the key ''. For held the numbers 5 and 6 are no limits. Returns {0} if the
-- queue does not exist, {2, levels} if it has other levels.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local place, section, index = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local want, budget = tonumber(ARGV[5]), tonumber(ARGV[6])
local out = {1, -1, 0}

-- show adds a message to the answer.
local function show(key, value, time)
  out[#out + 1] = key
  out[#out + 1] = value
  out[#out + 1] = time or ''
  want = want - 1
  budget = budget - #value
end

if place == 'held' then
  local got = redis.call('HSCAN', K.l, ARGV[4], 'COUNT', want)
  out[2], out[3] = got[1] == '0' and -1 or 0, got[1]
  for i = 1, #got[2], 2 do
    local key, owner = got[2][i], string.match(got[2][i + 1], '^(%d+)%.')
    local value = owner and redis.call('HGET', K.t, key)
    if value then show(key, value, redis.call('ZSCORE', K.o, owner)) end
  end
  return out
end

-- delayed messages that are due wait
local due = redis.call('ZCOUNT', K.d, '-inf', clock())
if section == 0 then
  local last = -1
  if place == 'waiting' then
    last = due - 1
  else
    index = math.max(index, due)
  end
  if place ~= 'waiting' or index <= last then
    local got = redis.call('ZRANGE', K.d, index, place == 'waiting' and math.min(last, index + want) or index + want, 'WITHSCORES')
    for i = 1, #got, 2 do
      if want <= 0 or budget <= 0 then
        out[2], out[3] = 0, index
        return out
      end
      show(got[i], redis.call('HGET', K.t, got[i]) or '', got[i + 1])
      index = index + 1
    end
  end
  if place == 'delayed' then return out end
  section, index = 100, 0
end

-- absent reports whether the message of a ready element is deleted.
local function absent(key)
  return redis.call('HEXISTS', K.l, key) == 1 or redis.call('ZSCORE', K.d, key)
end

-- range returns the elements from index first to index last of a fairness key, from its line and its
-- list.
local function range(name, line, first, last)
  local got, count = {}, 0
  for element in string.gmatch(line and string.sub(line, 2) or '', '[^\n]+') do
    if count >= first and count <= last then got[#got + 1] = element end
    count = count + 1
  end
  if line and string.byte(line, 1) == 43 and last >= count then -- '+': a list follows
    local more = redis.call('LRANGE', name, math.max(0, first - count), last - count)
    for i = 1, #more do got[#got + 1] = more[i] end
  end
  return got
end

local base, visits = string.sub(K.m, 1, -2), 0

-- keysof returns up to 200 fairness keys of a level, from a rank on. The parked ones come last. In
-- place of one that is not parked on this level is a name that is too long for a key.
local function keysof(level, rank)
  local zset = base .. 'k' .. level - 1
  local names = redis.call('ZRANGE', zset, rank, rank + 199)
  if #names == 200 then return names end
  local from = math.max(0, rank - redis.call('ZCARD', zset))
  local parked = redis.call('ZRANGE', base .. 'p', from, from + 199 - #names)
  local saved = #parked > 0 and redis.call('HMGET', base .. 'q', unpack(parked))
  for i = 1, #parked do
    local here = string.find(' ' .. (saved[i] or ''), ' ' .. level .. ':', 1, true)
    names[#names + 1] = here and parked[i] or string.rep(' ', 300)
  end
  return names
end

local part = 33554432 -- 2^25
while section < 100 * (math.max(1, #bounds(levels)) + 1) do
  local level, block = math.floor(section / 100), section % 100
  if block == 0 then
    local got = redis.call('LRANGE', K.r(level), index, index + want)
    for i = 1, #got do
      if want <= 0 or budget <= 0 then
        out[2], out[3] = section, index
        return out
      end
      local value = redis.call('HGET', K.t, got[i])
      if not value and string.byte(got[i], 1) == 123 then -- '{': a JSON task that another program pushed
        show('', got[i])
      elseif value and not absent(got[i]) then
        show(got[i], value)
      end
      index = index + 1
    end
    if #got == 0 then section, index = section + 1, 0 end
  else
    local found, rank, offset = index % 2, math.floor(index / 2 / part), math.floor(index / 2) % part
    local from, size = block - 1, 1
    if block > 8 then
      from = 2 ^ (block - 6)
      size = from
    end
    local names = keysof(level, rank)
    local hash = base .. 'f' .. level - 1
    local weights = #names > 0 and redis.call('HMGET', base .. 'w' .. level - 1, unpack(names))
    local lines = #names > 0 and redis.call('HMGET', hash, unpack(names))
    for i = 1, #names do
      local weight = tonumber(weights[i] or 1)
      local first, last = from * weight + offset, (from + size) * weight - 1
      local got = range(hash .. ':' .. names[i], lines[i], first, math.min(last, first + want))
      visits = visits + 1
      if #got > 0 then found = 1 end
      while #got > 0 do
        for j = 1, #got do
          if want <= 0 or budget <= 0 then
            out[2], out[3] = section, ((rank + i - 1) * part + first - from * weight) * 2 + found
            return out
          end
          local key = string.byte(got[j], 1) == 9 and string.sub(got[j], 10) or got[j] -- without its stamp
          local value = redis.call('HGET', K.t, key)
          if value and not absent(key) then show(key, value) end
          first = first + 1
        end
        got = first <= last and range(hash .. ':' .. names[i], lines[i], first, math.min(last, first + want)) or {}
      end
      offset = 0
    end
    rank = rank + #names
    index = (rank * part) * 2 + found
    if #names < 200 then
      section = found == 1 and block < 30 and section + 1 or 100 * (level + 1)
      index = 0
    elseif visits >= 5000 then
      out[2], out[3] = section, index
      return out
    end
  end
end
return out
