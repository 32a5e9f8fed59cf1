package when

import "testing"

func BenchmarkCronNext(b *testing.B) {
	for _, text := range []string{
		"* * * * * * *", "* * * 1-5 9 0 0", "2014 3 * 0/2,3 9-17 * */5", "* * * * * */2 0/2", "* 2 30 * 0 0 0", "* * * * * * 0/9999999",
		"CRON_TZ=Europe/Berlin 0 9 * * 1-5", "CRON_TZ=Europe/Berlin */15 * * * *",
	} {
		b.Run(text, func(b *testing.B) {
			spec, err := Parse(text)
			if err != nil {
				b.Fatal(err)
			}
			now := at(b, "2026-11-20 14:50")
			b.ReportAllocs()
			for b.Loop() {
				spec.Next(now)
			}
		})
	}
}

func BenchmarkParseCron(b *testing.B) {
	for _, text := range []string{"* * * 1-5 9 0 0", "* * * * 3/5,4/7 0/3,5/11 0/13", "* * * * 1/3,2/5,3/7,4/9,5/11 1/3,2/5,3/7,4/9,5/11 1/13,2/17,3/19,4/23,5/29"} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseCron(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
