// Package when calculates times: from cron fields, English phrases, the repeats of Bedrock, and
// windows of the week.
//
// A [Spec] returns the next time after a given one. Specs are pure functions of time: they read no
// clock, and no file after they are made. So all processes get the same times.
//
//   - [ParseCron] parses the seven fields of WorkKit, the year first, in UTC.
//   - [ParseCronIn] parses them in another zone.
//   - [Once] is a single instant.
//   - [ParseCron5] parses the five fields of crontab(5), and @hourly and the like, in any zone.
//   - [ParsePhrase] parses English, such as "at 7pm tomorrow" and "every weekday at 9am".
//   - [ParseRepeat] parses the repeats of Bedrock, which count from the last run.
//   - [ParseWindows] parses times of the week; it also returns whether they are open.
//
// [Parse] parses the String of any of these specs, and [Describe] describes a spec in English. For
// daylight saving time see [Cron] and [Windows].
//
// Zones are those that [time.LoadLocation] finds: the machine's zone files, or package time/tzdata
// (0.4 MB) if the program imports it. An unknown zone is refused with [ErrBadSpec].
//
// The package does not depend on tasks or stores. Packages schedule and jobs use it.
package when
