// Package task defines tasks and the types around them:
//
//   - the definition of a task and its metadata
//   - the envelope in which a task travels
//   - the request that its handler gets
//   - the future that its submitter holds
//   - the errors with which a handler asks for a retry, a delay or a failure
//
// It imports only the standard library. A program that defines tasks for other programs needs no
// other package.
package task
