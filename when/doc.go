// Package when says when something is to happen: by cron, in English, by Bedrock's repeats, and in
// windows of the week.
//
// A [Spec] answers which time comes next. There are several kinds. All are pure functions of time:
// they read no clock, and no file once they are made. Each process so gets the same answer.
//
//   - [ParseCron]: the seven fields of WorkKit, the year first, in UTC; [ParseCronIn] in a zone;
//     [Once] for a single instant.
//   - [ParseCron5]: the five fields of ordinary cron, @hourly and the like, in any zone.
//   - [ParsePhrase]: English, as "at 7pm tomorrow" and "every weekday at 9am". Its spec is one of
//     the above.
//   - [ParseRepeat]: Bedrock's repeats, which count from when a run was scheduled, started or
//     finished.
//   - [ParseWindows]: times of the week, with whether they are open and when they open next.
//
// [Parse] reads back what String of any of them wrote, and [Describe] says it in English. [Cron] and
// [Windows] tell what happens when a clock is put forward or back.
//
// The package knows neither tasks nor stores. Packages schedule and jobs are built on it.
package when
