package when

import (
	"strconv"
	"strings"
	"time"
)

// brute is a second, simple implementation of the seven fields. It examines each day, hour, minute
// and second, and counts occurrences one by one.
type brute struct {
	fields [7][]string
	counts map[[2]int]map[int]int // number of the occurrence by period, for a field and a value
}

func newBrute(text string) *brute {
	b := &brute{counts: map[[2]int]map[int]int{}}
	for i, f := range strings.Fields(text) {
		b.fields[i] = strings.Split(f, ",")
	}
	return b
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// match reports whether the value v of field i matches. nth returns the number of its occurrence.
func (b *brute) match(i, v int, nth func() int) bool {
	lows := [7]int{1970, 1, 1, 0, 0, 0, 0}
	highs := [7]int{2099, 12, 31, 6, 23, 59, 59}
	for _, item := range b.fields[i] {
		span, step, stepped := strings.Cut(item, "/")
		low, high, ranged := strings.Cut(span, "-")
		switch {
		case span == "*" && !stepped:
			return true
		case span == "*":
			if (v-lows[i])%atoi(step) == 0 && v <= highs[i] {
				return true
			}
		case ranged:
			every := 1
			if stepped {
				every = atoi(step)
			}
			if v >= atoi(low) && v <= atoi(high) && (v-atoi(low))%every == 0 {
				return true
			}
		case stepped:
			if v == atoi(low) && nth()%atoi(step) == 0 {
				return true
			}
		case v == atoi(low):
			return true
		}
	}
	return false
}

// nthDay returns how many days from 1970 to d have the same value of field i as d.
func (b *brute) nthDay(i int, value func(time.Time) int, d time.Time) int {
	key := [2]int{i, value(d)}
	if b.counts[key] == nil {
		m := map[int]int{}
		n := 0
		for day, at := 0, time.Unix(0, 0).UTC(); at.Year() < 2100; day, at = day+1, at.AddDate(0, 0, 1) {
			if value(at) == key[1] {
				n++
				m[day] = n
			}
		}
		b.counts[key] = m
	}
	return b.counts[key][int(d.Unix()/86400)]
}

func (b *brute) matchDay(d time.Time) bool {
	if d.Year() > 2099 || d.Year() < 1970 {
		return false
	}
	years := d.Year() - 1970 + 1
	if !b.match(0, d.Year(), func() int { return 1 }) || !b.match(1, int(d.Month()), func() int { return years }) {
		return false
	}
	dom := b.match(2, d.Day(), func() int { return b.nthDay(2, time.Time.Day, d) })
	dow := b.match(3, int(d.Weekday()), func() int {
		return b.nthDay(3, func(t time.Time) int { return int(t.Weekday()) }, d)
	})
	switch free := func(i int) bool { return len(b.fields[i]) == 1 && b.fields[i][0] == "*" }; {
	case free(2) && free(3):
		return true
	case free(2):
		return dow
	case free(3):
		return dom
	default:
		return dom || dow
	}
}

func (b *brute) timeIn(day int64, from int64) (int64, bool) {
	for h := range int64(24) {
		if (h+1)*3600 <= from || !b.match(4, int(h), func() int { return int(day) + 1 }) {
			continue
		}
		for m := range int64(60) {
			if h*3600+(m+1)*60 <= from || !b.match(5, int(m), func() int { return int(day*24+h) + 1 }) {
				continue
			}
			for s := range int64(60) {
				at := h*3600 + m*60 + s
				if at >= from && b.match(6, int(s), func() int { return int(day*1440+h*60+m) + 1 }) {
					return at, true
				}
			}
		}
	}
	return 0, false
}

// next returns the first matching time after t, within days. Without a match it returns where it
// stopped, and false.
func (b *brute) next(t time.Time, days int) (at time.Time, ok bool) {
	c := t.Unix() + 1
	for range days {
		day := c / 86400
		if b.matchDay(time.Unix(c, 0).UTC()) {
			if s, ok := b.timeIn(day, c%86400); ok {
				return time.Unix(day*86400+s, 0).UTC(), true
			}
		}
		c = (day + 1) * 86400
	}
	return time.Unix(c-1, 0).UTC(), false
}
