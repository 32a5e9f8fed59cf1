// Package schedule has tasks run at times of their own: at one instant, or again and again.
//
// # When
//
// A [Spec] says when. There are several kinds, all of them pure functions of time: they read no clock and no file once
// they are made, so that every process comes to the same answer.
package schedule
