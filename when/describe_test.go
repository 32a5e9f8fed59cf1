package when

import (
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"* * * * * * *":             "every second, UTC",
		"* * * * * * 0":             "every minute, UTC",
		"* * * * * 0 0":             "every hour, UTC",
		"* * * * * * 5":             "at second 05, UTC",
		"* * * * * * */10":          "every 10 seconds, UTC",
		"* * * * * */15 0":          "every 15 minutes, UTC",
		"* * * * * 5,35 0":          "at minutes 05 and 35, UTC",
		"* * * * * 30/2 0":          "at minute 30 (every 2nd time), UTC",
		"* * * * */6 0 0":           "every 6 hours, UTC",
		"* * * * 9-17 0 0":          "every hour from 09:00 to 17:00, UTC",
		"* * * * 9-17 */15 0":       "every 15 minutes, in the hours 09 to 17, UTC",
		"* * * * 9/2 0 0":           "at minute 00, in the hour 09 (every 2nd time), UTC",
		"* * * * * * 0/7":           "at second 00 (every 7th time), UTC",
		"* * * 0,6 9,12 30 0":       "at 09:30 and 12:30, every Sunday and Saturday, UTC",
		"* * * * 9 0 0":             "every day at 09:00 UTC",
		"* * * * 9 0 30":            "every day at 09:00:30 UTC",
		"* * * 1-5 9 0 0":           "every weekday at 09:00 UTC",
		"* * * 1,3-5 9 0 0":         "every Monday and Wednesday to Friday at 09:00 UTC",
		"* * * 3/1 9 0 0":           "every Wednesday at 09:00 UTC",
		"* * * 3/2,5 9 0 0":         "every Friday and every 2nd Wednesday at 09:00 UTC",
		"* * 1,15 * 9 0 0":          "on the 1st and 15th of each month at 09:00 UTC",
		"* * 31/2 * 9 0 0":          "on the 31st (every 2nd time) of each month at 09:00 UTC",
		"* * 13 5 9 0 0":            "on the 13th and every Friday at 09:00 UTC",
		"* * 1-31 5 9 0 0":          "every day at 09:00 UTC",
		"* 2/3 1 * 9 0 0":           "on the 1st in February (every 3rd time) at 09:00 UTC",
		"* 6-8 * * 9 0 0":           "every day in June to August at 09:00 UTC",
		"2026-2028 1 1 * 9 0 0":     "on the 1st in January in 2026 to 2028 at 09:00 UTC",
		"2026,2030 1 1 * 9 0 0":     "on the 1st in January in 2026 and 2030 at 09:00 UTC",
		"2030/2 * * * 9 0 0":        "every day, in no year at 09:00 UTC",
		"2026 11 21 * 19 0 0":       "once, on Sat 21 Nov 2026 at 19:00 UTC",
		"2026 2 30 * 19 0 0":        "on the 30th in February in 2026 at 19:00 UTC",
		"2014 3 * 0/2,3 9-17 * */5": "every 5 seconds, in the hours 09 to 17, every Wednesday and every 2nd Sunday in March in 2014, UTC",

		"CRON_TZ=Europe/Berlin 0 9 * * 1-5": "every weekday at 09:00 Europe/Berlin",
		"CRON_TZ=UTC 0 9 1-7 * *":           "on the 1st to 7th of each month at 09:00 UTC",
		"CRON_TZ=UTC 0 9 */15 * 1":          "every Monday that is on the 1st, 16th and 31st at 09:00 UTC",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := Describe(s); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", text, got, want)
		}
	}
	if got := Describe(foreign{}); got != "whenever" {
		t.Errorf("a spec of another package: %s", got)
	}
}

// foreign is a spec of another package.
type foreign struct{}

func (foreign) Next(time.Time) (time.Time, bool) { return time.Time{}, false }
func (foreign) String() string                   { return "whenever" }
