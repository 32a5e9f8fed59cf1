package redisbroker

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// mode is what an owner hears: the content of messages, words of them, or nothing. On a cluster what is published goes to all
// nodes, so that it should be short.
func (s *subscription) mode(own *owner) string {
	switch {
	case !own.hears:
		return ""
	case s.b.conn.Clustered():
		return "n"
	default:
		return "c"
	}
}

// handed takes what was published on the owner's channel: nothing, which says that there is something to claim; or the place of
// a claim, a colon and how many more the server hands over without being asked, a space, the counts of those of its messages that
// were handed out before, and after a new line of each message: the lengths of key and value, 2 and 4 bytes; key; value.
func (s *subscription) handed(channel, payload string) {
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
			ds, _ = s.deliveries(own, n, frames(rest), counts, &types)
			free, _ = strconv.Atoi(more)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold(own, ds) && s.staysWaiting(own, free) {
		s.words++ // a claim that is under way knows nothing of it
		return
	}
	s.wake()
}

// staysWaiting reports whether the owner need not claim yet, since the server goes on to hand it messages: it knows of at least
// half of the free places, and few finished claims have gathered of which it is to be told. s.mu is held.
func (s *subscription) staysWaiting(own *owner, free int) bool {
	return free > 0 && free >= min(s.limit-len(own.held), maxClaim)/2 && own.done < fewDone
}

// frames takes keys and values apart; what is damaged is left out.
func frames(rest string) []any {
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

// deliveries makes deliveries of what was handed to an owner as its claim of a place: keys and values, and the counts of those
// that were handed out before. It returns also how many bytes the values have.
func (s *subscription) deliveries(own *owner, place int64, parts []any, counts string, types *string) ([]*delivery, int) {
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
