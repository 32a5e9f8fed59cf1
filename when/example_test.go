package when_test

import (
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/when"
)

// friday is the current time of the examples.
var friday = time.Date(2026, 11, 20, 14, 50, 0, 0, time.UTC)

// show prints the next runs of a spec.
func show(s when.Spec, after time.Time, n int) {
	for range n {
		next, ok := s.Next(after)
		if !ok {
			fmt.Println("never again")
			return
		}
		fmt.Println(next.Format("Mon 2006-01-02 15:04:05"))
		after = next
	}
}

func ExampleParseCron() {
	// Every 5 seconds from 09:00 to 17:59, on every 2nd Sunday and each Wednesday of March 2014.
	s, err := when.ParseCron("2014 3 * 0/2,3 9-17 * */5")
	if err != nil {
		fmt.Println(err)
		return
	}
	show(s, time.Date(2014, 3, 26, 17, 59, 50, 0, time.UTC), 2)

	_, err = when.ParseCron("* * * 7 12 0 0")
	fmt.Println(err)
	// Output:
	// Wed 2014-03-26 17:59:55
	// never again
	// when: bad spec "* * * 7 12 0 0": understood "* * *", but day of week "7": not within 0 to 6; Sunday is 0
}

func ExampleParseCron5() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := when.ParseCron5("0 9 * * mon-fri", berlin)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	show(s, friday, 2)
	// Output:
	// CRON_TZ=Europe/Berlin 0 9 * * mon-fri
	// Mon 2026-11-23 08:00:00
	// Tue 2026-11-24 08:00:00
}

func ExampleOnce() {
	s, err := when.Once(time.Date(2026, 11, 21, 19, 0, 0, 0, time.UTC))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	show(s, friday, 2)
	// Output:
	// 2026 11 21 * 19 0 0
	// Sat 2026-11-21 19:00:00
	// never again
}

func ExampleParsePhrase() {
	for _, text := range []string{"at 7pm tomorrow", "in 5 minutes", "every 2nd wednesday at noon", "every 45 minutes", "at 9am today"} {
		p, err := when.ParsePhrase(text, friday)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s: %s\n", p.Spec, p.Echo)
	}
	// Output:
	// 2026 11 21 * 19 0 0: Sat 21 Nov 2026 19:00 UTC, in 28h10m
	// 2026 11 20 * 14 55 0: Fri 20 Nov 2026 14:55 UTC, in 5m
	// * * * 3/2 12 0 0: every 2nd Wednesday at 12:00 UTC; next Wed 2 Dec 2026 12:00 UTC, in 11 days
	// when: bad spec "every 45 minutes": understood "every", but 45 does not divide 60; for example, this is accepted: "every 30 minutes"
	// when: bad spec "at 9am today": understood "at 9am today", but that is in the past: Fri 20 Nov 2026 09:00:00 UTC; for example, this is accepted: "at 7pm tomorrow"
}

func ExampleDescribe() {
	for _, text := range []string{"* * * 1-5 9 0 0", "2014 3 * 0/2,3 9-17 * */5", "* * * * * */15 0", "2026 11 21 * 19 0 0"} {
		s, err := when.Parse(text)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(when.Describe(s))
	}
	// Output:
	// every weekday at 09:00 UTC
	// every 5 seconds, in the hours 09 to 17, every Wednesday and every 2nd Sunday in March in 2014, UTC
	// every 15 minutes, UTC
	// once, on Sat 21 Nov 2026 at 19:00 UTC
}

func ExampleParseRepeat() {
	r, err := when.ParseRepeat("finished, +1 day, weekday 1, start of day, +6 hours")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r)
	next, err := r.After(friday, friday.Add(time.Minute), friday.Add(time.Hour))
	fmt.Println(next, err)
	// Output:
	// FINISHED, +1 DAY, WEEKDAY 1, START OF DAY, +6 HOURS
	// 2026-11-23 06:00:00 +0000 UTC <nil>
}

func ExampleParseWindows() {
	w, err := when.ParseWindows("Mon-Fri 22:00-06:00, Sat 10:00-14:00", time.UTC)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w.Contains(friday))
	fmt.Println(w.NextOpen(friday))
	show(w, friday, 3)
	// Output:
	// false
	// 2026-11-20 22:00:00 +0000 UTC
	// Fri 2026-11-20 22:00:00
	// Sat 2026-11-21 10:00:00
	// Mon 2026-11-23 22:00:00
}

func ExampleDescribeTime() {
	fmt.Println(when.DescribeTime(friday.Add(28*time.Hour+10*time.Minute), friday))
	fmt.Println(when.DescribeTime(friday, friday))
	// Output:
	// Sat 21 Nov 2026 19:00 UTC, in 28h10m
	// Fri 20 Nov 2026 14:50 UTC, now
}
