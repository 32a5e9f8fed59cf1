package redisbroker

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// handoverMode returns the kind of publications on the owner's channel: "c" for whole messages,
// "n" for notifications. It returns "", for nothing, until the server has confirmed that it knows
// the channel. A cluster sends publications to all its nodes, so there they must be short. With
// bounds the owner must claim itself. Call it with s.mu held.
func (s *subscription) handoverMode(own *owner) string {
	switch {
	case !own.hears:
		return ""
	case s.b.conn.Clustered(), s.bounds != "":
		return "n"
	default:
		return "c"
	}
}

// handleMessage handles payload, which the server published on the owner's channel. An empty
// payload is a notification that messages can be claimed. Otherwise it holds the messages of a
// claim that the server made itself, and they are added to the held ones. Unless the server
// continues to deliver, handleMessage wakes the claiming goroutine. Otherwise it only counts the
// message in s.wakeups, for the claim in progress. A payload that is damaged, or of another
// channel, counts as a notification. It takes s.mu.
//
// The payload's first line is the claim's number, a colon, how many further messages the server
// will deliver itself, a space, and the delivery counts. Then, for each message, follow the lengths
// of key and value, 2 and 4 bytes, key, and value.
func (s *subscription) handleMessage(channel, payload string) {
	s.mu.Lock()
	own := s.owner
	s.mu.Unlock()
	var ds []*delivery
	free := 0
	if head, rest, ok := strings.Cut(payload, "\n"); ok && channel == s.q.names.channel(own.number) {
		record, counts, _ := strings.Cut(head, " ")
		place, more, _ := strings.Cut(record, ":")
		if n, err := strconv.ParseInt(place, 10, 64); err == nil {
			var types string
			ds, _ = s.newDeliveries(own, n, splitFrames(rest), counts, &types)
			free, _ = strconv.Atoi(more)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.addHeld(own, ds):
		s.wakeToClaim()
	case s.needsNoClaim(own, free):
		s.wakeups++ // the claim in progress does not know of this message
	default:
		s.wakeToRefill()
	}
}

// needsNoClaim reports whether the owner can wait without a claim, because the server continues to
// deliver: free, the number of places that it knows, is at least half of the free places. It
// returns false if enough finished claims have been collected to report them. Call it with s.mu
// held.
func (s *subscription) needsNoClaim(own *owner, free int) bool {
	return free > 0 && free >= min(s.limit-len(own.held), maxClaim)/2 && own.done < fewDone
}

// splitFrames splits the messages of a payload into keys and values, in turn. It returns nil for
// damaged input.
func splitFrames(rest string) []any {
	const fixed = 6
	var parts []any
	for len(rest) >= fixed {
		h := []byte(rest[:fixed])
		key, value := int64(binary.BigEndian.Uint16(h)), int64(binary.BigEndian.Uint32(h[2:]))
		rest = rest[fixed:]
		if key+value > int64(len(rest)) {
			return nil
		}
		parts = append(parts, rest[:key], rest[key:key+value])
		rest = rest[key+value:]
	}
	return parts
}

// newDeliveries returns the deliveries of the claim with the number place, which it makes, and the
// size of all values in bytes. It returns nil and 0 if parts is empty. It does not add them to the
// subscription and takes no lock.
//
// parts holds keys and values in turn. counts holds "index:count", with spaces between, for each
// message that was delivered count times before this delivery; damaged entries are skipped. types
// holds the last content type and is updated.
func (s *subscription) newDeliveries(own *owner, place int64, parts []any, counts string, types *string) ([]*delivery, int) {
	n := len(parts) / 2
	if n == 0 {
		return nil, 0
	}
	all := make([]delivery, n)
	ds := make([]*delivery, n)
	c := &claim{owner: own, place: place, left: n}
	c.name = strconv.FormatInt(own.number, 10) + "." + strconv.FormatInt(place, 10)
	bytes := 0
	for i := range all {
		d := &all[i]
		d.sub, d.claim, d.count = s, c, 1
		d.key = text(parts, 2*i)
		value := text(parts, 2*i+1)
		bytes += len(value)
		decode(&d.message, d.key, value, types)
		ds[i] = d
	}
	for s := range strings.SplitSeq(counts, " ") {
		place, count, _ := strings.Cut(s, ":")
		i, err := strconv.Atoi(place)
		k, kerr := strconv.Atoi(count)
		if err == nil && kerr == nil && i >= 0 && i < n {
			all[i].count = k + 1
		}
	}
	return ds, bytes
}
