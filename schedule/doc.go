// Package schedule has tasks run at times of their own: at one instant, or again and again.
//
// # When
//
// A [Spec] says when. There are several kinds, all of them pure functions of time: they read no clock and no file once
// they are made, so that every process comes to the same answer.
//
//   - [ParseCron]: the seven fields of WorkKit, the year first, in UTC; [ParseCronIn] in a zone; [Once] for a single instant.
//   - [ParseCron5]: the five fields of ordinary cron, @hourly and the like, in any zone.
//   - [ParsePhrase]: English, as "at 7pm tomorrow" and "every weekday at 9am". What it makes is one of the above.
//   - [ParseRepeat]: Bedrock's repeats, which count from when a run was scheduled, started or finished.
//   - [ParseWindows]: times of the week, with whether they are open and when they open next.
//
// [Parse] reads back what String of any of them wrote, and [Describe] says it in English. How clocks that are put forward and back are treated is
// told at [Cron] and [Windows].
package schedule
