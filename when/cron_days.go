package when

import "slices"

// This file calculates on which days a Cron has a matching time, once when the Cron is made. For
// most specs that is every day. With items n/m it may be some days or no day: "* * * * * */2 0/2"
// requires an even minute whose number is odd.
//
// Searching for such a time would examine all minutes of 130 years. Instead, arithmetic derives the
// days from the hours, and the hours from the minutes.

// progression is the set of integers that leave the remainder r when divided by k; if k is 0, only
// r.
type progression struct{ r, k int64 }

var everything = progression{0, 1}

// alone limits the distance k. A longer one counts as 0, because a Cron's years have fewer minutes.
const alone = 1 << 27

// prepare calculates the days that have a matching time and stores them in f: it sets everyDay, or
// else days. The fields must be set before.
func (f *fields) prepare() {
	minutes := f.second.carry([]progression{everything}, 60)
	hours := f.minute.carry(minutes, 60)
	days := f.hour.carry(hours, 24)
	if f.everyDay = slices.Contains(days, everything); f.everyDay {
		return
	}
	f.days = make([]uint64, lastDay/64+2)
	for _, p := range days {
		for day := p.r; day <= lastDay; day += p.k {
			f.days[day/64] |= 1 << (day % 64)
			if p.k == 0 {
				break
			}
		}
	}
}

// carry returns the numbers of the periods in which the field has a matching value, as
// progressions. inner holds the numbers of the matching inner units, counted from 1970; each period
// has size of them. For example it derives the matching hours from the matching minutes.
func (f *field) carry(inner []progression, size int64) []progression {
	if slices.Contains(inner, everything) && f.mask != 0 {
		return []progression{everything}
	}
	var found []progression
	seen := map[progression]bool{}
	add := func(value int64, when progression) {
		for _, p := range inner {
			if p, ok := p.divide(size, value); ok {
				if p, ok = p.and(when); ok && !seen[p] {
					seen[p] = true
					found = append(found, p)
				}
			}
		}
	}
	for v := range size {
		if f.mask>>v&1 == 1 {
			add(v, everything)
		}
	}
	for _, e := range f.nth {
		add(e.n, progression{e.m - 1, e.m})
	}
	return found
}

// divide returns the set of x for which size*x+value is in p. It returns false if no x is in the
// set. x is not negative if p has a single number; otherwise negative numbers do not matter here.
func (p progression) divide(size, value int64) (progression, bool) {
	want := p.r - value
	if p.k == 0 {
		return progression{want / size, 0}, want >= 0 && want%size == 0
	}
	g, inverse := gcd(size, p.k)
	if want%g != 0 {
		return progression{}, false
	}
	k := p.k / g
	return progression{mod(mod(want/g, k)*inverse, k), k}, true
}

// and returns the intersection of p and q, and false if it is empty. q.k must be 1 to maxStep. If
// the distance of the result is alone or more, it returns only the smallest number.
func (p progression) and(q progression) (progression, bool) {
	if p.k == 0 {
		return p, mod(p.r, q.k) == q.r
	}
	g, inverse := gcd(p.k, q.k)
	if (q.r-p.r)%g != 0 {
		return progression{}, false
	}
	k := q.k / g
	both := progression{p.r + p.k*mod(mod((q.r-p.r)/g, k)*inverse, k), p.k * k}
	if both.k >= alone {
		both.k = 0
	}
	return both, true
}

// gcd returns the greatest common divisor g of a and b, and the inverse of a/g modulo b/g.
func gcd(a, b int64) (g, inverse int64) {
	x, y, u, v := a, b, int64(1), int64(0) // x = u*a and y = v*a, modulo b
	for y != 0 {
		q := x / y
		x, y, u, v = y, x-q*y, v, u-q*v
	}
	return x, mod(u, b/x)
}

// mod returns the remainder of a/b that is not negative.
func mod(a, b int64) int64 { return (a%b + b) % b }
