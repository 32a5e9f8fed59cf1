// Package schedule has tasks run at times of their own: at one instant, or again and again.
//
// A [Schedule] adds entries to a [Store] and looks after them. A [Listener] takes those that are due,
// and runs their handlers or submits their tasks.
//
// [When] says when an entry runs: [Now], [After] and [AtTime]; [In], [At] and [Every] in English;
// [ByCron]; and [BySpec] with any spec of package when.
package schedule
