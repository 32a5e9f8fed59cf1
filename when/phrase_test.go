package when

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// phraseNow is the current time of the tables: a Friday, half a second after a full second.
const phraseNow = "2026-11-20T14:50:30.5Z"

// phraseCases holds phrases and their times: an instant for "in" and "at", seven fields for
// "every". For a refused phrase it holds words of the error instead.
var phraseCases = []struct{ phrase, want, refused string }{
	{"in 5 minutes", "2026-11-20 14:55:31", ""},
	{"in 1 second", "2026-11-20 14:50:32", ""},
	{"in a second", "2026-11-20 14:50:32", ""},
	{"in an hour", "2026-11-20 15:50:31", ""},
	{"in a hour", "2026-11-20 15:50:31", ""},
	{"in 1 hours", "2026-11-20 15:50:31", ""},
	{"in 24 hour", "2026-11-21 14:50:31", ""},
	{"in a day", "2026-11-21 14:50:31", ""},
	{"in 10 days", "2026-11-30 14:50:31", ""},
	{"in a week", "2026-11-27 14:50:31", ""},
	{"in 2 weeks", "2026-12-04 14:50:31", ""},
	{"in a month", "2026-12-20 14:50:31", ""},
	{"in 3 months", "2027-02-20 14:50:31", ""},
	{"in 14 months", "2028-01-20 14:50:31", ""},
	{"in a year", "2027-11-20 14:50:31", ""},
	{"in 2 years", "2028-11-20 14:50:31", ""},
	{"in 73 years", "2099-11-20 14:50:31", ""},
	{"in 1 hour 5 minutes", "2026-11-20 15:55:31", ""},
	{"in 1 hour, 5 minutes", "2026-11-20 15:55:31", ""},
	{"in 1 hour and 5 minutes", "2026-11-20 15:55:31", ""},
	{"in 1 hour, 5 minutes, and 3 seconds", "2026-11-20 15:55:34", ""},
	{"in 1 hour,5 minutes", "2026-11-20 15:55:31", ""},
	{"in a minute and a second", "2026-11-20 14:51:32", ""},
	{"in 1 year 1 month 1 week 1 day 1 hour 1 minute 1 second", "2027-12-28 15:51:32", ""},
	{"in 1 second and 1 hour", "2026-11-20 15:50:32", ""},
	{"in 1 hour and 2 hours", "2026-11-20 17:50:31", ""},
	{"  IN   5\tMinutes ", "2026-11-20 14:55:31", ""},
	{"in 005 minutes", "2026-11-20 14:55:31", ""},
	{"in 0 seconds", "2026-11-20 14:50:30", ""},
	{"in 0 years and 0 days", "2026-11-20 14:50:30", ""},
	{"in 90 minutes", "2026-11-20 16:20:31", ""},
	{"in 1000000 seconds", "2026-12-02 04:37:11", ""},
	{"now", "2026-11-20 14:50:30", ""},
	{"Now", "2026-11-20 14:50:30", ""},
	{"at now", "2026-11-20 14:50:30", ""},

	{"at 7pm tomorrow", "2026-11-21 19:00:00", ""},
	{"at tomorrow at 7pm", "2026-11-21 19:00:00", ""},
	{"at tomorrow 7pm", "2026-11-21 19:00:00", ""},
	{"at 7 pm tomorrow", "2026-11-21 19:00:00", ""},
	{"at 7PM Tomorrow", "2026-11-21 19:00:00", ""},
	{"at 7:15pm tomorrow", "2026-11-21 19:15:00", ""},
	{"at 7:15 pm tomorrow", "2026-11-21 19:15:00", ""},
	{"at 7:15:45pm tomorrow", "2026-11-21 19:15:45", ""},
	{"at 19:15 tomorrow", "2026-11-21 19:15:00", ""},
	{"at 23:59:59 tomorrow", "2026-11-21 23:59:59", ""},
	{"at noon tomorrow", "2026-11-21 12:00:00", ""},
	{"at midnight tomorrow", "2026-11-21 00:00:00", ""},
	{"at 12am tomorrow", "2026-11-21 00:00:00", ""},
	{"at 12:30am tomorrow", "2026-11-21 00:30:00", ""},
	{"at 12pm tomorrow", "2026-11-21 12:00:00", ""},
	{"at 0:05 tomorrow", "2026-11-21 00:05:00", ""},
	{"at 7pm", "2026-11-20 19:00:00", ""},
	{"at 9am", "2026-11-21 09:00:00", ""},
	{"at 14:50", "2026-11-21 14:50:00", ""},
	{"at 14:50:30", "2026-11-21 14:50:30", ""},
	{"at 14:50:31", "2026-11-20 14:50:31", ""},
	{"at noon", "2026-11-21 12:00:00", ""},
	{"at midnight", "2026-11-21 00:00:00", ""},
	{"at today at 7pm", "2026-11-20 19:00:00", ""},
	{"at 7pm today", "2026-11-20 19:00:00", ""},
	{"at friday at 9am", "2026-11-27 09:00:00", ""},
	{"at friday at 3pm", "2026-11-20 15:00:00", ""},
	{"at 3pm on friday", "2026-11-20 15:00:00", ""},
	{"at 3pm fri", "2026-11-20 15:00:00", ""},
	{"at monday 9am", "2026-11-23 09:00:00", ""},
	{"at sunday noon", "2026-11-22 12:00:00", ""},
	{"at thu midnight", "2026-11-26 00:00:00", ""},
	{"at next monday at 9am", "2026-11-23 09:00:00", ""},
	{"at next friday at 9am", "2026-11-27 09:00:00", ""},
	{"at 9am next friday", "2026-11-27 09:00:00", ""},
	{"at 9am on next sunday", "2026-11-29 09:00:00", ""},
	{"at november 21 at 7pm", "2026-11-21 19:00:00", ""},
	{"at nov 21 7pm", "2026-11-21 19:00:00", ""},
	{"at 21 nov 19:00", "2026-11-21 19:00:00", ""},
	{"at 21 November 2026 19:00", "2026-11-21 19:00:00", ""},
	{"at november 21 2027 at 7pm", "2027-11-21 19:00:00", ""},
	{"at november 21, 2027 at 7pm", "2027-11-21 19:00:00", ""},
	{"at 7pm nov 21 2027", "2027-11-21 19:00:00", ""},
	{"at 7pm on 21 nov", "2026-11-21 19:00:00", ""},
	{"at 7pm on 20 nov", "2026-11-20 19:00:00", ""},
	{"at 9am on 20 nov", "2027-11-20 09:00:00", ""},
	{"at jan 1 at noon", "2027-01-01 12:00:00", ""},
	{"at may 5 at noon", "2027-05-05 12:00:00", ""},
	{"at feb 29 at 7pm", "2028-02-29 19:00:00", ""},
	{"at 29 february 2028 at 7pm", "2028-02-29 19:00:00", ""},
	{"at 2026-11-21", "2026-11-21 00:00:00", ""},
	{"at 2026-11-21 19:00", "2026-11-21 19:00:00", ""},
	{"at 2026-11-21 at 7pm", "2026-11-21 19:00:00", ""},
	{"at 7pm on 2026-11-21", "2026-11-21 19:00:00", ""},
	{"at 7pm 2026-11-21", "2026-11-21 19:00:00", ""},
	{"at 2026-11-21T19:00", "2026-11-21 19:00:00", ""},
	{"at 2026-11-21T19:00:05", "2026-11-21 19:00:05", ""},
	{"at 2026-11-21T19:00:05Z", "2026-11-21 19:00:05", ""},
	{"at 2026-11-21t19:00:05z", "2026-11-21 19:00:05", ""},
	{"at 2026-11-21T19:00:00+01:00", "2026-11-21 18:00:00", ""},
	{"at 2026-11-21T19:00:00-09:30", "2026-11-22 04:30:00", ""},
	{"at 2026-11-21 19:00 +01:00", "2026-11-21 18:00:00", ""},
	{"at 2026-11-20T15:00:00+00:09", "2026-11-20 14:51:00", ""},
	{"at 2099-12-31T23:59:59Z", "2099-12-31 23:59:59", ""},
	{"at 2028-02-29", "2028-02-29 00:00:00", ""},

	{"every second", "* * * * * * *", ""},
	{"every minute", "* * * * * * 0", ""},
	{"every hour", "* * * * * 0 0", ""},
	{"every 1 second", "* * * * * * *", ""},
	{"every 5 seconds", "* * * * * * */5", ""},
	{"every 60 seconds", "* * * * * * 0", ""},
	{"every 15 minutes", "* * * * * */15 0", ""},
	{"every 15 minute", "* * * * * */15 0", ""},
	{"every 30 MINUTES", "* * * * * */30 0", ""},
	{"every 60 minutes", "* * * * * 0 0", ""},
	{"every 1 hours", "* * * * * 0 0", ""},
	{"every 6 hours", "* * * * */6 0 0", ""},
	{"every 24 hours", "* * * * 0 0 0", ""},
	{"every day", "* * * * 0 0 0", ""},
	{"every day at 9am", "* * * * 9 0 0", ""},
	{"every day at 19:15:30", "* * * * 19 15 30", ""},
	{"every day at noon", "* * * * 12 0 0", ""},
	{"every weekday", "* * * 1-5 0 0 0", ""},
	{"every weekday at 9:30", "* * * 1-5 9 30 0", ""},
	{"every monday", "* * * 1 0 0 0", ""},
	{"every Sunday at midnight", "* * * 0 0 0 0", ""},
	{"every mon at 8am", "* * * 1 8 0 0", ""},
	{"every monday and friday at 5pm", "* * * 1,5 17 0 0", ""},
	{"every friday, monday at 5pm", "* * * 1,5 17 0 0", ""},
	{"every mon, wed and fri at 8:30", "* * * 1,3,5 8 30 0", ""},
	{"every mon,tue,wed", "* * * 1-3 0 0 0", ""},
	{"every sat and sun at 10am", "* * * 0,6 10 0 0", ""},
	{"every monday and monday", "* * * 1 0 0 0", ""},
	{"every 2nd wednesday at noon", "* * * 3/2 12 0 0", ""},
	{"every 2nd wed", "* * * 3/2 0 0 0", ""},
	{"every 1st monday at 9am", "", `"every monday at 9am"`},
	{"every 1st mon", "", `"every monday at 9am"`},
	{"every first monday at 9am", "", ""},
	{"every 3rd sunday at 9am", "* * * 0/3 9 0 0", ""},
	{"every 11th friday at 9am", "* * * 5/11 9 0 0", ""},
	{"every 52nd friday at 9am", "* * * 5/52 9 0 0", ""},
	{"every month on the 1st", "* * 1 * 0 0 0", ""},
	{"every month on the 1st at 7am", "* * 1 * 7 0 0", ""},
	{"every month on the 22nd at 7:05pm", "* * 22 * 19 5 0", ""},
	{"every month on the 31st at noon", "* * 31 * 12 0 0", ""},

	{"", "", `begins with "in"`},
	{" ", "", `begins with "in"`},
	{"5 minutes", "", `"in 5 minutes"`},
	{"7pm tomorrow", "", `"at 7pm tomorrow"`},
	{"tomorow at 7pm", "", `"at tomorrow at 7pm"`},
	{"day at 9am", "", `"every day at 9am"`},
	{"hello", "", `begins with "in"`},
	{"* * * * * * *", "", `begins with "in"`},
	{"now now", "", `"now" does not belong here`},
	{"now please", "", "does not belong here"},
	{"in", "", "a whole number"},
	{"in five minutes", "", `"in 5 minutes"`},
	{"in 5", "", "seconds, minutes, hours, days"},
	{"in minutes", "", "a whole number"},
	{"in 5minutes", "", `"in 5 minutes"`},
	{"in 5 mins", "", `"in 5 minutes"`},
	{"in 5m", "", `"in 5 minutes"`},
	{"in 1.5 hours", "", "must be a whole number"},
	{"in -5 minutes", "", "a whole number"},
	{"in +5 minutes", "", "a whole number"},
	{"in 5 minutes ago", "", "a whole number"},
	{"in 5 minutes,", "", "a whole number"},
	{"in 5 minutes and", "", "a whole number"},
	{"in and 5 minutes", "", "a whole number"},
	{"in 5 minutes,, 3 seconds", "", "a whole number"},
	{"in 5 minutes and and 3 seconds", "", "a whole number"},
	{"in 5 minutes at 7pm", "", "a whole number"},
	{"in 5 fortnights", "", "seconds, minutes, hours, days"},
	{"in half an hour", "", `"in 30 minutes"`},
	{"in 80 years", "", "outside the years"},
	{"in 9999999 years", "", "outside the years"},
	{"in 99999999999999999999 seconds", "", "more than"},
	{"in 9999999 weeks and 9999999 months", "", "outside the years"},
	{"in ５ minutes", "", "a whole number"},
	{"in 5 minutes\x00", "", "a whole number"},
	{"at", "", "a time or a day must follow"},
	{"at 7", "", "neither a time nor a day"},
	{"at 7 tomorrow", "", "neither a time nor a day"},
	{"at at 7pm", "", "a time or a day must follow"},
	{"at on friday", "", "a time or a day must follow"},
	{"at 7pm on", "", "a time or a day must follow"},
	{"at 7pm at tomorrow", "", "a time or a day must follow"},
	{"at tomorrow", "", "a time must follow"},
	{"at friday", "", "a time must follow"},
	{"at november 21", "", "a time must follow"},
	{"at tomorrow on 7pm", "", "a time must follow"},
	{"at 7pm tomorrow tomorrow", "", "does not belong here"},
	{"at 7pm tomorrow please", "", "does not belong here"},
	{"at 7pm tomorro", "", `"at 7pm tomorrow"`},
	{"at 7pm yesterday", "", "a time or a day must follow"},
	{"at 7pm tonight", "", `"at 7pm today"`},
	{"at 0am", "", "1 to 12"},
	{"at 13pm", "", "1 to 12"},
	{"at 19:15pm", "", "1 to 12"},
	{"at 24:00", "", "no such time"},
	{"at 25:00", "", "no such time"},
	{"at 12:60", "", "no such time"},
	{"at 12:5", "", "no such time"},
	{"at 12:00:60", "", "no such time"},
	{"at 12:00:00.5", "", "whole seconds"},
	{"at 12:00:00:00", "", "no such time"},
	{"at 7pmtomorrow", "", "neither a time nor a day"},
	{"at 9am today", "", "past"},
	{"at 14:50:30 today", "", "past"},
	{"at 2026-11-20", "", "past"},
	{"at 2026-11-20 14:00", "", "past"},
	{"at 2020-01-01T00:00:00Z", "", "past"},
	{"at nov 19 2026 7pm", "", "past"},
	{"at 2026-02-30", "", "no such day"},
	{"at 2027-02-29 at 7pm", "", "no such day"},
	{"at feb 29 2027 at 7pm", "", "no such day"},
	{"at feb 30 at 7pm", "", "has no day 30"},
	{"at april 31 at noon", "", "has no day 31"},
	{"at nov 0 at noon", "", "has no day 0"},
	{"at 2026-13-01", "", "no such day"},
	{"at 2026-1-1", "", "must be written as"},
	{"at 2026-11", "", "must be written as"},
	{"at 2026/11/21", "", "neither a time nor a day"},
	{"at 21.11.2026", "", "neither a time nor a day"},
	{"at 11/21/2026", "", "neither a time nor a day"},
	{"at 2100-01-01", "", "1970 to 2099"},
	{"at 2026-11-21T", "", "must follow"},
	{"at 2026-11-21T19", "", "must follow"},
	{"at 2026-11-21T19:00:00.000Z", "", "whole seconds"},
	{"at 2026-11-21T19:00:00+25:00", "", "does not belong here"},
	{"at 2026-11-21T19:00:00+0100", "", "does not belong here"},
	{"at 2026-11-21 7pm +01:00", "", "does not belong here"},
	{"at 7pm +01:00", "", "a time or a day must follow"},
	{"at next week", "", "a weekday must follow"},
	{"at next tomorrow 7pm", "", "a weekday must follow"},
	{"at friday saturday 7pm", "", "a time must follow"},
	{"at tues 7pm", "", "a time or a day must follow"},
	{"at november 7pm", "", "a time must follow"},
	{"at 21st november 7pm", "", "neither a time nor a day"},
	{"at 7pm tomorrow in 5 minutes", "", "does not belong here"},
	{"every", "", "must follow"},
	{"every 45 minutes", "", `"every 30 minutes"`},
	{"every 7 hours", "", `"every 6 hours"`},
	{"every 100 seconds", "", `"every 60 seconds"`},
	{"every 25 hours", "", `"every 24 hours"`},
	{"every 0 minutes", "", "divide 60"},
	{"every -5 minutes", "", "must follow"},
	{"every 2 days", "", "only seconds, minutes and hours"},
	{"every 2 weeks", "", `"every 2nd monday at 9am"`},
	{"every 3 months", "", `"every month on the 1st at 9am"`},
	{"every 5", "", "seconds, minutes or hours must follow"},
	{"every minutes", "", "must follow"},
	{"every five minutes", "", `"every 5 minutes"`},
	{"every an hour", "", "must follow"},
	{"every day 9am", "", `"every day at 9am"`},
	{"every day at", "", "a time must follow"},
	{"every day at 9", "", "a time must follow"},
	{"every day at 25:00", "", "no such time"},
	{"every 9am", "", "not an ordinal"},
	{"every week", "", "must follow"},
	{"every year", "", "must follow"},
	{"every month", "", `"every month on the 1st at 9am"`},
	{"every month at 9am", "", "the day of the month"},
	{"every month on 1st", "", "the day of the month"},
	{"every month on the 0th", "", "must follow"},
	{"every month on the 32nd", "", "so many days"},
	{"every month on the 1", "", "not an ordinal"},
	{"every month on the first", "", `"every month on the 1st"`},
	{"every 2th monday", "", `"every 2nd monday"`},
	{"every 2 nd monday", "", "must follow"},
	{"every 0th monday", "", "must follow"},
	{"every 2nd day", "", "a weekday must follow"},
	{"every 2nd monday and friday", "", "does not belong here"},
	{"every second monday at 9am", "", "does not belong here"},
	{"every other monday at 9am", "", `"every 2nd monday at 9am"`},
	{"every monday and", "", "a weekday must follow"},
	{"every monday, , friday", "", "a weekday must follow"},
	{"every monday friday", "", "does not belong here"},
	{"every monday or friday", "", "does not belong here"},
	{"every weekday and sunday", "", "does not belong here"},
	{"every mondays", "", `"every monday"`},
	{"every day every day", "", "does not belong here"},
	{"daily", "", `"every day"`},
	{"each monday at 9am", "", `"every monday at 9am"`},
	{strings.Repeat("in 5 minutes ", 100), "", "longer than 200 bytes"},
	{strings.Repeat("é", 90), "", `begins with "in"`},
}

// Promises: W32.
func TestPhraseTable(t *testing.T) {
	t.Parallel()
	now, err := time.Parse(time.RFC3339Nano, phraseNow)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, c := range phraseCases {
		p, err := ParsePhrase(c.phrase, now)
		if c.want == "" {
			refused++
			var refusal *SpecError
			if !errors.Is(err, ErrBadSpec) || !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v, %v; want a refusal with %q", c.phrase, p, err, c.refused)
			} else if refusal.Nearest != "" {
				if _, err := ParsePhrase(refusal.Nearest, now); err != nil {
					t.Errorf("%q: names %q as accepted, but: %v", c.phrase, refusal.Nearest, err)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.phrase, err)
			continue
		}
		got := p.Spec.String()
		if p.Once {
			got = p.At.Format("2006-01-02 15:04:05")
			if again, err := Once(p.At); err != nil || again.String() != p.Spec.String() {
				t.Errorf("%q: spec %q, but runs at %s", c.phrase, p.Spec, got)
			}
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.phrase, got, c.want)
		}
	}
	if len(phraseCases) < 150 || refused*3 < len(phraseCases) {
		t.Errorf("%d phrases, %d of them refused", len(phraseCases), refused)
	}
}

// zoneCases holds phrases in other zones.
var zoneCases = []struct{ zone, now, phrase, want string }{
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "at 7pm tomorrow", "2026-11-21 18:00:00"},
	{"Europe/Berlin", "2026-11-20T23:30:00Z", "at 7pm tomorrow", "2026-11-22 18:00:00"},
	{"Europe/Berlin", "2026-11-20T23:30:00Z", "at saturday at 7pm", "2026-11-21 18:00:00"},
	{"Europe/Berlin", "2026-11-20T23:30:00Z", "at next monday noon", "2026-11-23 11:00:00"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "at 2026-11-21", "2026-11-20 23:00:00"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "at 2026-11-21T19:00:00Z", "2026-11-21 19:00:00"},
	{"Europe/Berlin", "2026-03-28T14:50:00Z", "in 1 day", "2026-03-29 13:50:00"},
	{"Europe/Berlin", "2026-03-28T14:50:00Z", "in 24 hours", "2026-03-29 14:50:00"},
	// the clock skips 02:30
	{"Europe/Berlin", "2026-03-28T01:30:00Z", "in 1 day", "2026-03-29 01:00:00"},
	{"Europe/Berlin", "2026-03-28T01:30:00Z", "at 2:30 tomorrow", "the clock of Europe/Berlin skips Sun 29 Mar 2026 02:30"},
	{"Europe/Berlin", "2026-03-28T01:30:00Z", "at 2:30", "the clock of Europe/Berlin skips Sun 29 Mar 2026 02:30"},
	{"Europe/Berlin", "2026-10-24T14:50:00Z", "at 2:30 tomorrow", "2026-10-25 00:30:00"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every day at 9am", "CRON_TZ=Europe/Berlin * * * * 9 0 0"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every 2nd wednesday at noon", "CRON_TZ=Europe/Berlin * * * 3/2 12 0 0"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every 10 seconds", "* * * * * * */10"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every minute", "* * * * * * 0"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every 15 minutes", "* * * * * */15 0"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every hour", "* * * * * 0 0"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every 6 hours", "CRON_TZ=Europe/Berlin * * * * */6 0 0"},
	{"Asia/Kathmandu", "2026-11-20T14:50:00Z", "every 15 minutes", "* * * * * */15 0"},
	{"Asia/Kathmandu", "2026-11-20T14:50:00Z", "every 30 minutes", "CRON_TZ=Asia/Kathmandu * * * * * */30 0"},
	{"Asia/Kathmandu", "2026-11-20T14:50:00Z", "at 9pm", "2026-11-20 15:15:00"},
	{"Australia/Lord_Howe", "2026-11-20T14:50:00Z", "every hour", "CRON_TZ=Australia/Lord_Howe * * * * * 0 0"},
	{"America/Santiago", "2026-09-05T14:50:00Z", "at midnight", "the clock of America/Santiago skips Sun 6 Sep 2026 00:00"},
	{"+02:00", "2026-11-20T14:50:00Z", "every day at 9am", "CRON_TZ=+02:00 * * * * 9 0 0"},
	{"+02:00", "2026-11-20T14:50:00Z", "every 2 hours", "* * * * */2 0 0"},
	{"UTC", "2026-11-20T14:50:00Z", "every day at 9am", "* * * * 9 0 0"},
	{"UTC", "2026-11-20T14:50:00Z", "every weekday at 9am Europe/Berlin", "CRON_TZ=Europe/Berlin * * * 1-5 9 0 0"},
	{"UTC", "2026-11-20T14:50:00Z", "at 7pm tomorrow America/New_York", "2026-11-22 00:00:00"},
	{"UTC", "2026-11-20T14:50:00Z", "in 5 minutes  Asia/Tokyo ", "2026-11-20 14:55:00"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every day at 9am UTC", "* * * * 9 0 0"},
	{"Europe/Berlin", "2026-11-20T14:50:00Z", "every day at 9am Asia/Tokyo", "CRON_TZ=Asia/Tokyo * * * * 9 0 0"},
	{"UTC", "2026-11-20T14:50:00Z", "at 9am Mars/Olympus", `the time zone "Mars/Olympus" is unknown`},
	{"UTC", "2026-11-20T14:50:00Z", "evry day at 9am Europe/Berlin", `"every day at 9am Europe/Berlin"`},
}

func TestPhraseZones(t *testing.T) {
	t.Parallel()
	for _, c := range zoneCases {
		loc, err := location(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		if loc == nil {
			loc = time.UTC
		}
		p, err := ParsePhrase(c.phrase, at(t, c.now).In(loc))
		var got string
		switch {
		case err != nil:
			if got = err.Error(); strings.Contains(got, c.want) {
				continue
			}
		case p.Once:
			got = p.At.Format("2006-01-02 15:04:05")
		default:
			got = p.Spec.String()
		}
		if got != c.want {
			t.Errorf("%s at %s, %q: got %q, want %q", c.zone, c.now, c.phrase, got, c.want)
		}
	}
	_, err := ParsePhrase("every day at 9am", at(t, phraseNow).In(time.FixedZone("odd", 1234)))
	if !errors.Is(err, ErrBadSpec) || !strings.Contains(err.Error(), "zone") {
		t.Errorf("a zone that has no name: %v", err)
	}
}

func TestPhraseMonthsEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ now, phrase, want string }{
		{"2027-01-31", "in 1 month", "2027-02-28 00:00:00"},
		{"2028-01-31", "in 1 month", "2028-02-29 00:00:00"},
		{"2027-01-31", "in 2 months", "2027-03-31 00:00:00"},
		{"2028-02-29", "in 1 year", "2029-02-28 00:00:00"},
		{"2027-01-31", "in 1 month and 1 day", "2027-03-01 00:00:00"},
		{"2026-12-31", "in 2 months, 1 week, 1 hour", "2027-03-07 01:00:00"},
		{"2026-12-31 23:59:59", "at 00:00", "2027-01-01 00:00:00"},
		// on a Sunday, the last day of the week
		{"2026-11-22", "at next sunday noon", "2026-11-29 12:00:00"},
		{"2026-11-23", "at next sunday noon", "2026-12-06 12:00:00"}, // on a Monday
		{"2026-11-23", "at next monday noon", "2026-11-30 12:00:00"},
		{"2026-11-20 19:00:00", "at 7pm", "2026-11-21 19:00:00"},
		{"2026-11-20 19:00:00", "at today at 7pm", "2026-11-20 19:00:00"},
		{"2026-11-20 19:00:00", "at 2026-11-20T19:00:00Z", "2026-11-20 19:00:00"},
		{"2026-11-20 19:00:00", "at fri at 7pm", "2026-11-27 19:00:00"},
		{"2026-11-20 19:00:00", "at nov 20 at 7pm", "2027-11-20 19:00:00"},
		{"2096-03-01", "at feb 29 at noon", ""},
		{"2099-12-31 23:59:59", "in 1 second", ""},
		{"2099-12-31 23:59:59", "at noon", ""},
		{"2099-12-31 23:59:59", "at noon tomorrow", ""},
	} {
		p, err := ParsePhrase(c.phrase, at(t, c.now))
		if c.want == "" {
			if !errors.Is(err, ErrBadSpec) {
				t.Errorf("%s, %q: %v, %v", c.now, c.phrase, p, err)
			}
			continue
		}
		if got := p.At.Format("2006-01-02 15:04:05"); err != nil || got != c.want {
			t.Errorf("%s, %q: got %s, %v; want %s", c.now, c.phrase, got, err, c.want)
		}
	}
	for _, year := range []int{1, 1969, 2100, 1 << 40} {
		if _, err := ParsePhrase("in 5 minutes", time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)); !errors.Is(err, ErrBadSpec) {
			t.Errorf("now in the year %d: %v", year, err)
		}
	}
}

func TestPhraseEcho(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	for _, c := range []struct {
		phrase string
		loc    *time.Location
		want   string
	}{
		{"at 7pm tomorrow", time.UTC, "Sat 21 Nov 2026 19:00 UTC, in 28h10m"},
		{"at 7pm tomorrow", berlin, "Sat 21 Nov 2026 19:00 CET, in 27h10m"},
		{"in 5 seconds", time.UTC, "Fri 20 Nov 2026 14:50:05 UTC, in 5s"},
		{"in 1 hour", time.UTC, "Fri 20 Nov 2026 15:50 UTC, in 1h"},
		{"in 10 minutes", time.UTC, "Fri 20 Nov 2026 15:00 UTC, in 10m"},
		{"in 2 weeks", time.UTC, "Fri 4 Dec 2026 14:50 UTC, in 14 days"},
		{"now", time.UTC, "Fri 20 Nov 2026 14:50 UTC, now"},
		{"every weekday at 9am", time.UTC, "every weekday at 09:00 UTC; next Mon 23 Nov 2026 09:00 UTC, in 66h10m"},
		{"every weekday at 9am", berlin, "every weekday at 09:00 Europe/Berlin; next Mon 23 Nov 2026 09:00 CET, in 65h10m"},
		{"every 15 minutes", time.UTC, "every 15 minutes, UTC; next Fri 20 Nov 2026 15:00 UTC, in 10m"},
	} {
		p, err := ParsePhrase(c.phrase, at(t, "2026-11-20 14:50:00").In(c.loc))
		if err != nil || p.Echo != c.want {
			t.Errorf("%q: got %q, %v; want %q", c.phrase, p.Echo, err, c.want)
		}
	}
}

func FuzzPhrase(f *testing.F) {
	now := at(f, phraseNow)
	for _, c := range phraseCases {
		f.Add(c.phrase, now.Unix(), uint32(500_000_000), "UTC")
	}
	for _, c := range zoneCases {
		f.Add(c.phrase, at(f, c.now).Unix(), uint32(0), c.zone)
	}
	f.Fuzz(func(t *testing.T, text string, sec int64, ns uint32, name string) {
		loc, err := location(name)
		if err != nil || loc == nil {
			loc = time.UTC
		}
		now := time.Unix(sec, int64(ns%1e9)).In(loc)
		p, err := ParsePhrase(text, now)
		if err != nil {
			var refusal *SpecError
			if !errors.As(err, &refusal) || p.Spec != nil {
				t.Fatalf("%q: %v, %v", text, p, err)
			}
			return
		}
		second := now.Truncate(time.Second)
		if p.Once && (p.At.Before(second) || p.At.Equal(second) != strings.HasSuffix(p.Echo, ", now")) {
			t.Fatalf("%q at %s: %s, %s", text, now, p.At, p.Echo)
		}
		if !p.Once && !p.At.IsZero() && !p.At.After(now) {
			t.Fatalf("%q at %s: first runs at %s", text, now, p.At)
		}
		checkSpec(t, p.Spec, now)
	})
}
