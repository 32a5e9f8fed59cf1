package redisbroker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/redisbroker"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// checkTurns is a script that compares the stored turns of a queue with its other keys. It returns
// ” or the first difference. ARGV: the common beginning of the queue's keys, the number of levels.
const checkTurns = `
local base, levels = ARGV[1], tonumber(ARGV[2])
local elements, stamps = 0, {}
for level = 0, levels - 1 do
  local hash = base .. 'f' .. level
  local lines = redis.call('HGETALL', hash)
  for i = 1, #lines, 2 do
    local of, line = lines[i], lines[i + 1]
    local all = {}
    for element in string.gmatch(string.sub(line, 2), '[^\n]+') do all[#all + 1] = element end
    if #all == 0 or string.byte(all[1], 1) ~= 9 then return 'the line of ' .. of .. ' is ' .. line end
    local parked = string.find(' ' .. (redis.call('HGET', base .. 'q', of) or ''), ' ' .. level + 1 .. ':', 1, true)
    if not redis.call('ZSCORE', base .. 'k' .. level, of) == not parked then return of .. ' has no tag or two' end
    local more = redis.call('LRANGE', hash .. ':' .. of, 0, -1)
    if #more > 0 and string.sub(line, 1, 1) ~= '+' then return of .. ' has a list that its line does not know' end
    for k = 1, #more do all[#all + 1] = more[k] end
    local stamp
    for k = 1, #all do
      local key = all[k]
      if string.byte(key, 1) == 9 then stamp, key = tonumber(string.sub(key, 2, 9), 16), string.sub(key, 10) end
      stamps[stamp] = (stamps[stamp] or 0) + 1
      elements = elements + 1
      if redis.call('HEXISTS', base .. 't', key) == 0 then return key .. ' is in the turns and not stored' end
    end
  end
  local lists = redis.call('KEYS', hash .. ':*')
  for i = 1, #lists do
    if redis.call('HEXISTS', hash, string.sub(lists[i], #hash + 2)) == 0 then return lists[i] .. ' has no line' end
  end
end
local ready = redis.call('HLEN', base .. 't') - math.max(0, redis.call('HLEN', base .. 'l') - 1) - redis.call('ZCARD', base .. 'd')
if elements ~= ready then return elements .. ' elements of ' .. ready .. ' ready messages' end
local held = redis.call('HGET', base .. 'm', 'counted')
if held then
  local all, sum = redis.call('HVALS', base .. 'b'), 0
  for i = 1, #all do sum = sum + all[i] end
  if sum ~= tonumber(held) or sum ~= redis.call('HLEN', base .. 'l') - 1 then return sum .. ' held messages are counted, in all ' .. held end
end
if redis.call('HLEN', base .. 'q') ~= redis.call('ZCARD', base .. 'p') then return 'parked keys differ' end
local counted = redis.call('HGETALL', base .. 'v')
for i = 1, #counted, 2 do
  local at = tonumber(counted[i])
  if (stamps[at] or 0) ~= tonumber(counted[i + 1]) then return counted[i + 1] .. ' are counted at ' .. at .. ', not ' .. (stamps[at] or 0) end
  stamps[at] = nil
end
if next(stamps) then return 'not counted: ' .. next(stamps) end
return ''
`

// TestStoredTurns shows that the stored turns agree with the other keys of a queue, after each step
// of random histories, with and without bounds. At the end nothing of them is left.
func TestStoredTurns(t *testing.T) {
	t.Parallel()
	srv, ns := testserver.RequireRedis(t), testserver.Namespace()
	b := connect(t, redisbroker.Config{Namespace: ns})
	c := bare(t, srv)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 25 && !testserver.IsThorough() {
			return
		}
		h := &turnsHistory{t: t, rt: rt, b: b, q: declaredFair(t, b, fmt.Sprint("q", runs), 50, 200), room: 3}
		h.s = subscribe(t, b, h.q, h.room)
		prefix := "swj:{" + ns + "." + h.q + "}:"
		steps := []func(){h.publish, h.publish, h.receive, h.receive, h.settle, h.settle, h.remove, h.change, h.resubscribe}
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			steps[rapid.IntRange(0, len(steps)-1).Draw(rt, "step")]()
			if wrong, err := c.Eval(testwait.Long(t), checkTurns, nil, prefix, 2).Text(); err != nil || wrong != "" {
				rt.Fatalf("the stored turns: %s, %v", wrong, err)
			}
		}
		for st := stats(t, b, h.q); st.Held+st.Ready+st.Delayed > 0; st = stats(t, b, h.q) {
			h.receive()
			h.settleAll()
		}
		forgotten(t, srv, ns, h.q)
		if err := h.s.Close(testwait.Long(t)); err != nil {
			rt.Fatalf("Close: %v", err)
		}
	})
}

// turnsHistory is one random history of a queue.
type turnsHistory struct {
	t    testing.TB
	rt   *rapid.T
	b    *redisbroker.Broker
	q    string
	s    broker.Subscription
	held []broker.Delivery
	ids  []string
	room int // the prefetch
	max  int // of a key and, one more, of the queue; 0: no bounds
}

// message returns a new message of a random key, weight and level.
func (h *turnsHistory) message(id string) *broker.Message {
	m := message(id)
	m.Key = rapid.SampledFrom([]string{"", "a", "b", "a key of more than thirty-one bytes"}).Draw(h.rt, "key")
	m.Weight = rapid.SampledFrom([]int{0, 1, 7}).Draw(h.rt, "weight")
	m.Priority = rapid.SampledFrom([]int{10, 100}).Draw(h.rt, "priority")
	if rapid.IntRange(0, 3).Draw(h.rt, "headers") == 0 {
		m.Headers = map[string]any{"a": "b", "swj-origin": "x"}
	}
	return m
}

func (h *turnsHistory) publish() {
	n := rapid.SampledFrom([]int{1, 2, 9, 30}).Draw(h.rt, "messages")
	m := h.message("")
	var all []*broker.Message
	for range n {
		one := *m
		if rapid.IntRange(0, 4).Draw(h.rt, "same") == 0 {
			one = *h.message("")
		}
		one.ID = fmt.Sprint("m", len(h.ids))
		h.ids = append(h.ids, one.ID)
		all = append(all, &one)
	}
	publishAll(h.t, h.b, h.q, all...)
}

// receive receives up to three messages if some are ready or fetched.
func (h *turnsHistory) receive() {
	for range 3 {
		if st := stats(h.t, h.b, h.q); len(h.held) >= h.room || st.Ready+st.Held <= len(h.held) || h.max > 0 && len(h.held) > 0 {
			return
		}
		h.held = append(h.held, receive(h.t, h.s))
	}
}

// settle ends one delivery in a random way.
func (h *turnsHistory) settle() {
	if len(h.held) == 0 {
		return
	}
	d := h.held[0]
	h.held = h.held[1:]
	ctx := testwait.Long(h.t)
	var err error
	switch rapid.IntRange(0, 4).Draw(h.rt, "settlement") {
	case 0:
		err = d.Release(ctx, 0)
	case 1:
		next := *d.Message()
		next.Generation++
		err = broker.Replace(ctx, h.b, d, broker.Outgoing{Queue: h.q, Message: &next})
	case 2:
		err = d.DeadLetter(ctx, broker.Dead{Reason: "why"})
	case 3:
		err = d.Release(ctx, time.Millisecond)
	default:
		err = broker.AckSync(ctx, d)
	}
	if err != nil {
		h.rt.Fatalf("settlement: %v", err)
	}
}

func (h *turnsHistory) settleAll() {
	for _, d := range h.held {
		if err := broker.AckSync(testwait.Long(h.t), d); err != nil {
			h.rt.Fatalf("AckSync: %v", err)
		}
	}
	h.held = nil
}

// pick returns a random id that was published.
func (h *turnsHistory) pick() string {
	if len(h.ids) == 0 {
		return "none"
	}
	return h.ids[rapid.IntRange(0, len(h.ids)-1).Draw(h.rt, "id")]
}

// remove deletes up to three messages, if they wait, or rarely all ready ones.
func (h *turnsHistory) remove() {
	if rapid.IntRange(0, 9).Draw(h.rt, "purge") == 0 {
		if _, err := h.b.Purge(testwait.Long(h.t), h.q); err != nil {
			h.rt.Fatalf("Purge: %v", err)
		}
		return
	}
	for range 3 {
		if err := h.b.Delete(testwait.Long(h.t), h.q, h.pick()); err != nil && !errors.Is(err, broker.ErrNotFound) {
			h.rt.Fatalf("Delete: %v", err)
		}
	}
}

// change replaces a message by one of another key, weight, level or time, if it waits.
func (h *turnsHistory) change() {
	o := broker.Outgoing{Message: h.message(h.pick())}
	if rapid.Bool().Draw(h.rt, "later") {
		o.At = time.Now().Add(time.Millisecond)
	}
	if err := h.b.Update(testwait.Long(h.t), h.q, o); err != nil && !errors.Is(err, broker.ErrNotFound) {
		h.rt.Fatalf("Update: %v", err)
	}
}

// resubscribe settles the held messages and subscribes again, perhaps with bounds. Fetched messages
// go back.
func (h *turnsHistory) resubscribe() {
	h.settleAll()
	if err := h.s.Close(testwait.Long(h.t)); err != nil {
		h.rt.Fatalf("Close: %v", err)
	}
	h.room = rapid.IntRange(1, 4).Draw(h.rt, "prefetch")
	if h.max = rapid.IntRange(0, 2).Draw(h.rt, "max"); h.max == 0 {
		h.s = subscribe(h.t, h.b, h.q, h.room)
		return
	}
	h.s = subscribeBounds(h.t, h.b, h.q, h.room, broker.Bounds{Key: broker.Bound{Max: h.max}, All: broker.Bound{Max: h.max + 1}})
}
