package when

import (
	"math/bits"
	"time"
)

// The search calculates with the time on a clock: seconds since 1970-01-01 00:00:00 on that clock,
// with 86400 seconds in each day. Zones convert between these and instants.
const (
	daySeconds = 86400
	lastDay    = 47481 // 2099-12-31
)

// search is one call of Next. It jumps from match to match in each field, so it never examines days
// or seconds one by one. In its methods, days, hours and minutes are counted from 0 in 1970.
type search struct {
	*fields

	steps int // examined values, for tests
}

// after returns the first matching instant after u, in seconds since 1970 in UTC. A nil loc is UTC.
// It returns false after the last instant.
func (s *search) after(u int64, loc *time.Location) (int64, bool) {
	switch {
	case u > maxUnix: // beyond all years, where sums would overflow
		return 0, false
	case u < -maxUnix:
		u = -maxUnix
	}
	switch {
	case loc == nil:
		return s.from(u + 1)
	case s.hour.mask == 1<<24-1:
		return s.afterByClock(u, loc)
	default:
		return s.afterByName(u, loc)
	}
}

// from returns the first matching time on a clock at or after c, in seconds since 1970 on that
// clock. It returns false after the last one.
func (s *search) from(c int64) (int64, bool) {
	c = max(c, 0)
	day, sec := c/daySeconds, c%daySeconds
	found, ok := s.day(day)
	if ok && found == day {
		if sec, ok := s.time(day, sec); ok {
			return day*daySeconds + sec, true
		}
		found, ok = s.day(day + 1)
	}
	if !ok {
		return 0, false
	}
	sec, ok = s.time(found, 0)
	return found*daySeconds + sec, ok
}

// day returns the first day at or after the given one that matches and has a matching time. It
// returns false after the last such day.
func (s *search) day(day int64) (int64, bool) {
	if day > lastDay {
		return 0, false
	}
	year, month, dom := civil(day)
	for y, ok := s.year(year); ok; y, ok = s.year(y + 1) {
		from := int64(1)
		if y == year {
			from = month
		}
		months := s.month.at(y-firstYear) &^ (1<<from - 1)
		for ; months != 0; months &= months - 1 {
			s.steps++
			m := int64(bits.TrailingZeros64(months))
			first := dayOf(y, m)
			days := s.daysOf(y, m, first)
			if y == year && m == month {
				days &^= 1<<(dom-1) - 1
			}
			if days != 0 {
				return first + int64(bits.TrailingZeros64(days)), true
			}
		}
	}
	return 0, false
}

// year returns the first matching year at or after y, and false if no such year follows.
func (s *search) year(y int64) (int64, bool) {
	for n := y - firstYear; n <= lastYear-firstYear; n = (n/64 + 1) * 64 {
		s.steps++
		if left := s.years[n/64] &^ (1<<(n%64) - 1); left != 0 {
			return firstYear + n/64*64 + int64(bits.TrailingZeros64(left)), true
		}
	}
	return 0, false
}

// daysOf returns the set of days in month m of year y that match and have a matching time. Bit 0 is
// the first of the month, which is the day first since 1970.
func (s *search) daysOf(y, m, first int64) uint64 {
	length := dayOf(y, m+1) - first
	dom := s.dom.mask >> 1
	for _, e := range s.dom.nth {
		if e.n <= length && monthsWith(e.n, y, m)%e.m == 0 {
			dom |= 1 << (e.n - 1)
		}
	}
	const weeks = 1 | 1<<7 | 1<<14 | 1<<21 | 1<<28 // the same weekday in each week
	dow, weekday := uint64(0), (first+4)%7         // 1970-01-01 was a Thursday
	for left := s.dow.mask; left != 0; left &= left - 1 {
		dow |= weeks << ((int64(bits.TrailingZeros64(left)) - weekday + 7) % 7)
	}
	for _, e := range s.dow.nth {
		for d := (e.n - weekday + 7) % 7; d < length; d += 7 {
			if week := (first + d - (e.n+3)%7) / 7; (week+1)%e.m == 0 {
				dow |= 1 << d
			}
		}
	}
	days := dom & dow
	if s.union {
		days = dom | dow
	}
	days &= 1<<length - 1
	if !s.everyDay {
		days &= s.days[first/64]>>(first%64) | s.days[first/64+1]<<(64-first%64)
	}
	return days
}

// time returns the first matching second of a day, at or after sec, counted from midnight. It
// returns false if the rest of the day has no match.
func (s *search) time(day, sec int64) (int64, bool) {
	from := sec / 3600
	for hours := s.hour.at(day) &^ (1<<from - 1); hours != 0; hours &= hours - 1 {
		s.steps++
		h := int64(bits.TrailingZeros64(hours))
		if sec, ok := s.timeOfHour(day*24+h, max(sec-h*3600, 0)); ok {
			return h*3600 + sec, true
		}
	}
	return 0, false
}

// timeOfHour returns the first matching second of an hour, at or after sec, counted from the start
// of the hour. It returns false if the rest of the hour has no match.
func (s *search) timeOfHour(hour, sec int64) (int64, bool) {
	from := sec / 60
	for minutes := s.minute.at(hour) &^ (1<<from - 1); minutes != 0; minutes &= minutes - 1 {
		s.steps++
		m := int64(bits.TrailingZeros64(minutes))
		if seconds := s.second.at(hour*60+m) &^ (1<<max(sec-m*60, 0) - 1); seconds != 0 {
			return m*60 + int64(bits.TrailingZeros64(seconds)), true
		}
	}
	return 0, false
}

// dayOf returns the first day of month m in year y, counted from 0 on 1970-01-01. Month 13 is
// January of the next year. It is valid for 1970 to 2100, in which every 4th year except 2100 is a
// leap year.
func dayOf(y, m int64) int64 {
	if m == 13 {
		y, m = y+1, 1
	}
	n := y - firstYear
	day := n*365 + (n+1)/4 + daysBefore[m]
	if m > 2 && y%4 == 0 {
		day++
	}
	return day
}

// daysBefore holds the number of days before each month in a year without a leap day.
var daysBefore = [13]int64{1: 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334}

// civil returns year, month and day of the month of a day that is counted from 0 on 1970-01-01. It
// is valid for the years 1970 to 2099.
func civil(day int64) (y, m, dom int64) {
	y = firstYear + day/366
	for dayOf(y+1, 1) <= day {
		y++
	}
	m = 1 + (day-dayOf(y, 1))/31
	if dayOf(y, m+1) <= day {
		m++
	}
	return y, m, day - dayOf(y, m) + 1
}

// monthsWith returns how many months from January 1970 to month m of year y had an n-th day. That
// month must have one.
func monthsWith(n, y, m int64) int64 {
	years := y - firstYear
	februaries := years
	if m >= 2 {
		februaries++
	}
	switch n {
	case 31:
		return years*7 + int64([13]int{1: 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6, 7}[m])
	case 30:
		return years*12 + m - februaries
	case 29:
		leaps := (years + 1) / 4 // before this year
		if m >= 2 && y%4 == 0 {
			leaps++
		}
		return years*12 + m - februaries + leaps
	default:
		return years*12 + m
	}
}
