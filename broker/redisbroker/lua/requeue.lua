#!lua
-- Puts dead letters back into their queue, the oldest first, each as its next generation.
-- KEYS: m t d l o c n s g x h r
-- ARGV: 1 the levels as the caller knows them, 2 the channels but for the owner, 3 how many at most.
-- Returns {1, how many}, {0} if there is no such queue, {2, levels} if the queue has others.
local levels = redis.call('HGET', K.m, 'levels')
if not levels then return {0} end
if levels ~= ARGV[1] then return {2, levels} end
local letters = redis.call('LPOP', K.x, ARGV[3]) or {}
local pairs_ = {}
for i = 1, #letters do
  local letter = letters[i]
  local keylen, reason = struct.unpack('>I2I4', letter, 9)
  local key = string.sub(letter, 15, 14 + keylen)
  local id, generation = string.match(key, '^(.*) (%d+)$')
  pairs_[2 * i - 1] = (id or key) .. ' ' .. string.format('%.0f', (generation or 0) + 1)
  pairs_[2 * i] = string.sub(letter, 15 + keylen + reason)
end
if #letters > 0 then add(levels, ARGV[2], #letters, pairs_, {}) end
return {1, #letters}
