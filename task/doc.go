// Package task holds the nouns of Swarmiji: the definition of a task, its metadata, the envelope in which it travels, the
// request its handler sees, the future its submitter holds, and the verdicts a handler may return.
//
// It imports the standard library only. A program that defines tasks for others to submit and run needs nothing else.
package task
