-- These functions are put before each script that needs the time, because a script cannot call
-- another one. The time is that of the server: workers and monitors compare their times, and the
-- clocks of two machines differ.

-- stamp(seconds, micros) returns a moment, counted from 1970, in the form of the published layout.
-- That is a JSON string, with its quotes, of a UTC time with six digits after the second:
-- "2015-07-25T12:00:00.123456Z".
local function stamp(seconds, micros)
  local days, rest = math.floor(seconds / 86400), seconds % 86400
  local year = 1970
  local function february() -- the number of its days in year
    return (year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)) and 29 or 28
  end
  while days >= 337 + february() do
    days = days - 337 - february()
    year = year + 1
  end
  local month = 1
  for _, length in ipairs({ 31, february(), 31, 30, 31, 30, 31, 31, 30, 31, 30 }) do
    if days < length then break end
    days = days - length
    month = month + 1
  end
  return string.format('"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ"', year, month, days + 1,
    math.floor(rest / 3600), math.floor(rest % 3600 / 60), rest % 60, micros)
end

-- ago(micros) returns the stamp of the moment that many microseconds before now, on the server's
-- clock.
local function ago(micros)
  local time = redis.call('TIME')
  local seconds = tonumber(time[1]) - math.floor(micros / 1000000)
  local left = tonumber(time[2]) - micros % 1000000
  if left < 0 then
    seconds, left = seconds - 1, left + 1000000
  end
  return stamp(seconds, left)
end
