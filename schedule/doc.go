// Package schedule runs tasks at given times: once, or repeatedly.
//
// A [Schedule] adds entries to a [Store]. An entry holds a call of a task and its times; each of
// its times is a tick. A [Listener] claims the ticks that are due. It runs their handlers in place,
// which means in its own process, or submits them as tasks.
//
// A [When] holds the times of an entry:
//
//   - [Now], [After] and [AtTime] take Go values.
//   - [In], [At] and [Every] take English phrases.
//   - [ByCron] takes cron fields.
//   - [BySpec] takes any spec of package when.
package schedule
